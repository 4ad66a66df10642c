"""Other dtypes, devices and torch.compile: correct decoders pass, broken ones fail, what cannot be asked is said."""

from __future__ import annotations

import functools
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from broken import RIGHT
from torch import Tensor, nn
from variations import COVERING, VariationAdapters

from cs336_harness import CannotJudgeError, cli, judge
from cs336_harness.checks import all_checks
from cs336_harness.defects import adapters_of, all_defects
from cs336_harness.places import HOME
from cs336_harness.reference.precision import HALF_UNIT, judged_in
from cs336_harness.reference.tolerance import TOLERANCE_IN_NOISE, rounding_noise
from cs336_harness.reference.weights import normal
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.loading import load
from cs336_harness.subject.setting import Setting
from cs336_harness.verdict.suite import Result, Suite

BFLOAT16, FLOAT64 = Setting(dtype="bfloat16"), Setting(dtype="float64")
TRACED = Setting(compile=True, backend="eager")
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")

A_FEW = (
    "components.rmsnorm",
    "components.swiglu",
    "components.rope",
    "components.multihead_self_attention_with_rope",
    "assembly.transformer_lm",
    "slow_oracle.logits[odd-width]",
    "slow_oracle.grouped_logits[gqa-6-over-2]",
    "slow_oracle.built_logits[mha-tied]",
    "slow_oracle.gradients[mha-tied]",
    "information_flow.prefix_equivalence[short]",
    "tying.gradients",
    "configuration.model_builds",
    "configuration.raw_logits[get_transformer_lm]",
    "accounting.unique_parameters[tied]",
)
"""One of each kind; `benchmarks/tolerances.py --dtype` asks everything of every variation."""

BROKEN = {
    "norm-gain-forgotten": "components.rmsnorm",
    "silu-missing": "components.silu",
    "rope-direction-reversed": "components.rope",
    "causal-mask-missing": "components.multihead_self_attention",
    "kv-heads-tiled": "slow_oracle.built_logits[gqa-6-over-2]",
    "tied-head-is-a-copy": "tying.one_parameter",
}

VARIED = ("fused", "additive", "renormalise")


@functools.cache
def right(name: str) -> Any:
    """Our own decoder, or one of the variations."""
    if name != "ours":
        return VariationAdapters(COVERING[name])
    assert HOME is not None
    return load(HOME / "adapters.py").module


