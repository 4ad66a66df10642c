"""A right decoder in a wrong environment is told so, in one line, with the command that mends it."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cs336_harness.checks import all_checks
from cs336_harness.subject.environment_faults import environment_fault
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.subject.loading import load
from cs336_harness.verdict.suite import Result, Suite

Write = Callable[[dict[str, str]], Path]

SILU = "def run_silu(in_features):\n    return in_features * in_features.sigmoid()\n"
SOFTMAX = "def run_softmax(in_features, dim):\n    return in_features.softmax(dim)\n"


def refused(root: Path) -> str:
    with pytest.raises(CannotJudgeError) as caught:
        load(root)
    message = str(caught.value)
    assert "\n" not in message
    return message


def results(root: Path) -> dict[str, Result]:
    suite = Suite(load(root), diagnose=True)
    chosen = [check for check in all_checks().values() if set(check.needs) in ({"run_silu"}, {"run_softmax"})]
    return {check.id: suite.result(check) for check in chosen}


def only_failure(judged: dict[str, Result]) -> Result:
    """The one failure, which blocks every other; no known mistake is looked for behind it.

    It is that of a component's own check: what else is asked of a component only calls it in another way.
    """
    (failed,) = (result for result in judged.values() if result.outcome == "failed")
    assert failed.check.snapshot
    assert failed.diagnosis is None
    assert {result.blocked_by for result in judged.values() if result.outcome == "blocked"} <= {failed.check.id}
    return failed


# An older Python


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python knows the syntax")
@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("type Ids = list[int]", "a type statement"),
        ("def first[T](x: list[T]) -> T: ...", "type parameters in brackets"),
        ("class Box[T]: ...", "type parameters in brackets"),
        ('sizes = {"a": 1}\nname = f"{sizes["a"]}"', "an f-string"),
        ("from typing import override", "typing.override"),
        ("import itertools\nitertools.batched", "itertools.batched"),
    ],
)
def test_what_a_newer_python_has(line: str, what: str, repository: Write) -> None:
    message = refused(repository({"tests/adapters.py": f"\n{line}\n{SILU}"}))
    assert what in message
    assert "uv run --python 3.12 cs336 check" in message
    assert "no fault of the decoder" in message


def test_a_python_that_the_repository_asks_for(repository: Write) -> None:
    project = "[project]\nname = 'mine'\nrequires-python = '>=3.99'\n"
    message = refused(repository({"pyproject.toml": project, "tests/adapters.py": f"from os import nothing\n{SILU}"}))
    assert "asks for Python 3.99 or later (requires-python), and here it ends in: cannot import name" in message
    assert "uv run --python 3.99 cs336 check" in message


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python has the name")
def test_the_python_that_brought_a_name_and_the_one_that_is_asked_for(repository: Write) -> None:
    project = "[project]\nname = 'mine'\nrequires-python = '>=3.99'\n"
    line = "from collections.abc import Buffer\n"
    message = refused(repository({"pyproject.toml": project, "tests/adapters.py": line + SILU}))
    assert "collections.abc.Buffer needs Python 3.12, and the repository asks for 3.99 or later" in message
    assert "uv run --python 3.99 cs336 check" in message


def test_a_slip_is_no_matter_of_python(repository: Write) -> None:
    assert "--python" not in refused(repository({"tests/adapters.py": f"from os import nothing\n{SILU}"}))


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("import layers.Rotary", "No module named 'layers.Rotary'"),
        ("from layers import norm", "cannot import name 'norm' from 'layers'"),
        ("import layers; layers.norm", "module 'layers' has no attribute 'norm'"),
        ("import torch; torch.ones(3).masked_fill(False, 0.0)", "masked_fill() received an invalid combination"),
        ("[].norm", "'list' object has no attribute 'norm'"),
        ("norm", "name 'norm' is not defined"),
    ],
)
def test_a_slip_is_no_matter_of_the_python_that_is_asked_for(line: str, error: str, repository: Write) -> None:
    project = "[project]\nname = 'mine'\nrequires-python = '>=3.99'\n"
    files = {"pyproject.toml": project, "layers/__init__.py": "", "layers/other.py": ""}
    message = refused(repository({**files, "tests/adapters.py": f"{line}\n{SILU}"}))
    assert error in message
    assert "Python" not in message


def test_a_call_that_the_course_never_makes_may_be_refused_with_any_error(repository: Write) -> None:
    """Attention that cannot do without a mask is right, whichever Python its repository asks for."""
    refuses = "scores.masked_fill(mask == False, float('-inf'))"
    attention = (
        "def run_scaled_dot_product_attention(Q, K, V, mask):\n"
        "    scores = Q @ K.transpose(-1, -2) / Q.shape[-1] ** 0.5\n"
        f"    return {refuses}.softmax(-1) @ V\n"
    )
    project = "[project]\nname = 'mine'\nrequires-python = '>=3.99'\n"
    suite = Suite(load(repository({"pyproject.toml": project, "adapters.py": attention})), diagnose=False)
    result = suite.result(all_checks()["components.attention_no_mask"])
    assert result.outcome == "advisory"
    assert "no test of CS336's gives it mask None" in result.message


# Another version of a library


def test_what_a_library_has_no_longer(repository: Write) -> None:
    raises = "def reduce(x):\n    raise RuntimeError('pytest.reduce has been removed since version 0.4.0.')\n"
    calls = "from layers import reduce\ndef run_silu(in_features):\n    return reduce(in_features)\n"
    failed = only_failure(results(repository({"layers.py": raises, "adapters.py": calls + SOFTMAX})))
    assert "which is installed here, has no pytest.reduce; that is the environment" in failed.message
    assert "uv run --with 'pytest<0.4.0' cs336 check" in failed.message
    assert failed.message.startswith("layers.py:2: ")
    assert failed.failure is not None
    assert not failed.failure.evidence.details


def test_what_the_locked_version_of_a_library_has(repository: Write) -> None:
    lock = '[[package]]\nname = "pytest"\nversion = "1.2.3"\n'
    root = repository({"uv.lock": lock, "tests/adapters.py": f"import pytest\npytest.old_name\n{SILU}"})
    assert "uv run --with 'pytest==1.2.3' cs336 check" in refused(root)


def test_a_misspelt_function_of_torch_is_the_learners_own(repository: Write) -> None:
    lock = '[[package]]\nname = "torch"\nversion = "2.6.0"\n'
    root = repository({"uv.lock": lock, "tests/adapters.py": f"import torch\ntorch.sofmax\n{SILU}"})
    assert "raised AttributeError: module 'torch' has no attribute 'sofmax'" in refused(root)


def test_a_library_that_is_missing_when_called(repository: Write) -> None:
    root = repository({"adapters.py": f"def run_silu(in_features):\n    import no_such_library\n{SOFTMAX}"})
    judged = results(root)
    told = only_failure(judged).message
    assert "imports no_such_library, which is not installed here; run it with `uv run --with" in told
    assert judged["components.softmax"].outcome == "passed"


@pytest.mark.parametrize("folder", ["no_such_library", "settings/no_such_library"])
def test_a_folder_without_python_is_no_module(folder: str, repository: Write) -> None:
    """A folder of settings or data that has a library's name is not what an import of that library means."""
    files = {f"{folder}/large.json": "{}"}
    inside = f"def run_silu(in_features):\n    from no_such_library import Settings\n{SOFTMAX}"
    told = only_failure(results(repository({**files, "adapters.py": inside}))).message
    assert told.startswith("adapters.py:2 imports no_such_library, which is not installed here; run it with `uv run")
    message = refused(repository({"adapters.py": f"from no_such_library import Settings\n{SILU}"}))
    assert "adapters.py:1 imports no_such_library, which is not installed here; run it with `uv run" in message


