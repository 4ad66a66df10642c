"""Fixtures are complete, reproducible and small; a damaged one is named, not compared against."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from cs336_harness.checks import all_checks
from cs336_harness.reference import recipes, snapshots
from cs336_harness.reference.snapshots import SnapshotError


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own in place of ``fixtures/``."""
    monkeypatch.setattr(snapshots, "FIXTURES", tmp_path)
    return tmp_path


def test_every_recipe_has_a_check_and_every_snapshot_check_a_recipe() -> None:
    assert {check.snapshot for check in all_checks().values() if check.snapshot} == set(recipes.RECIPES)


def test_fixtures_are_small_and_all_used() -> None:
    assert sum(path.stat().st_size for path in snapshots.FIXTURES.iterdir()) < 1_000_000
    assert recipes.unused() == []


@pytest.mark.parametrize("name", ["rope", "transformer_lm_one_token"])
def test_written_again_a_snapshot_is_the_same(name: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipes.update(name)
    fresh = snapshots.read(name)
    monkeypatch.undo()
    committed = snapshots.read(name)
    assert fresh.entry_point == committed.entry_point
    assert fresh.noise == pytest.approx(committed.noise, rel=1e-6)
    assert torch.allclose(fresh.expected, committed.expected, rtol=0, atol=1e-12)


def test_a_missing_snapshot_says_how_to_write_it(elsewhere: Path) -> None:
    with pytest.raises(
        SnapshotError, match=r"rope\.safetensors is missing; write it with `uv run pytest --snapshot-update`"
    ):
        snapshots.read("rope")


def test_an_edited_snapshot_is_named(elsewhere: Path) -> None:
    recipes.update("rope")
    path = snapshots.path_of("rope")
    with safe_open(path, "pt") as file:
        metadata, tensors = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    tensors["expected"][0, 0, 0] += 1e-9
    save_file(tensors, path, metadata)
    with pytest.raises(SnapshotError, match=r"rope\.safetensors does not match its own digest"):
        snapshots.read("rope")


def test_edited_metadata_is_named(elsewhere: Path) -> None:
    recipes.update("rope")
    path = snapshots.path_of("rope")
    with safe_open(path, "pt") as file:
        metadata, tensors = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    save_file(tensors, path, {**metadata, "noise": "1.0"})
    with pytest.raises(SnapshotError, match="does not match its own digest"):
        snapshots.read("rope")


def test_a_truncated_snapshot_is_named(elsewhere: Path) -> None:
    recipes.update("rope")
    path = snapshots.path_of("rope")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SnapshotError, match=r"rope\.safetensors is damaged"):
        snapshots.read("rope")


def test_a_file_that_nothing_makes_is_reported(elsewhere: Path) -> None:
    (elsewhere / "left_over.safetensors").write_bytes(b"")
    assert recipes.unused() == ["left_over"]