def cs336(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Runs the command line in this process; the exit status."""
    monkeypatch.setattr("sys.argv", ["cs336", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


def judged(module: Any, setting: Setting, *names: str, diagnose: bool = False) -> list[Result]:
    suite = Suite(Subject(module, "subject", setting=setting), diagnose=diagnose)
    return [suite.result(all_checks()[name]) for name in names]


@pytest.mark.parametrize("setting", [BFLOAT16, FLOAT64], ids=["bfloat16", "float64"])
@pytest.mark.parametrize("name", ["ours", *VARIED])
def test_correct_decoders_pass_and_stay_under_a_fifth_of_the_tolerance(name: str, setting: Setting) -> None:
    for result in judged(right(name), setting, *A_FEW):
        assert result.outcome == "passed", (result.check.id, result.message)
        assert (result.error_in_noise or 0) < TOLERANCE_IN_NOISE / 5, result.check.id


@pytest.mark.parametrize("setting", [BFLOAT16, FLOAT64], ids=["bfloat16", "float64"])
@pytest.mark.parametrize("name", BROKEN)
def test_broken_decoders_fail(name: str, setting: Setting) -> None:
    module = adapters_of(all_defects()[name], dtype=getattr(torch, setting.dtype))
    (result,) = judged(module, setting, BROKEN[name])
    assert result.outcome == "failed", (result.outcome, result.blocked_by)


def test_a_known_mistake_is_named_where_float32_shows_it_too() -> None:
    (result,) = judged(adapters_of(all_defects()["norm-gain-forgotten"]), BFLOAT16, "components.rmsnorm", diagnose=True)
    assert [defect.name for defect in result.diagnosis.defects] == ["norm-gain-forgotten"]


def test_what_only_bfloat16_shows_is_said_to_be_right_in_float32() -> None:
    class RotatesByTheDtype(VariationAdapters):
        def run_rope(self, in_query_or_key: Tensor, token_positions: Tensor, **sizes: Any) -> Tensor:
            rounded = token_positions.to(in_query_or_key.dtype)  # 256 is the last whole number that bfloat16 counts to
            return self.variation.rotate(in_query_or_key, rounded, sizes["theta"])

    far = "components.rope_far_positions[theta_10000]"
    (result,) = judged(RotatesByTheDtype(COVERING["additive"]), BFLOAT16, far, diagnose=True)
    assert result.outcome == "failed"
    assert result.diagnosis is None
    assert result.failure is not None
    assert result.failure.evidence.details[-1] == "right in float32 on cpu: it is wrong only in bfloat16 on cpu"


def test_a_table_in_float32_fails_in_float64() -> None:
    class TableInFloat32(VariationAdapters):
        def run_rope(self, in_query_or_key: Tensor, token_positions: Tensor, **sizes: Any) -> Tensor:
            narrow = self.variation.rotate(in_query_or_key.float(), token_positions, sizes["theta"])
            return narrow.to(in_query_or_key.dtype)

    (result,) = judged(TableInFloat32(COVERING["additive"]), FLOAT64, "components.rope")
    assert result.outcome == "failed"
    assert result.failure is not None
    assert "times the rounding of float64" in result.failure.evidence.details[-1]
    assert "something in it is float32 whatever it is given" in result.failure.evidence.details[-1]


def test_inputs_are_numbers_that_the_dtype_holds() -> None:
    with judged_in("bfloat16"):
        drawn = normal(50, seed=1)
    assert drawn.dtype == torch.float32
    assert torch.equal(drawn, drawn.bfloat16().float())
    assert not torch.equal(drawn, normal(50, seed=1))


def test_noise_is_proportional_to_half_a_unit() -> None:
    x = normal(50, seed=2).double()
    noise = {}
    for dtype in ("float64", "float32", "bfloat16"):
        with judged_in(dtype):
            noise[dtype] = rounding_noise(lambda x: x.softmax(-1), {"x": x}, x.softmax(-1)) / HALF_UNIT[dtype]
    assert noise["float64"] == pytest.approx(noise["float32"])
    assert noise["bfloat16"] == pytest.approx(noise["float32"], rel=0.1)


def test_what_makes_no_sense_in_a_dtype_is_skipped_with_the_reason() -> None:
    kept, arrives = judged(RIGHT, BFLOAT16, "components.float32_kept[silu]", "information_flow.every_token_arrives")
    assert (kept.outcome, arrives.outcome) == ("skipped", "skipped")
    assert kept.message == "not asked in bfloat16: it is about float32"
    assert judged(RIGHT, FLOAT64, "information_flow.every_token_arrives")[0].outcome == "passed"


def test_compiled_code_is_what_is_judged() -> None:
    class Doubled(nn.Module):
        """Right, unless it is compiled."""

        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, token_ids: Tensor) -> Tensor:
            logits = self.model(token_ids)
            return 2 * logits if torch.compiler.is_compiling() else logits

    module = SimpleNamespace(
        get_transformer_lm=lambda **sizes: Doubled(RIGHT.get_transformer_lm(**sizes)),
        get_transformer_lm_weights=lambda model: RIGHT.get_transformer_lm_weights(model.model),
    )
    name = "slow_oracle.built_logits[mha]"
    assert judged(module, Setting(), name)[0].outcome == "passed"
    (result,) = judged(module, TRACED, name, diagnose=True)
    assert result.outcome == "failed"
    assert result.failure is not None
    assert result.failure.evidence.details[-1].endswith("it is wrong only in float32 on cpu, compiled")


def test_a_correct_decoder_passes_compiled() -> None:
    names = ("assembly.transformer_lm", "slow_oracle.built_logits[mha-tied]", "slow_oracle.gradients[mha-tied]")
    TRACED.require()
    for result in judged(right("ours"), TRACED, *names):
        assert result.outcome == "passed", (result.check.id, result.message)
    (result,) = judged(right("ours"), TRACED, "components.silu")
    assert result.message == "not asked of compiled code: only the numbers of the whole model are"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(["--device", "cuda"], "--device cuda: PyTorch finds no CUDA GPU here", marks=NO_GPU),
        (["--device", "gpu"], "no device 'gpu'; there are cpu, cuda, mps"),
        (["--device", "cpu:0"], "no device 'cpu:0'; there are cpu, cuda, mps"),
        (["--backend", "eager"], "--backend eager says how --compile compiles: give --compile too"),
        (["--huggingface", ".", "-k", "rope"], "--huggingface takes --json alone; leave -k out"),
        (["--huggingface", ".", "--no-diagnosis"], "--huggingface takes --json alone; leave --no-diagnosis out"),
        (["--dtype", "float16"], "no dtype 'float16' to judge in; there are float32, bfloat16, float64"),
        (["--compile", "--backend", "gcc"], "--backend gcc: torch.compile has no such backend; it has inductor, "),
        (["--dtype", "bfloat16", "--isolated"], "--isolated judges in float32 on cpu, uncompiled"),
        (["--dtype", "bfloat16", "--huggingface", "."], "--huggingface judges in float32 on cpu, uncompiled"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_not_there_is_one_line(
    options: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cs336(monkeypatch, "check", *options) == 2
    told = capsys.readouterr().err
    assert words in told
    assert "\n" not in told.strip()


def test_the_command_says_what_it_judged_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cs336(monkeypatch, "check", str(HOME), "-k", "components.silu", "--dtype", "bfloat16") == 0
    out = capsys.readouterr().out
    assert re.match(r"judging \S+ in bfloat16 on cpu, with", out)
    assert "entry points filled" not in out


def test_each_result_of_compiled_code_is_shown_as_it_comes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--compile", "--backend", "eager", "-k", "transformer_lm_one_token or components.silu")
    assert cs336(monkeypatch, "check", str(HOME), *options) == 0
    out = capsys.readouterr().out
    assert re.search(r"^✓ assembly\.transformer_lm_one_token  \d+ s$", out, re.MULTILINE)
    assert "silu" not in out


def test_the_api_takes_the_same() -> None:
    verdict = judge(RIGHT, checks="components.silu", dtype="bfloat16")
    assert verdict.passed
    assert verdict.setting == verdict.to_json()["setting"] == "in bfloat16 on cpu"
    assert "setting" not in judge(RIGHT, checks="components.silu").to_json()
    with pytest.raises(CannotJudgeError, match="no dtype"):
        judge(RIGHT, dtype="half")


def test_a_matmul_precision_that_the_decoder_lowers_is_put_back_and_told() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert Setting().enter() == ""
        assert "no TF32" in BFLOAT16.enter()
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision(before)


def test_nothing_of_ours_hides_a_gpu() -> None:
    assert HOME is not None
    told = [
        path.name
        for folder in ("harness", "tests", "benchmarks", "docs")
        for path in (HOME / folder).rglob("*.py")
        if "CUDA_" + "VISIBLE_DEVICES" in path.read_text(encoding="utf-8")
    ]
    assert told == []
