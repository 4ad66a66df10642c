"""Adapters modules as real repositories have them, and everything that can be wrong with a path."""

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cs336_harness.places import HOME
from cs336_harness.subject import loading
from cs336_harness.subject.failures import CannotJudgeError, CheckFailure
from cs336_harness.subject.loading import load, provenance
from cs336_harness.subject.locating import locate, repository_here

pytestmark = pytest.mark.usefixtures("as_found")

READS_ITS_VERSION = "from importlib.metadata import version\n__version__ = version('cs336_basics')\n"
FILLED = "def run_silu(in_features):\n    return in_features\n"


def test_the_default_is_this_repository() -> None:
    assert locate(HOME) == HOME / "adapters.py"


@pytest.mark.parametrize("stands_in", ["a1", "a1/tests", "a1/cs336_basics/deep", "a2"])
@pytest.mark.parametrize("sign", [".git", "pyproject.toml"])
def test_without_a_path_the_repository_that_one_stands_in_is_meant(
    stands_in: str, sign: str, repository: Callable[[dict[str, str]], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"a1/tests/adapters.py": FILLED, "a1/cs336_basics/deep/x.py": "", "a2/notes.txt": "", sign: "\n"}
    root = (
        repository({"repository/" + name: text for name, text in files.items()} | {"adapters.py": FILLED})
        / "repository"
    )
    monkeypatch.chdir(root / stands_in)
    assert locate(repository_here()) == root / "a1" / "tests" / "adapters.py"
    assert load().root == root / "a1"


def test_where_no_repository_is_only_the_folder_itself_is_looked_at(
    repository: Callable[[dict[str, str]], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = repository({"adapters.py": FILLED, "inner/x.py": ""})
    monkeypatch.chdir(root / "inner")
    with pytest.raises(CannotJudgeError, match=r"inner holds no adapters file: .* give the path of one$"):
        load()


@pytest.mark.skipif(os.name == "nt", reason="Windows deletes no folder that one stands in")
def test_a_deleted_folder_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(CannotJudgeError, match="the folder that you stand in was deleted"):
        repository_here()


def test_a_repository_may_keep_its_adapters_in_tests(repository: Callable[[dict[str, str]], Path]) -> None:
    root = repository({"tests/adapters.py": FILLED})
    subject = load(root)
    assert subject.path == root / "tests" / "adapters.py"
    assert subject.root == root
    assert sys.modules["tests.adapters"] is subject.module
    assert load(root / "tests" / "adapters.py").root == root


def test_the_only_adapters_of_a_sub_folder_are_found(repository: Callable[[dict[str, str]], Path]) -> None:
    root = repository({"assignment1/tests/adapters.py": FILLED})
    assert load(root).root == root / "assignment1"


def test_adapters_inside_the_package_that_they_import_are_found(repository: Callable[[dict[str, str]], Path]) -> None:
    adapters = "from mine.layers import double\n\ndef run_linear(*x): ...\n\ndef run_silu(x):\n    return double(x)\n"
    files = {
        "pyproject.toml": "[project]\nname = 'mine-of-my-own'\n",
        "src/mine/__init__.py": "import importlib.metadata\n\nimportlib.metadata.version('mine-of-my-own')\n",
        "src/mine/layers.py": "def double(x):\n    return 2 * x\n",
        "src/mine/adapters.py": adapters,
    }
    root = repository(files)
    for path in (root, root / "src/mine/adapters.py"):
        assert load(path).module.run_silu(2) == 4


def test_of_several_the_one_that_defines_run_linear_is_meant(repository: Callable[[dict[str, str]], Path]) -> None:
    other, filled = (
        "def run_dpo_loss(x):\n    return x\n",
        "def run_linear(d_in, d_out, weights, in_features):\n    pass\n",
    )
    root = repository({"a5/tests/adapters.py": other, "a1/tests/adapters.py": filled, "a2/tests/adapters.py": other})
    assert locate(root) == root / "a1" / "tests" / "adapters.py"
    root = repository({"adapters.py": other, "tests/adapters.py": filled})
    assert locate(root) == root / "tests" / "adapters.py"


def test_several_adapters_files_are_listed(repository: Callable[[dict[str, str]], Path]) -> None:
    root = repository({"a1/tests/adapters.py": FILLED, "a2/tests/adapters.py": FILLED})
    with pytest.raises(CannotJudgeError, match=r"several adapters files: a1/tests/adapters\.py, a2/tests/adapters\.py"):
        load(root)


def test_relative_imports_work_in_tests_and_in_any_folder(repository: Callable[[dict[str, str]], Path]) -> None:
    root = repository(
        {
            "tests/common.py": "factor = 3\n",
            "tests/adapters.py": f"from .common import factor\n{FILLED}",
            "glue/mine.py": f"from .help import factor\n{FILLED}",
            "glue/help.py": "factor = 4\n",
        }
    )
    assert load(root).module.factor == 3
    assert load(root / "glue" / "mine.py").module.factor == 4


def test_the_subjects_own_package_wins_over_ours(repository: Callable[[dict[str, str]], Path]) -> None:
    import cs336_basics

    assert Path(cs336_basics.__file__).is_relative_to(HOME)
    root = repository(
        {
            "cs336_basics/__init__.py": READS_ITS_VERSION,
            "cs336_basics/model.py": "name = 'theirs'\n",
            "tests/adapters.py": f"from cs336_basics.model import name\n{FILLED}",
        }
    )
    subject = load(root)
    assert subject.module.name == "theirs"
    assert "not in the subject's own folder" not in provenance(subject)


def test_a_package_that_is_installed_elsewhere_is_said(repository: Callable[[dict[str, str]], Path]) -> None:
    root = repository({"mine/adapters.py": f"import cs336_basics\n{FILLED}", "installed/cs336_basics/__init__.py": ""})
    sys.path.append(str(root / "installed"))
    assert "which is not in the subject's own folder" in provenance(load(root / "mine"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone of the harness, on the path and imported from."""
    home = tmp_path / "clone"
    for name in ("cs336_basics/__init__.py", "tests/helper.py", "contrasts/__init__.py", "submissions/ann/x.py"):
        (home / name).parent.mkdir(parents=True)
        (home / name).touch()
    monkeypatch.setattr(loading, "HOME", home)
    _forget(["cs336_basics", "contrasts"])
    sys.path[:] = [str(home), str(home / "tests"), *(entry for entry in sys.path if Path(entry).resolve() != HOME)]
    for name in ("cs336_basics", "contrasts", "helper"):
        importlib.import_module(name)
    return home


def _forget(names: list[str]) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in names]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["cs336_basics", "contrasts"])
@pytest.mark.parametrize("place", ["clone/submissions/ann", "elsewhere"])
def test_nothing_of_this_repository_is_judged_in_the_place_of_what_a_subject_lacks(
    name: str, place: str, home: Path, tmp_path: Path
) -> None:
    adapters = tmp_path / place / "adapters.py"
    adapters.parent.mkdir(parents=True, exist_ok=True)
    adapters.write_text(f"import {name}\n{FILLED}")
    with pytest.raises(CannotJudgeError, match=rf"adapters\.py:1 imports {name}, ") as caught:
        load(adapters)
    assert (f"{adapters.parent} holds no such package" in str(caught.value)) == (name == "cs336_basics")
    adapters.write_text(f"def run_silu(x):\n    import {name}\n")
    with pytest.raises(CheckFailure, match=f"No module named '{name}'"):
        load(adapters).invoke("run_silu", in_features=torch.ones(1))
    assert not any(Path(entry).is_relative_to(home) for entry in sys.path if not entry.startswith(str(home / "sub")))


def test_the_clone_s_own_adapters_have_its_package(home: Path) -> None:
    (home / "adapters.py").write_text(f"import cs336_basics\n{FILLED}")
    assert load(home).module.cs336_basics.__file__ == str(home / "cs336_basics" / "__init__.py")


def test_the_version_of_a_package_that_is_not_installed_answers(repository: Callable[[dict[str, str]], Path]) -> None:
    read = "import importlib.metadata\nversion = importlib.metadata.version({!r})\n"
    root = repository(
        {
            "my_llm/__init__.py": read.format("my-llm"),
            "pyproject.toml": "[project]\nname = 'my-llm'\nversion = '3.1'\n",
            "tests/adapters.py": f"from my_llm import version\n{FILLED}",
        }
    )
    assert load(root).module.version == "3.1"
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("somebody-elses")


def test_bare_imports_of_neighbours_inside_the_package_work(repository: Callable[[dict[str, str]], Path]) -> None:
    root = repository(
        {
            "cs336_basics/my_layers.py": "depth = 5\n",
            "cs336_basics/my_model.py": "from my_layers import depth\n",
            "tests/adapters.py": f"from cs336_basics.my_model import depth\n{FILLED}",
        }
    )
    assert load(root).module.depth == 5


def test_an_import_at_call_time_still_finds_the_subjects_own(repository: Callable[[dict[str, str]], Path]) -> None:
    root = repository(
        {
            "cs336_basics/late.py": "def f(x):\n    import os\n    return os.getcwd()\n",
            "adapters.py": "def run_silu(x):\n    from cs336_basics.late import f\n    return f(x)\n",
        }
    )
    before = Path.cwd()
    assert load(root).invoke("run_silu", in_features=1) == str(root)
    assert Path.cwd() == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def run_silu(:\n", r"adapters\.py:1: SyntaxError: .*: def run_silu\(:"),
        ("x = 1\0\n", r"adapters\.py: SyntaxError: source code string cannot contain null bytes$"),
        ("import no_such_library\n", r"adapters\.py:1 imports no_such_library, which is not installed here"),
        ("import cs336_basics.missing\n", r"adapters\.py:1: No module named 'cs336_basics\.missing'"),
        ("from os import no_such_name\n", r"adapters\.py raised ImportError: cannot import name 'no_such_name'"),
        ("1 / 0\n", r"importing .*adapters\.py raised ZeroDivisionError: division by zero \(at .*adapters\.py:1\)"),
        ("raise SystemExit(3)\n", r"importing .*adapters\.py raised SystemExit: 3"),
        ("x = 1\n", r"adapters\.py defines none of the entry points"),
    ],
)
def test_a_module_that_does_not_load_is_one_clear_line(
    text: str, message: str, repository: Callable[[dict[str, str]], Path]
) -> None:
    root = repository({"adapters.py": text, "cs336_basics/__init__.py": ""})
    with pytest.raises(CannotJudgeError, match=message) as caught:
        load(root)
    assert "\n" not in str(caught.value)


def test_whoever_has_a_notebook_alone_is_told_what_judges_it(tmp_path: Path) -> None:
    notebook = tmp_path / "model.ipynb"
    notebook.write_text("{}")
    for path in (tmp_path, notebook):
        with pytest.raises(
            CannotJudgeError, match=r"in a notebook, .* `judge\(globals\(\)\)` judge what stands above$"
        ):
            load(path)


def test_a_path_that_holds_nothing_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(CannotJudgeError, match=r"no such file or directory: .*nowhere"):
        load(tmp_path / "nowhere")
    with pytest.raises(CannotJudgeError, match=r"holds no adapters file: neither adapters\.py nor tests/adapters\.py"):
        load(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(CannotJudgeError, match="is no Python file"):
        load(tmp_path / "notes.txt")


def test_a_traceback_is_trimmed_to_the_subjects_files(repository: Callable[[dict[str, str]], Path]) -> None:
    root = repository(
        {
            "cs336_basics/deep.py": "def f(x):\n    return x.reshape(7)\n",
            "adapters.py": "from cs336_basics.deep import f\ndef run_silu(in_features):\n    return f(in_features)\n",
        }
    )
    with pytest.raises(CheckFailure) as caught:
        load(root).invoke("run_silu", in_features=torch.ones(3))
    assert caught.value.evidence.details == [
        "adapters.py:3 in run_silu: return f(in_features)",
        f"{os.path.join('cs336_basics', 'deep.py')}:2 in f: return x.reshape(7)",
        "it was given in_features (3,)",
    ]


def test_a_closed_folder_beside_the_adapters_is_passed_by(
    repository: Callable[[dict[str, str]], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = repository({"adapters.py": FILLED, "closed/x.py": ""})
    is_file, iterdir = Path.is_file, Path.iterdir

    def refuse(path: Path) -> None:
        if "closed" in path.parts:
            raise PermissionError(path)

    monkeypatch.setattr(Path, "is_file", lambda path: refuse(path) or is_file(path))
    monkeypatch.setattr(Path, "iterdir", lambda path: refuse(path) or iterdir(path))
    monkeypatch.setattr(os, "access", lambda path, mode: "closed" not in Path(path).parts)
    assert load(root).has("run_silu")


@pytest.mark.parametrize("settings", [b"\xff\xfe", b"project = 3", b"[project"])
def test_settings_that_cannot_be_read_are_passed_by(
    settings: bytes, repository: Callable[[dict[str, str]], Path]
) -> None:
    root = repository({"adapters.py": FILLED})
    (root / "pyproject.toml").write_bytes(settings)
    assert load(root).has("run_silu")


def test_what_an_import_sets_for_the_whole_process_is_put_back(
    repository: Callable[[dict[str, str]], Path],
) -> None:
    changes = "torch.set_default_device('meta')\ntorch.set_default_dtype(torch.float64)\n"
    load(repository({"adapters.py": f"import torch\n{changes}{FILLED}"}))
    assert torch.empty(1).device.type == "cpu"
    assert torch.empty(1).dtype == torch.float32
