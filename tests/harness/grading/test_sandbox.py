"""What shuts a submission in holds layer by layer, and without it nothing is graded."""

import dataclasses
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from attacks import ASKED, ATTACKS, RIGHT, Attack

from cs336_harness.grading import batch, intake, judging, processes, sandbox, syscalls
from cs336_harness.grading.batch import Settings
from cs336_harness.grading.judging import Job, judge
from cs336_harness.grading.processes import ForkServer
from cs336_harness.subject.failures import CannotJudgeError

WITHOUT_NAMESPACES = sandbox.Layers(namespaces=False, landlock=True, seccomp=True)
AGAINST_ALL = [attack for attack in ATTACKS if attack.kind in ("hurt", "spy") and attack.wanted == (("judged", True),)]


@pytest.fixture(scope="module")
def landlocked() -> Generator[ForkServer]:
    """A fork server as in a container, which may make no namespaces."""
    if sandbox.landlock_version() < 1:
        pytest.skip("this kernel has no Landlock")
    with ForkServer(unsafe=True) as server:
        server.layers = WITHOUT_NAMESPACES
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("attack", AGAINST_ALL, ids=lambda attack: f"{attack.kind}: {attack.name}")
def test_landlock_and_the_filter_hold_alone(
    attack: Attack, landlocked: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "_server", lambda unsafe: landlocked)
    attack.write(tmp_path / "attack")
    record = judge(Job("x", str(tmp_path / "attack"), None, 10, 60, checks=ASKED[:4], diagnose=False))
    failing = {each["id"]: each["message"] for each in record["checks"] if each["outcome"] != "passed"}
    assert (record["state"], failing) == ("judged", {}), record["reason"]


MANY_FILES = """
import os
for number in range(20_000):
    open(os.path.join(os.environ["TMPDIR"], str(number)), "w").close()
"""


def test_a_scratch_folder_in_memory_holds_so_many_files(tmp_path: Path) -> None:
    with ForkServer(unsafe=True) as server:
        if not server.layers.namespaces:
            pytest.skip("no namespaces here: the folder is one on disk, bounded by time alone")
        (tmp_path / "adapters.py").write_text(MANY_FILES + RIGHT)
        with pytest.raises(CannotJudgeError, match="No space left"):
            processes.open_remote(server, tmp_path, seconds=30)


def test_a_layer_is_enough_only_with_the_filter() -> None:
    there = {
        layers: layers.enough
        for layers in (sandbox.Layers(a, b, c) for a in (True, False) for b in (True, False) for c in (True, False))
    }
    assert [str(layers) for layers, enough in there.items() if enough] == [
        "namespaces, landlock, seccomp",
        "namespaces, seccomp",
        "landlock, seccomp",
    ]


def test_without_a_sandbox_nothing_is_graded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "tried", lambda reach: sandbox.NOTHING)
    with pytest.raises(CannotJudgeError, match="--unsafe") as error:
        processes.require_sandbox()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("machine", sorted(syscalls.ARCHITECTURES))
def test_the_filter_is_whole_on_every_machine(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls.platform, "machine", lambda: machine)
    steps = syscalls.program()
    assert len(steps) % 8 == 0
    assert len(steps) // 8 < 4096
    column, _ = syscalls.ARCHITECTURES[machine]
    numbers = [each[column] for each in syscalls.NUMBERS.values() if each[column] is not None]
    assert len(numbers) == len(set(numbers)) > 60


def fragile(job: Job) -> dict:
    """A judge that ends its own process at the first sight of ann and at every sight of eve, as out of memory does."""
    folder = Path(job.path).parent
    seen = folder.parent / f"{job.name} was seen"
    if folder.name == "class" and (job.name == "eve" or (job.name == "ann" and not seen.exists())):
        seen.touch()
        os._exit(9)
    return {"name": job.name, "state": "judged", "reason": None, "checks": [], "diagnosis": [], "writeup": None}


def test_who_ends_the_checker_costs_nobody_else_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("ann", "bob", "cid", "dan", "eve", "fay", "gus")
    for name in names:
        (tmp_path / "class" / name).mkdir(parents=True)
        (tmp_path / "class" / name / "adapters.py").write_text(RIGHT)
    monkeypatch.setattr(batch, "judge", fragile)
    found = intake.submissions(tmp_path / "class")
    records = batch.grade(found, tmp_path / "out", Settings(jobs=2), lambda name, record: None)
    assert {record["name"]: record["state"] for record in records} == {
        name: "crashed" if name == "eve" else "judged" for name in names
    }
    assert (tmp_path / "ann was seen").exists()


def test_job_and_record_travel_as_plain_values() -> None:
    job = Job("x", "/nowhere", "secret")
    assert all(type(value) in (str, float, bool, tuple, type(None)) for value in dataclasses.asdict(job).values())