# A device that is not here


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_device_that_is_written_into_the_code(repository: Write) -> None:
    text = "def run_{}(in_features{}):\n    x = in_features\n    return x.to('cuda')\n"
    root = repository({"adapters.py": text.format("silu", "") + text.format("softmax", ", dim")})
    message = only_failure(results(root)).message
    assert message.startswith("the device cuda is hard-coded at adapters.py:")
    assert "device=weights.device" in message


def test_a_range_for_the_profiler_of_a_gpu(repository: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:  # as in a PyTorch without CUDA, whatever the one that is here was built with
        raise RuntimeError("NVTX functions not installed. Are you sure you have a CUDA build?")

    monkeypatch.setattr("torch.cuda.nvtx.range_push", absent)
    text = (
        "import torch\ndef run_{}(in_features{}):\n    with torch.cuda.nvtx.range('x'):\n        return in_features\n"
    )
    root = repository({"adapters.py": text.format("silu", "") + text.format("softmax", ", dim")})
    message = only_failure(results(root)).message
    assert message.startswith("adapters.py:3: torch.cuda.nvtx needs PyTorch with CUDA")


# Names that no registry has


@pytest.mark.parametrize("name", ["cs336_basics", "cs336_systems", "my_llm", "train_bpe"])
def test_the_courses_own_names_are_never_installed(name: str, repository: Write) -> None:
    files = {"pyproject.toml": "[project]\nname = 'my-llm'\n", "tests/adapters.py": f"import {name}.model\n{SILU}"}
    message = refused(repository(files))
    assert "it is the subject's own, which no registry has" in message
    assert "pip install" not in message
    assert "--with" not in message


def test_a_module_that_lies_elsewhere_in_the_repository(repository: Write) -> None:
    files = {"tests/adapters.py": f"import layers_of_mine\n{SILU}", "solution/part1/layers_of_mine.py": ""}
    assert "which lies in solution/part1/layers_of_mine.py of" in refused(repository(files))


CAPITALS = "the file is layers/rotary.py: Linux tells capital letters from small ones"
COMPILED = "layers/fast.pyi stands for a module that is compiled first, which has not been done here"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("import layers.Rotary", f"imports layers.Rotary, and {CAPITALS}"),
        ("from layers import Rotary", f"imports layers.Rotary, and {CAPITALS}"),
        ("from layers.Rotary.angles import cosine", f"imports layers.Rotary, and {CAPITALS}"),
        ("import layers.fast", f"imports layers.fast, and {COMPILED}"),
        ("from layers import fast", f"imports layers.fast, and {COMPILED}"),
    ],
)
def test_the_file_that_an_import_nearly_names(line: str, reason: str, repository: Write) -> None:
    layers = {"layers/__init__.py": "", "layers/rotary.py": "", "layers/fast.pyi": ""}
    project = {"pyproject.toml": "[project]\nname = 'mine'\nrequires-python = '>=3.99'\n"}
    root = repository({**layers, **project, "tests/adapters.py": f"{line}\n{SILU}"})
    assert f"tests/adapters.py:1 {reason}" in refused(root)
    repository({"tests/adapters.py": f"def run_silu(in_features):\n    {line}\n{SOFTMAX}"})
    judged = results(root)
    assert only_failure(judged).message.startswith(f"tests/adapters.py:2 {reason}")
    assert judged["components.softmax"].outcome == "passed"


