"""Nothing that a submission does forges a grade, hurts another one, hangs the batch or stays behind."""

import json
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from attacks import ASKED, ATTACKS, RIGHT, Attack

from cs336_harness.grading import sandbox, written
from cs336_harness.grading.judging import Job, _server, judge

INNOCENT = ("components.linear", "tying.one_parameter")
EVERY = 8
"""Every so manieth attack is tried in the quick run; CI tries all."""

SECONDS, ALL_SECONDS = 3.0, 60.0


def job(path: Path, checks: tuple[str, ...] = ASKED) -> Job:
    return Job("student", str(path), "a secret", SECONDS, ALL_SECONDS, checks=checks, diagnose=False)


@pytest.fixture(scope="module", autouse=True)
def _shut_in(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    if not sandbox.tried(sandbox.Reach(("/usr",), (), str(tmp_path_factory.mktemp("scratch")))).enough:
        pytest.skip("submissions cannot be shut in here")
    before, tempfile.tempdir = tempfile.tempdir, str(tmp_path_factory.mktemp("tmp"))  # nobody else's files are there
    yield
    server = _server(False)
    server.close()
    _server.cache_clear()
    assert not os.path.exists(f"/proc/{server._process.pid}")
    assert os.listdir(tempfile.tempdir) == []
    tempfile.tempdir = before


@pytest.fixture(scope="module")
def innocent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("innocent") / "innocent"
    folder.mkdir()
    (folder / "adapters.py").write_text(RIGHT)
    return folder


def told(record: dict[str, Any]) -> str:
    """A record but for the time it took."""
    checks = [{key: value for key, value in each.items() if key != "seconds"} for each in record["checks"]]
    return json.dumps({**record, "seconds": 0, "checks": checks}, sort_keys=True)


@pytest.fixture(scope="module")
def alone(innocent: Path) -> str:
    return told(judge(job(innocent, INNOCENT)))


def left_behind() -> set[str]:
    places = (tempfile.gettempdir(), "/dev/shm", "/usr/lib")
    return {f"{place}/{name}" for place in places for name in os.listdir(place) if "cs336" in name}


def descendants() -> set[int]:
    """Processes that come from this one, its fork server aside."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(entry)] = int(fields[1])
    found = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid(), _server(False)._process.pid}


def marked(attack: Attack, number: int) -> Any:
    marks = [] if number % EVERY == 0 else [pytest.mark.slow]
    return pytest.param(attack, id=f"{attack.kind}: {attack.name}", marks=marks)


def passed(record: dict[str, Any]) -> bool:
    return record["state"] == "judged" and all(each["outcome"] == "passed" for each in record["checks"])


@pytest.mark.parametrize("attack", [marked(attack, number) for number, attack in enumerate(ATTACKS)])
def test_an_attack_gets_its_record_and_changes_nobody_else_s(
    attack: Attack, tmp_path: Path, innocent: Path, alone: str
) -> None:
    before, running = left_behind(), descendants()
    path = tmp_path / "attack"
    attack.write(path)
    record = judge(job(path if path.exists() else path.with_suffix(".zip")))
    text = json.dumps(record, allow_nan=False)
    assert (record["state"], passed(record)) in attack.wanted, (record["reason"], failing(record))
    assert attack.reason in (record["reason"] or "")
    assert "\x1b" not in json.loads(text)["reason"] if record["reason"] else True
    assert record["seconds"] < ALL_SECONDS + 3 * SECONDS
    assert left_behind() == before
    assert descendants() == running
    assert told(judge(job(innocent, INNOCENT))) == alone


def failing(record: dict[str, Any]) -> dict[str, str]:
    return {each["id"]: each["message"] for each in record["checks"] if each["outcome"] != "passed"}


def test_a_written_answer_that_takes_for_ever_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "WRITEUP.md").write_text("[" * 50_000 + "*a " * 50_000)
    told = written.judged(tmp_path, seconds=0.5)
    assert told is not None
    assert told["reason"] == written.TOO_LONG


def test_the_bank_is_large_and_of_every_kind() -> None:
    kinds = [attack.kind for attack in ATTACKS]
    assert len(kinds) >= 80
    assert {kind: kinds.count(kind) >= 7 for kind in set(kinds)} == dict.fromkeys(
        ("forge", "hurt", "hang", "spy", "flood", "accident"), True
    )
    assert len({(attack.kind, attack.name) for attack in ATTACKS}) == len(ATTACKS)
