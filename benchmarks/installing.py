"""Every way to install the checker, tried in somebody else's repository: from ``cd`` into it to the verdict.

    uv run python benchmarks/installing.py [--ways uvx pip …] [--torch 2.13.0]

The wheel is built from this clone. The foreign repository is made from the decoder here: its own ``cs336_basics``, its
``tests/adapters.py``, settings of its own, and nothing of the checker. *Cold* is the first verdict, with a fault
planted in that repository: everything is installed, from uv's or pip's cache where it has been downloaded before.
*Warm* is the second, with the fault mended, also as a multiple of what ``import torch`` takes at that moment. A way
must find the fault, and then nothing. Exits with 1 when one does not.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
FAULT = ("cs336_basics/layers.py", " * self.weight).to(", ").to(")
FAILS = "components.rmsnorm"

BIN = "Scripts" if os.name == "nt" else "bin"


class Way:
    """One way to install: commands that do so once, and the one that judges, both run in the foreign repository."""

    def __init__(self, tools: Path, wheel: Path, torch: str, repository: Path) -> None:
        self.tools, self.wheel, self.torch, self.repository = tools, wheel, torch, repository

    def install(self) -> list[list[str]]:
        return []

    def judge(self) -> list[str]:
        raise NotImplementedError


class UvRunWith(Way):
    """uv run --with WHEEL cs336 check"""

    def judge(self) -> list[str]:
        return ["uv", "run", "--with", str(self.wheel), "cs336", "check"]


class UvRunWithFolder(Way):
    """uv run --with CLONE/harness cs336 check"""

    def judge(self) -> list[str]:
        return ["uv", "run", "--with", str(HOME / "harness"), "cs336", "check"]


class UvRunWithGit(Way):
    """uv run --with "cs336-harness @ git+CLONE#subdirectory=harness" cs336 check"""

    def judge(self) -> list[str]:
        return ["uv", "run", "--with", f"cs336-harness @ git+{HOME.as_uri()}#subdirectory=harness", "cs336", "check"]


class UvAddDev(Way):
    """uv add --dev WHEEL; uv run cs336 check"""

    def install(self) -> list[list[str]]:
        return [["uv", "add", "--quiet", "--dev", str(self.wheel)]]

    def judge(self) -> list[str]:
        return ["uv", "run", "cs336", "check"]


class UvAddDevPytest(UvAddDev):
    """uv add --dev WHEEL; uv run pytest --pyargs cs336_harness.judging"""

    def judge(self) -> list[str]:
        return ["uv", "run", "pytest", "-q", "--pyargs", "cs336_harness.judging"]


class Uvx(Way):
    """uvx --from WHEEL cs336 check"""

    def judge(self) -> list[str]:
        return ["uvx", "--with", self.torch, "--from", str(self.wheel), "cs336", "check"]


class Pip(Way):
    """python -m venv; pip install WHEEL; cs336 check"""

    def install(self) -> list[list[str]]:
        venv = self.tools / "venv"
        pip = [str(venv / BIN / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        return [[sys.executable, "-m", "venv", str(venv)], [*pip, self.torch, str(self.wheel)]]

    def judge(self) -> list[str]:
        return [str(self.tools / "venv" / BIN / "cs336"), "check"]


class Pipx(Way):
    """pipx install WHEEL; cs336 check"""

    def install(self) -> list[list[str]]:
        pipx = ["uvx", "--quiet", "pipx"]
        return [[*pipx, "install", "--quiet", str(self.wheel), "--pip-args", self.torch]]

    def judge(self) -> list[str]:
        return [str(self.tools / "pipx-bin" / "cs336"), "check"]


def blocks_of_ci_page() -> list[str]:
    """The workflow and the hook of docs/CI.md."""
    return re.findall(r"```yaml\n(.*?)```", (HOME / "docs" / "CI.md").read_text(encoding="utf-8"), re.DOTALL)


class GitHubWorkflow(Way):
    """the command of the GitHub workflow in docs/CI.md"""

    def judge(self) -> list[str]:
        (command,) = re.findall(r"- run: (.*)", blocks_of_ci_page()[0])
        return ["bash", "-ec", f'HARNESS="{self.wheel}"; {command}']


class PreCommit(UvAddDev):
    """uv add --dev WHEEL; pre-commit run, with the hook in docs/CI.md"""

    def install(self) -> list[list[str]]:
        (self.repository / ".pre-commit-config.yaml").write_text(blocks_of_ci_page()[1], encoding="utf-8")
        return [*super().install(), ["git", "add", "--all"]]

    def judge(self) -> list[str]:
        return ["uvx", "--quiet", "pre-commit", "run", "--all-files", "--verbose"]


class Clone(Way):
    """git clone; cd CLONE; uv run cs336 check PATH"""

    def install(self) -> list[list[str]]:
        return [["git", "clone", "--quiet", str(HOME), str(self.tools / "clone")]]

    def judge(self) -> list[str]:
        return ["uv", "run", "--quiet", "--project", str(self.tools / "clone"), "cs336", "check", str(self.repository)]


WAYS: dict[str, type[Way]] = {
    "uv-run-with": UvRunWith,
    "uv-run-with-folder": UvRunWithFolder,
    "uv-run-with-git": UvRunWithGit,
    "uv-add": UvAddDev,
    "uv-add-pytest": UvAddDevPytest,
    "uvx": Uvx,
    "pip": Pip,
    "pipx": Pipx,
    "github-workflow": GitHubWorkflow,
    "pre-commit": PreCommit,
    "clone": Clone,
}


def make_repository(folder: Path, torch: str) -> None:
    """A CS336 repository with the decoder here as its own, and git at its root."""
    shutil.copytree(HOME / "cs336_basics", folder / "cs336_basics", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests").mkdir()
    shutil.copy(HOME / "adapters.py", folder / "tests")
    (folder / "tests" / "__init__.py").touch()
    lines = ('name = "their-decoder"', 'version = "0"', 'requires-python = ">=3.11"')
    needed = f'dependencies = ["jaxtyping", "numpy", "safetensors", "{torch}"]'
    (folder / "pyproject.toml").write_text("\n".join(("[project]", *lines, needed)) + "\n")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)


def plant(repository: Path, mended: bool) -> None:
    """Writes the fault into the repository, or takes it out again."""
    name, right, wrong = FAULT
    text = (HOME / name).read_text(encoding="utf-8")
    if right not in text:
        raise SystemExit(f"{name} does not contain {right!r} any more; choose another fault")
    (repository / name).write_text(text if mended else text.replace(right, wrong), encoding="utf-8")


def try_way(way: type[Way], wheel: Path, torch: str) -> list[str]:
    """A row of the table: seconds cold, seconds warm, those over ``import torch``, and what was wrong, if anything."""
    with tempfile.TemporaryDirectory(prefix="cs336-installing-") as name:
        repository, tools = Path(name) / "theirs", Path(name) / "tools"
        make_repository(repository, torch)
        tools.mkdir()
        own = {
            "PIPX_HOME": str(tools / "pipx"),
            "PIPX_BIN_DIR": str(tools / "pipx-bin"),
            "UV_TOOL_DIR": str(tools / "uv"),
        }
        made = way(tools, wheel, torch, repository)
        plant(repository, mended=False)
        started = time.perf_counter()
        for command in made.install():
            installed = run(command, repository, own)
            if installed.returncode:
                return ["", "", "", f"{' '.join(command[:4])} … failed: {last_line(installed)}"]
        broken = run(made.judge(), repository, own)
        cold = time.perf_counter() - started
        plant(repository, mended=True)
        started = time.perf_counter()
        right = run(made.judge(), repository, own)
        warm = time.perf_counter() - started
        yardstick = [sys.executable, "-c", "import torch"]
        started = time.perf_counter()
        run(yardstick, repository, own)
        imported = time.perf_counter() - started
    seconds = [f"{cold:.1f}", f"{warm:.1f}", f"{warm / imported:.1f}"]
    if broken.returncode != 1 or FAILS.rpartition(".")[2] not in broken.stdout:
        return [*seconds, f"the fault is not found: status {broken.returncode}, {last_line(broken)}"]
    if right.returncode != 0:
        return [*seconds, f"the mended repository is not right: status {right.returncode}, {last_line(right)}"]
    return [*seconds, "both verdicts right"]


def last_line(ran: subprocess.CompletedProcess[str]) -> str:
    return ((ran.stderr.strip() or ran.stdout.strip()).splitlines() or ["no word"])[-1]


def run(command: list[str], folder: Path, own: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a command as a person would type it: nothing of the environment that runs this script is passed on."""
    hidden = {"VIRTUAL_ENV", "PYTHONPATH", "PYTEST_ADDOPTS", "UV_PROJECT", "UV_RUN_RECURSION_DEPTH"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden} | own
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8", check=False
    )