@pytest.mark.parametrize("backend", ["scikit_build_core.build", "maturin", "mesonpy"])
def test_a_module_that_the_build_of_the_repository_makes(backend: str, repository: Write) -> None:
    files = {
        "pyproject.toml": f"[project]\nname = 'mine'\n[build-system]\nrequires = []\nbuild-backend = '{backend}'\n",
        "layers/__init__.py": "from . import fast\n",
        "adapters.py": f"import layers\n{SILU}",
    }
    message = refused(repository(files))
    assert "layers/__init__.py:1 imports layers.fast, and no file of it is there" in message
    assert "that is the environment" in message
    assert "circular" not in message
    repository({"pyproject.toml": "[project]\nname = 'mine'\n"})
    assert "the environment" not in refused(repository({}))


# Another contract


def test_adapters_of_another_assignment_and_year(repository: Write) -> None:
    other = "def run_dpo_loss(x): ...\ndef get_packed_sft_dataset(x): ...\ndef run_grpo(x): ...\n"
    message = refused(repository({"tests/adapters.py": other}))
    assert "follows another contract: it has run_dpo_loss, get_packed_sft_dataset and 1 more" in message
    older = f"def run_gelu(x): ...\ndef run_positionwise_feedforward(x): ...\n{SOFTMAX}"
    assert "CS336's year 2024" in refused(repository({"tests/adapters.py": older}))


# After a failed import


def test_a_failed_import_and_its_echoes_are_one_failure(repository: Write) -> None:
    root = repository(
        {
            "cs336_basics/__init__.py": "from . import model\n",
            "cs336_basics/model.py": "def silu(x):\n    return x * x.sigmoid()\n\nfrom . import no_such_module\n",
            "adapters.py": "def run_silu(in_features):\n"
            "    from cs336_basics.model import silu\n"
            "    return silu(in_features)\n"
            "def run_softmax(in_features, dim):\n"
            "    raise KeyError('cs336_basics')\n",
        }
    )
    judged = results(root)
    failed = only_failure(judged)
    assert "cannot import name 'no_such_module'" in failed.message
    assert not [name for name, result in judged.items() if result.outcome == "passed" and "silu" in name]
    assert judged["components.softmax"].blocked_by == failed.check.id


def test_a_file_that_an_import_reads(repository: Write) -> None:
    """The first error is told: the second import finds half a package, and ends in a KeyError."""
    files = {
        "cs336_basics/__init__.py": "from .layers import linear\nfrom . import train\n",
        "cs336_basics/layers/linear.py": "",
        "cs336_basics/layers/silu.py": "def silu(x):\n    return x * x.sigmoid()\n",
        "cs336_basics/train.py": "def steps():\n    return 2\n\nlines = open('data/valid.txt').readlines()\n",
        "adapters.py": "def run_silu(in_features):\n"
        "    from cs336_basics.layers.silu import silu\n"
        "    return silu(in_features)\n"
        "def run_softmax(in_features, dim):\n"
        "    from cs336_basics.train import steps\n"
        "    return in_features.softmax(dim)\n",
    }
    judged = results(repository(files))
    message = only_failure(judged).message
    assert message.startswith("cs336_basics/train.py:4: importing this file raised FileNotFoundError: ")
    assert 'belongs under `if __name__ == "__main__":`' in message
    assert not [name for name, result in judged.items() if result.outcome == "passed"]
    repository({"adapters.py": f"import cs336_basics\n{SILU}"})
    assert "cs336_basics/train.py:4: importing this file raised" in refused(repository({}))


def test_a_key_of_the_learners_own_is_no_echo(tmp_path: Path) -> None:
    assert environment_fault(KeyError("ln1.weight"), tmp_path, "adapters.py") is None
