"""The files of docs/GLUE.md, judged as they stand there by every check that their two or three functions allow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cs336_harness import judge
from cs336_harness.places import HOME
from cs336_harness.verdict.suite import WHOLE_DECODER

PAGE = (HOME / "docs" / "GLUE.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (glue_\w+\.py)\n(.*?)```", PAGE, re.DOTALL))

pytestmark = pytest.mark.reference


LIBRARIES = {
    "glue_llama.py": "transformers",
    "glue_qwen.py": "transformers",
    "glue_fused.py": "torch",
    "glue_litgpt.py": "litgpt",
    "glue_x_transformers.py": "x_transformers",
}
CAUSAL = "glue_causal.py"


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_file_of_the_page_passes(name: str, tmp_path: Path) -> None:
    pytest.importorskip(LIBRARIES[name], reason="needs more: uv run --group reference pytest -m reference")
    (tmp_path / name).write_text(FILES[name])
    verdict = judge(tmp_path / name, diagnose=False)
    assert verdict, str(verdict)
    assert len(verdict.of("passed")) > 80
    reasons = {result.message for result in verdict.of("skipped") if not result.advisory}
    assert reasons == {WHOLE_DECODER}


def test_every_file_of_the_page_is_judged_here() -> None:
    assert set(FILES) == {*LIBRARIES, CAUSAL}
    assert PAGE.count("```python") == len(FILES)


@pytest.mark.parametrize(("mask", "right"), [(".triu(1)", True), (".triu(2)", False)])
def test_the_causality_of_another_architecture_is_judged(mask: str, right: bool, tmp_path: Path) -> None:
    (tmp_path / CAUSAL).write_text(FILES[CAUSAL].replace(".triu(1)", mask))
    verdict = judge(tmp_path / CAUSAL, checks="information_flow", diagnose=False)
    assert bool(verdict) is right, str(verdict)
    assert len(verdict.of("passed")) == (12 if right else 6)


@pytest.mark.parametrize(
    ("name", "helper", "failing"),
    [
        ("glue_llama.py", "HalfSplit(num_heads)", "slow_oracle.built_logits[mha]"),
        ("glue_fused.py", "half_split=order", "slow_oracle.built_logits[mha]"),
        ("glue_fused.py", "glue.InterleavedGates()", "slow_oracle.built_logits[mha]"),
        (
            "glue_x_transformers.py",
            "(num_kv_heads, num_heads // num_kv_heads)",
            "slow_oracle.built_logits[gqa-6-over-2]",
        ),
    ],
)
def test_a_helper_left_out_is_found(name: str, helper: str, failing: str, tmp_path: Path) -> None:
    pytest.importorskip(LIBRARIES[name], reason="needs more: uv run --group reference pytest -m reference")
    instead = {
        "HalfSplit(num_heads)": "Stacked(d_model)",
        "half_split=order": "half_split=()",
        "(num_kv_heads, num_heads // num_kv_heads)": "(1, num_heads)",
    }
    text = FILES[name].replace(helper, instead.get(helper, "glue.Stacked(d_ff, d_ff)"))
    assert text != FILES[name]
    (tmp_path / name).write_text(text)
    assert judge(tmp_path / name, checks="built_logits", diagnose=False)[failing].outcome in ("failed", "blocked")
