"""What is kept from run to run: found again, ignored when damaged, and never a reason to fail."""

import os
from pathlib import Path

import pytest
import torch

from cs336_harness.reference import kept as module
from cs336_harness.reference.kept import Kept, cache_directory, version


def test_what_is_saved_is_found_again_by_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "expected-1.safetensors"
    first = Kept(path)
    first.add("numbers", torch.tensor([1.0, torch.inf], dtype=torch.float64))
    first.add("fact", ["raised", "because"])
    first.save(least=1)
    again = Kept(path)
    numbers = again.get("numbers")
    assert isinstance(numbers, torch.Tensor)
    assert numbers.tolist() == [1.0, torch.inf]
    assert again.get("fact") == ["raised", "because"]
    assert again.get("other") is None
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_files_of_other_versions_go(tmp_path: Path) -> None:
    old = tmp_path / "expected-0.safetensors"
    old.write_bytes(b"old")
    new = Kept(tmp_path / "expected-1.safetensors")
    new.add("fact", ["a", ""])
    new.save(least=1)
    assert not old.exists()


@pytest.mark.parametrize("content", [b"", b"not safetensors at all", b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "])
def test_a_damaged_file_is_ignored_and_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "expected-1.safetensors"
    path.write_bytes(content)
    damaged = Kept(path)
    assert damaged.get("fact") is None
    damaged.add("fact", ["a", ""])
    damaged.save(least=1)
    assert Kept(path).get("fact") == ["a", ""]


def test_a_directory_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    unwritable = Kept(tmp_path / "file" / "expected-1.safetensors")
    unwritable.add("fact", ["a", ""])
    unwritable.save(least=1)
    assert unwritable.get("fact") == ["a", ""]


def test_another_version_of_the_harness_reads_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.py").write_text("one")
    monkeypatch.setattr(module, "PACKAGE", tmp_path)
    before = version()
    (tmp_path / "one.py").write_text("two")
    assert version() != before


def test_the_users_own_cache_directory_is_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "cs336_harness"


def test_what_a_process_left_that_was_ended_while_writing_goes(tmp_path: Path) -> None:
    path = tmp_path / "expected-now.safetensors"
    left, fresh = tmp_path / "unfinished-a", tmp_path / "unfinished-b"
    for file in (left, fresh):
        file.touch()
    os.utime(left, (0, 0))
    kept = Kept(path)
    kept.add("a", torch.ones(2))
    kept.save(1)
    assert not left.exists()
    assert fresh.exists()


def test_saving_keeps_what_was_never_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "expected-now.safetensors"
    first = Kept(path)
    first.add("a", torch.ones(2))
    first.save(1)
    second = Kept(path)
    second.add("b", torch.zeros(2))
    second.save(1)
    third = Kept(path)
    assert [third.get(name) is not None for name in ("a", "b")] == [True, True]


def test_a_file_that_comes_later_is_found(tmp_path: Path) -> None:
    path = tmp_path / "expected-now.safetensors"
    early, writer = Kept(path), Kept(path)
    assert early.get("a") is None
    writer.add("a", torch.ones(2))
    writer.save()
    assert early.get("a") is not None