def build_wheel(folder: Path) -> Path:
    """The wheel, built from the source distribution that is built from this clone."""
    subprocess.run(["uv", "build", "--quiet", "--package", "cs336-harness", "-o", str(folder)], cwd=HOME, check=True)
    return next(folder.glob("*.whl"))


def locked(package: str) -> str:
    """The version of a package in uv.lock."""
    packages = tomllib.loads((HOME / "uv.lock").read_text(encoding="utf-8"))["package"]
    return next(entry["version"] for entry in packages if entry["name"] == package)


def main() -> int:
    """Tries the ways and prints a table in Markdown, a row for each; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="only these")
    parser.add_argument("--torch", metavar="VERSION", default=locked("torch"), help="the PyTorch to install")
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    options = parser.parse_args()
    torch = f"torch=={options.torch}"
    table = ["| way | cold, s | warm, s | warm, over `import torch` | verdicts |", "|---|---|---|---|---|"]
    rows = {}
    with tempfile.TemporaryDirectory(prefix="cs336-wheel-") as folder:
        wheel = build_wheel(Path(folder))
        for name in options.ways:
            rows[name] = try_way(WAYS[name], wheel, torch)
            table.append(f"| {WAYS[name].__doc__} | {' | '.join(rows[name])} |")
            print(f"{name}: {', '.join(rows[name])}", file=sys.stderr, flush=True)
    print("\n".join(table))
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return 0 if all(row[-1] == "both verdicts right" for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
