"""``cs336 check --huggingface``: a checkpoint that transformers saved is right, and each way to be wrong is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

pytest.importorskip("transformers", reason="needs transformers: uv run --group reference pytest -m reference")
from transformers import LlamaForCausalLM

from cs336_harness import cli
from cs336_harness.checkpoint import judging
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.failures import CannotJudgeError

from .huggingface import llama_config

pytestmark = pytest.mark.reference

SHAPE = DecoderShape(
    vocab_size=600,
    context_length=16,
    d_model=24,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    d_ff=64,
    rope_theta=500.0,
)


def save(folder: Path, tied: bool = False, **changes: Any) -> Path:
    torch.manual_seed(0)
    config = llama_config(SHAPE.replace(tie_embeddings=tied), pad_token_id=599, **changes)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def cs336(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["cs336", "check", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


@pytest.mark.parametrize("tied", [False, True])
def test_a_checkpoint_as_transformers_saves_it_is_right(
    tied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, result = save(tmp_path / "model", tied), tmp_path / "result.json"
    assert cs336(monkeypatch, "--huggingface", str(folder), "--json", str(result)) == 0
    out = capsys.readouterr().out
    assert "2 of 2 layers, 512 of 600 tokens" in out.replace("\n", " ")
    assert "logits equal the reference's" in out
    written = json.loads(result.read_text())
    assert written["summary"] == {"passed": 2, "failed": 0}
    assert written["checks"][1]["error_in_noise"] < 16


def test_only_the_layers_that_fit_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "PARAMETERS", 1)
    verdict = judging.judge_checkpoint(save(tmp_path))
    assert verdict.passed
    assert "1 of 2 layers" in verdict.part


def edit(folder: Path, change: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


NORM = "model.norm.weight"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda tensors: tensors.pop(NORM), "model.norm.weight is missing"),
        (lambda tensors: tensors.update(extra=torch.ones(1)), "extra is left over"),
        (lambda tensors: tensors.update({NORM: torch.ones(5)}), r"has the shape (5,), config.json says (24,)"),
        (lambda tensors: tensors.update({NORM: torch.ones(24, dtype=torch.int8)}), "holds I8 numbers"),
    ],
)
def test_weights_that_are_not_the_config_s_are_named(change: Any, line: str, tmp_path: Path) -> None:
    edit(save(tmp_path), change)
    (finding,) = judging.judge_checkpoint(tmp_path).findings
    assert not finding.passed
    assert line in finding.message


def test_other_logits_are_a_failure_with_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers with another theta than the folder says stands in for a model that computes something else."""
    theirs = judging._theirs

    def wrong(folder: Any, shape: DecoderShape, *rest: Any) -> torch.Tensor:
        other = save(tmp_path / "other", rope_parameters={"rope_type": "default", "rope_theta": 50.0})
        return theirs(judging.open_folder(other), shape, *rest)

    monkeypatch.setattr(judging, "_theirs", wrong)
    there, logits = judging.judge_checkpoint(save(tmp_path / "model")).findings
    assert there.passed
    assert not logits.passed
    assert logits.error_in_noise > 16
    assert "differs from the reference" in logits.message


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"attention_bias": True}, "biases"),
        ({"num_attention_heads": None}, "num_attention_heads is missing"),
        ({"dtype": "float33"}, "dtype is 'float33', which PyTorch does not have"),
        ({"rope_parameters": "default"}, "rope_parameters"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "scales positions"),
        ({"model_type": "gpt2"}, "gpt2"),
        ({"model_type": "gemma", "hidden_act": "gelu_pytorch_tanh", "head_dim": 4}, "gemma"),
    ],
)
def test_another_architecture_is_refused_in_one_line(
    changes: dict[str, Any],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = save(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    capsys.readouterr()  # what transformers says when it saves
    assert cs336(monkeypatch, "--huggingface", str(folder)) == 2
    error = capsys.readouterr().err
    assert line in error
    assert len(error.splitlines()) == 1


def test_a_pickle_is_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (save(tmp_path) / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    assert cs336(monkeypatch, "--huggingface", str(tmp_path)) == 2
    assert "pytorch_model.bin is a pickle, which is never opened" in capsys.readouterr().err
    assert cs336(monkeypatch, "--huggingface", str(tmp_path / "nowhere")) == 2
    assert "nowhere does not exist; give the folder" in capsys.readouterr().err
    assert cs336(monkeypatch, "--huggingface", str(tmp_path / "config.json")) == 2
    assert "config.json is a file; give the folder" in capsys.readouterr().err
    assert cs336(monkeypatch, "--huggingface", "owner/model-1.1B") == 2
    assert "(of the Hub: `hf download owner/model-1.1B --local-dir FOLDER` first)" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert cs336(monkeypatch, "--huggingface", str(tmp_path / "empty")) == 2
    assert "holds no config.json" in capsys.readouterr().err
    assert cs336(monkeypatch, ".", "--huggingface", str(tmp_path)) == 2
    assert "not both" in capsys.readouterr().err


def test_weights_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    edit(save(tmp_path), lambda tensors: tensors[NORM].fill_(float("nan")))
    there, logits = judging.judge_checkpoint(tmp_path).findings
    assert there.passed
    assert logits.message == "model.norm.weight holds NaN or an infinity"


def cut_short(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:2000])


def pointer(folder: Path) -> None:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")


def index(folder: Path, **placed: str) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))


@pytest.mark.parametrize(
    ("harm", "line"),
    [
        (cut_short, "model.safetensors cannot be read as safetensors"),
        (pointer, "a pointer of Git LFS"),
        (lambda folder: index(folder, **{NORM: "model-2-of-2.safetensors"}), "names model-2-of-2.safetensors, which"),
        (lambda folder: index(folder, **{NORM: "config.json"}), "config.json cannot be read as safetensors"),
    ],
)
def test_a_file_that_is_damaged_or_not_there_is_one_line(harm: Any, line: str, tmp_path: Path) -> None:
    harm(save(tmp_path))
    with pytest.raises(CannotJudgeError) as caught:
        judging.judge_checkpoint(tmp_path)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "Llama family" not in str(caught.value)  # nothing is said of the architecture
