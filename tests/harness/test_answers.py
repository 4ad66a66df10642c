"""The oracle's answers from run to run: read where they were kept, and never for who must not trust a file."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cs336_harness.isolation import answering
from cs336_harness.reference.answers import answers_kept, from_run_to_run
from cs336_harness.reference.hidden_inputs import hidden_by, inputs_of
from cs336_harness.reference.kept import Kept
from cs336_harness.reference.precision import judged_in

Ask = Callable[[int], tuple[dict[str, Tensor], float]]


def asked_by(calls: list[int]) -> Ask:
    """A function that notes each call."""

    @from_run_to_run
    def answer(size: int) -> tuple[dict[str, Tensor], float]:
        calls.append(size)
        return {"x": torch.arange(size, dtype=torch.float64) / 3}, 0.1 * size

    return answer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "oracle-1.safetensors"


def first_run(path: Path) -> None:
    file = Kept(path)
    with answers_kept(file, new=True):
        asked_by([])(5)
    file.save()


def test_the_next_run_reads_the_same_numbers(path: Path) -> None:
    first_run(path)
    calls: list[int] = []
    with answers_kept(Kept(path)):
        weights, noise = asked_by(calls)(5)
        assert asked_by(calls)(6)[1] == 0.1 * 6
    assert calls == [6]
    assert torch.equal(weights["x"], torch.arange(5, dtype=torch.float64) / 3)
    assert noise == 0.1 * 5


def test_nothing_is_read_outside_or_of_hidden_inputs_or_in_another_dtype(path: Path) -> None:
    first_run(path)
    calls: list[int] = []
    asked_by(calls)(5)
    file = Kept(path)
    with answers_kept(file, new=True):
        with hidden_by("secret"), inputs_of("a check"):
            asked_by(calls)(5)
        with judged_in("float64"):
            asked_by(calls)(5)
    assert calls == [5, 5, 5]
    assert file.new == 0


def test_who_has_a_subject_beside_it_writes_nothing(path: Path) -> None:
    file = Kept(path)
    with answers_kept(file):
        asked_by([])(5)
    assert file.new == 0


def test_one_process_is_started_to_make_the_file_and_none_where_it_cannot_be_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr(answering.subprocess, "Popen", lambda command, **how: started.append(command))
    monkeypatch.setattr(answering, "kept", lambda kind: Kept(path.parent / "file" / path.name))
    (path.parent / "file").touch()
    answering.keep_answers()
    assert not started
    monkeypatch.setattr(answering, "kept", lambda kind: Kept(path))
    answering.keep_answers()
    answering.keep_answers()
    assert len(started) == 1
    path.with_name(f"unfinished-{path.stem}").unlink()
    path.touch()
    answering.keep_answers()
    assert len(started) == 1


def test_one_that_was_ended_while_it_made_the_file_is_followed_by_another(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr(answering.subprocess, "Popen", lambda command, **how: started.append(command))
    monkeypatch.setattr(answering, "kept", lambda kind: Kept(path))
    answering.keep_answers()
    os.utime(path.with_name(f"unfinished-{path.stem}"), (0, 0))
    answering.keep_answers()
    assert len(started) == 2


def test_a_number_that_was_damaged_is_asked_for_again(path: Path) -> None:
    first_run(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    calls: list[int] = []
    with answers_kept(Kept(path)):
        weights, _ = asked_by(calls)(5)
    assert calls == [5]
    assert torch.equal(weights["x"], torch.arange(5, dtype=torch.float64) / 3)


def test_two_judges_of_one_run_both_leave_what_they_asked(path: Path) -> None:
    one, other = Kept(path), Kept(path)
    for file, size in ((one, 5), (other, 6)):
        with answers_kept(file, new=True):
            asked_by([])(size)
    one.save()
    other.save()
    calls: list[int] = []
    with answers_kept(Kept(path)):
        asked_by(calls)(5)
        asked_by(calls)(6)
    assert calls == []
