"""A subject behind the pipe gets the verdict that it gets in this process."""

import multiprocessing
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from broken import RIGHT
from piped import piped
from test_tying import VIOLATORS, assembled

from cs336_harness.checks import all_checks
from cs336_harness.defects.defect import all_defects, real_defects, subject_of
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.loading import load
from cs336_harness.verdict.suite import Suite


def verdict(subject: Subject, *beginnings: str, diagnose: bool = False) -> dict[str, tuple[Any, ...]]:
    suite = Suite(subject, diagnose=diagnose)
    return {
        check.id: (result.outcome, without_addresses(result.message), result.blocked_by, named(result.diagnosis))
        for check in all_checks().values()
        if check.id.startswith(beginnings)
        for result in [suite.result(check)]
    }


def without_addresses(message: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "", message)


def named(diagnosis: Any) -> Any:
    return None if diagnosis is None else diagnosis.to_json()["defects"]


def test_a_right_subject_passes_through_the_pipe() -> None:
    subject = Subject(RIGHT, "right")
    with piped(subject) as remote:
        assert verdict(remote, "") == verdict(subject, "")


@pytest.mark.parametrize("model", [model for _, model, _ in VIOLATORS][::4], ids=lambda model: model.__name__)
def test_a_model_that_comes_apart_is_told_the_same_through_the_pipe(model: Any) -> None:
    subject = Subject(assembled(model), "subject")
    with piped(subject) as remote:
        assert verdict(remote, "tying") == verdict(subject, "tying")


ENVIRONMENT = {
    "library": ("layers.py", "import no_such_library\n"),
    "file": ("layers.py", "lines = open('data/valid.txt').readlines()\n"),
    "python": ("layers.py", "from typing import NoDefault, nothing_of_that_name\n"),
    "device": ("layers.py", "def silu(x):\n    raise RuntimeError('no NVIDIA driver: cuda')\n"),
    "own": ("Layers.py", ""),
    "echo": ("layers.py", "import no_such_library\n"),
}


@pytest.mark.parametrize("fault", ENVIRONMENT)
def test_a_fault_of_the_environment_is_told_the_same_through_the_pipe(
    fault: str, repository: Callable[[dict[str, str]], Path]
) -> None:
    """What tells it is where the exception came from, and an exception leaves its traceback in its own process."""
    name, text = ENVIRONMENT[fault]
    calls = "def run_silu(in_features):\n    from mine.layers import silu\n    return silu(in_features)\n"
    softmax = "    raise KeyError('cs336_basics')\n" if fault == "echo" else "    return in_features.softmax(dim)\n"
    softmax = f"def run_softmax(in_features, dim):\n{softmax}"
    subject = load(repository({"mine/__init__.py": "", f"mine/{name}": text, "adapters.py": calls + softmax}))
    beginnings = [f"components.{each}" for each in ("silu", "softmax", "arguments_untouched", "axes_of_size_one")]
    with piped(subject) as remote:
        there = verdict(remote, *beginnings)
    assert there == verdict(subject, *beginnings)
    (failed,) = (message for outcome, message, *_ in there.values() if outcome == "failed")
    assert failed.startswith(("mine/layers.py:", "adapters.py:2", "the device cuda is hard-coded at mine/layers.py"))


def overwriting(in_features: torch.Tensor, dim: int) -> torch.Tensor:
    in_features -= in_features.amax(dim, keepdim=True)
    return in_features.softmax(dim)


class Dropping(type(RIGHT)):
    def run_transformer_block(self, **arguments: Any) -> torch.Tensor:
        arguments["weights"].pop("ln1.weight")
        raise KeyError("ln1.weight")


class Refusing(type(RIGHT)):
    def get_transformer_lm(self, **sizes: Any) -> Any:
        raise ValueError("no \x1b[2Jmodel")


@pytest.mark.parametrize("change", [Dropping, Refusing])
def test_exceptions_and_changed_arguments_are_told_the_same_through_the_pipe(change: Any) -> None:
    subject = Subject(change(RIGHT.variation), "subject")
    with piped(subject) as remote:
        assert verdict(remote, "components", "configuration") == verdict(subject, "components", "configuration")


@pytest.fixture(scope="module")
def fresh() -> Iterator[Executor]:
    """Each call in a process of its own that has asked nothing yet: a fork of one that ran PyTorch's profiler hangs in
    it, and a mistake that is kept in a class remembers the models of the verdict before.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "cs336_harness.verdict.suite"])
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as executor:
        yield executor


def verdict_of(name: str) -> dict[str, tuple[Any, ...]]:
    return verdict(subject_of(all_defects()[name]), "", diagnose=True)


def verdict_through_the_pipe(name: str) -> dict[str, tuple[Any, ...]]:
    with piped(subject_of(all_defects()[name]), seconds=600) as remote:  # nothing fills it up between two checks here
        return verdict(remote, "", diagnose=True)


KEPT_APART = ("cache-shared-by-models", "token-zero-hidden")
"""Mistakes that once read otherwise through the pipe."""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({defect.name for defect in real_defects()[::6]} | {*KEPT_APART}))
def test_known_mistakes_are_named_the_same_through_the_pipe(name: str, fresh: Executor) -> None:
    assert fresh.submit(verdict_through_the_pipe, name).result() == fresh.submit(verdict_of, name).result()
