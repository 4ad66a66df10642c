"""The files of docs/GLUE.md, judged as they stand there by every check that their two or three functions allow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cs336_harness import judge
from cs336_harness.places import HOME
from cs336_harness.verdict.suite import WHOLE_DECODER

pytest.importorskip("transformers", reason="needs transformers: uv run --group reference pytest -m reference")

PAGE = (HOME / "docs" / "GLUE.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (glue_\w+\.py)\n(.*?)```", PAGE, re.DOTALL))

pytestmark = pytest.mark.reference


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_the_page_passes(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(FILES[name])
    verdict = judge(tmp_path / name, diagnose=False)
    assert verdict, str(verdict)
    assert len(verdict.of("passed")) > 80
    reasons = {result.message for result in verdict.of("skipped") if not result.advisory}
    assert reasons == {WHOLE_DECODER}


def test_the_page_has_the_files_that_it_speaks_of() -> None:
    assert set(FILES) == {"glue_llama.py", "glue_qwen.py", "glue_fused.py"}


@pytest.mark.parametrize(
    ("name", "helper", "failing"),
    [
        ("glue_llama.py", "HalfSplit(num_heads)", "slow_oracle.built_logits[mha]"),
        ("glue_fused.py", "half_split=order", "slow_oracle.built_logits[mha]"),
        ("glue_fused.py", "glue.InterleavedGates()", "slow_oracle.built_logits[mha]"),
    ],
)
def test_a_helper_left_out_is_found(name: str, helper: str, failing: str, tmp_path: Path) -> None:
    instead = {"HalfSplit(num_heads)": "Stacked(d_model)", "half_split=order": "half_split=()"}
    text = FILES[name].replace(helper, instead.get(helper, "glue.Stacked(d_ff, d_ff)"))
    assert text != FILES[name]
    (tmp_path / name).write_text(text)
    assert judge(tmp_path / name, checks="built_logits", diagnose=False)[failing].outcome in ("failed", "blocked")
