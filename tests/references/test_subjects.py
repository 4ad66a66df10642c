"""Decoders that nobody here wrote pass the whole suite, unchanged: a failure here is a false alarm of the harness."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="needs transformers: uv run --group reference pytest -m reference")
pytest.importorskip("litgpt", reason="needs litgpt: uv run --group reference pytest -m reference")
pytest.importorskip("x_transformers", reason="needs x-transformers: uv run --group reference pytest -m reference")

from cs336_harness.checks import all_checks, find
from cs336_harness.subject.loading import load
from cs336_harness.verdict.suite import Suite

pytestmark = pytest.mark.reference

HERE = Path(__file__).resolve().parent
IMPLEMENTATIONS = {
    "huggingface_llama": (),
    "litgpt_gpt": ("run_forward_flops",),
    "x_transformers_decoder": ("run_forward_flops",),
}
"""Each adapters file of this folder, and the entry points for which its library has nothing to offer."""


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_the_whole_suite_passes(name: str, record_property: Any) -> None:
    suite = Suite(load(HERE / f"{name}.py"), diagnose=False)
    results = list(suite.run(all_checks().values()))
    outcomes = Counter(result.outcome for result in results)
    worst = max((result.error_in_noise or 0.0, result.check.id) for result in results if result.outcome == "passed")
    counted = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    record_property("figure", f"{counted}; largest error {worst[0]:.2f} noise ({worst[1]})")
    alarms = [f"{result.check.id}: {result.message}" for result in results if result.stops_exit_zero]
    assert not alarms, "\n".join(alarms)
    skipped = [result for result in results if result.outcome == "skipped" and not result.check.advisory]
    # Their models do grouped queries, which the built ones show; the function here takes no ``num_kv_heads``.
    asked = [item.check for item in skipped if item.check.task != "grouped_query_attention"]
    unexpected = [check.id for check in asked if not set(check.needs) & set(IMPLEMENTATIONS[name])]
    assert not unexpected


def test_a_cache_of_fixed_size_passes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import StaticCache

    subject = load(HERE / "huggingface_llama.py")
    fixed = lambda config: StaticCache(config=config, max_cache_len=config.max_position_embeddings)  # noqa: E731
    monkeypatch.setattr(subject.module, "new_cache", fixed)
    results = list(Suite(subject, diagnose=False).run(find("incremental")))
    assert {result.outcome for result in results} == {"passed"}, [result.message for result in results]


@pytest.mark.parametrize(
    ("name", "bridge", "expected"),
    [
        ("huggingface_llama", "HalfSplit", "slow_oracle.built_logits[mha]"),
        ("x_transformers_decoder", "TiledHeads", "slow_oracle.built_logits[gqa-6-over-2]"),
    ],
)
def test_a_bridge_left_out_is_found(monkeypatch: pytest.MonkeyPatch, name: str, bridge: str, expected: str) -> None:
    """The suite is not blind to these models: without what one file bridges, the check for it fails."""
    subject = load(HERE / f"{name}.py")

    class Nothing(torch.nn.Identity):
        def right_inverse(self, weight: torch.Tensor) -> torch.Tensor:
            return weight

    monkeypatch.setattr(subject.module, bridge, lambda *_, **__: Nothing())
    assert Suite(subject, diagnose=False).result(all_checks()[expected]).outcome == "failed"
