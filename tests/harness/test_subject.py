"""One call of a subject: what may come back, and what is said of everything else."""

import inspect
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cs336_harness.places import HOME, PACKAGE
from cs336_harness.subject.calling import Subject, is_own_file
from cs336_harness.subject.failures import AbsentEntryPoint, BlankEntryPoint, CheckFailure

X = torch.linspace(-2, 2, 12).reshape(3, 4)


def silu(function: Any) -> Subject:
    return Subject(SimpleNamespace(run_silu=function), "subject")


def call(function: Any) -> torch.Tensor:
    return silu(function).call("run_silu", shape=(3, 4), in_features=X)


def test_a_result_comes_back_as_it_is() -> None:
    assert torch.equal(call(lambda x: x * 2), X * 2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_another_floating_dtype_is_the_subjects_choice(dtype: torch.dtype) -> None:
    assert call(lambda x: x.to(dtype)).dtype == dtype


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: None, r"run_silu returned nothing \(is a return statement missing\?\)"),
        (lambda x: x.tolist(), r"run_silu returned a list; it must return a tensor of shape \(3, 4\)"),
        (lambda x: x.T, r"run_silu returned shape \(4, 3\); it must return \(3, 4\)"),
        (lambda x: x.long(), "run_silu returned dtype int64"),
        (lambda x: x.to("meta"), "meta device"),
        (lambda x: x / 0 * 0, "run_silu returned NaN in 12 of 12 elements, the first at"),
        (
            lambda x: x.clamp(max=1) / (x < 1.9),
            r"run_silu returned an infinity in 1 of 12 elements, the first at \(2, 3\)",
        ),
        (lambda x, y: x, r"run_silu takes \(x, y\); the contract calls it with \(in_features\)"),
        (lambda x: x.view(5), r"run_silu raised RuntimeError: shape '\[5\]' is invalid"),
    ],
)
def test_anything_else_is_one_clear_line(function: Any, message: str) -> None:
    with pytest.raises(CheckFailure, match=message) as caught:
        call(function)
    assert "\n" not in caught.value.message


def test_absent_blank_and_filled_are_told_apart_without_a_call() -> None:
    def blank(in_features: torch.Tensor) -> torch.Tensor:
        """A docstring."""
        raise NotImplementedError

    def half(in_features: torch.Tensor) -> torch.Tensor:
        if in_features.numel():
            raise NotImplementedError
        return in_features

    assert silu(blank).state("run_silu") == "blank"
    assert silu(half).state("run_silu") == "filled"
    assert silu(blank).state("run_rope") == "absent"
    for function in (blank, half):
        with pytest.raises(BlankEntryPoint, match="run_silu is blank"):
            call(function)
    with pytest.raises(AbsentEntryPoint, match="run_rope is not defined in subject"):
        silu(blank).invoke("run_rope")


def test_what_a_written_function_does_not_support_is_a_failure_not_a_blank() -> None:
    def no_empty_batch(in_features: torch.Tensor) -> torch.Tensor:
        if in_features.numel():
            raise NotImplementedError("only empty batches so far")
        return in_features

    def todo(in_features: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("to do")

    with pytest.raises(CheckFailure, match="run_silu raised NotImplementedError: only empty batches so far"):
        call(no_empty_batch)
    with pytest.raises(BlankEntryPoint):
        call(lambda in_features: todo(in_features))


def test_not_implemented_inside_pytorch_is_a_failure_not_a_blank() -> None:
    with pytest.raises(CheckFailure, match="run_silu raised NotImplementedError"):
        call(lambda x: torch.empty(2, device="meta").cpu())


def test_the_subject_gets_its_own_copy_and_leaves_the_world_as_found() -> None:
    def careless(in_features: torch.Tensor) -> torch.Tensor:
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(True)
        torch.manual_seed(99)
        print("debugging")
        return in_features.mul_(2)

    before, rng = X.clone(), torch.get_rng_state()
    call(careless)
    assert torch.equal(X, before)
    assert torch.get_default_dtype() == torch.float32
    assert torch.equal(torch.get_rng_state(), rng)


def test_a_subject_that_exits_is_a_failure_like_any_other() -> None:
    def leave(x: torch.Tensor) -> torch.Tensor:
        raise SystemExit(1)

    with pytest.raises(CheckFailure, match="run_silu raised SystemExit"):
        call(leave)


def test_the_frames_of_a_failure_are_the_subjects_own_though_the_harness_lies_beside_it() -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no")

    subject = Subject(SimpleNamespace(run_silu=wrong), "subject", root=HOME)
    with pytest.raises(CheckFailure) as caught:
        subject.call("run_silu", shape=(3, 4), in_features=X)
    (place,) = caught.value.evidence.details
    assert place.startswith("tests/harness/test_subject.py:")


def test_an_exception_about_sizes_is_told_with_what_was_given() -> None:
    with pytest.raises(CheckFailure, match=r"The size of tensor a \(4\) must match") as caught:
        call(lambda x: x + torch.ones(3, 3))
    assert caught.value.evidence.details[-1] == "it was given in_features (3, 4)"


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("layers.py", True),
        ("cs336_basics/layers.py", True),
        ("../repository-2/layers.py", False),
        (".venv/lib/python3.12/site-packages/torch/nn.py", False),
        ("site-packages.py", True),
    ],
)
def test_a_file_is_the_subjects_own_when_it_lies_under_its_root_and_is_not_installed(
    tmp_path: Path, file: str, own: bool
) -> None:
    root = tmp_path / "repository"
    assert is_own_file(os.path.normpath(root / file), root) is own
    assert not is_own_file("<frozen importlib._bootstrap>", root)
    assert is_own_file(str(PACKAGE.parent / "adapters.py"), PACKAGE.parent)
    assert not is_own_file(str(PACKAGE / "suite.py"), PACKAGE.parent)


def test_what_is_no_exception_is_a_failure_all_the_same() -> None:
    def skips(in_features: torch.Tensor) -> torch.Tensor:
        pytest.skip("todo")

    with pytest.raises(CheckFailure, match="run_silu raised Skipped: todo"):
        call(skips)


def test_a_default_device_is_put_back() -> None:
    def moves(in_features: torch.Tensor) -> torch.Tensor:
        torch.set_default_device("meta")
        return in_features

    call(moves)
    assert torch.empty(1).device.type == "cpu"


def test_a_deleted_working_directory_is_no_reason_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert torch.equal(call(lambda x: x * 2), X * 2)


def test_a_signature_that_cannot_be_read_is_not_asked_about() -> None:
    """Python 3.14 looks for what annotations name when they are asked for: here is what it then raises."""

    class Silu:
        @property
        def __signature__(self) -> inspect.Signature:
            raise NameError("name 'Float' is not defined")

        def __call__(self, in_features: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.silu(in_features)

    subject = Subject(SimpleNamespace(run_silu=Silu()), "subject")
    assert not subject.takes("run_silu", "num_kv_heads")
    assert subject.call("run_silu", shape=(2,), in_features=torch.ones(2)).shape == (2,)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are evaluated when the function is made")
def test_annotations_that_name_nothing_keep_no_argument_from_being_seen() -> None:
    names: dict[str, Any] = {}
    exec("def run_transformer_lm(weights: Missing, num_kv_heads: int | None = None): ...", names)
    assert Subject(SimpleNamespace(**names), "subject").takes("run_transformer_lm", "num_kv_heads")
