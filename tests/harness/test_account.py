"""``cs336 account``: known totals, the three outputs, and configurations refused by name, not miscounted."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cs336_harness.commands.account import account
from cs336_harness.cost.huggingface import shape_of_config
from cs336_harness.cost.presets import PRESET_NAMES, handout_d_ff, preset
from cs336_harness.cost.tally import tally

LLAMA_3_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rope_scaling": None,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
LLAMA_3_2_1B = LLAMA_3_8B | {
    "head_dim": 64,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "num_hidden_layers": 16,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "tie_word_embeddings": True,
}
TINYLLAMA = LLAMA_3_8B | {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "max_position_embeddings": 2048,
    "num_hidden_layers": 22,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
}
SMOLLM2_135M = LLAMA_3_8B | {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
    "vocab_size": 49152,
}
MISTRAL_7B_V03 = LLAMA_3_8B | {
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "sliding_window": None,
    "vocab_size": 32768,
}

MISTRAL_NEMO = MISTRAL_7B_V03 | {
    "head_dim": 128,
    "hidden_size": 5120,
    "max_position_embeddings": 131072,
    "num_hidden_layers": 40,
    "vocab_size": 131072,
}
QWEN2_5_0_5B: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "hidden_size": 896,
    "initializer_range": 0.02,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 24,
    "model_type": "qwen2",
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_mrope": False,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN2_5_7B = QWEN2_5_0_5B | {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_window_layers": 28,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "vocab_size": 152064,
}
QWEN3_0_6B: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "model_type": "qwen3",
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN3_8B = QWEN3_0_6B | {
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "tie_word_embeddings": False,
}
GEMMA_2B: dict[str, Any] = {
    "architectures": ["GemmaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 2,
    "head_dim": 256,
    "hidden_act": "gelu",
    "hidden_activation": None,
    "hidden_size": 2048,
    "intermediate_size": 16384,
    "max_position_embeddings": 8192,
    "model_type": "gemma",
    "num_attention_heads": 8,
    "num_hidden_layers": 18,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-06,
    "vocab_size": 256000,
}
GEMMA_7B = GEMMA_2B | {
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 3072,
    "intermediate_size": 24576,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 16,
}
PUBLISHED: dict[str, tuple[dict[str, Any], int]] = {
    "llama-3-8b": (LLAMA_3_8B, 8_030_261_248),
    "llama-3.2-1b": (LLAMA_3_2_1B, 1_235_814_400),
    "tinyllama-1.1b": (TINYLLAMA, 1_100_048_384),
    "smollm2-135m": (SMOLLM2_135M, 134_515_008),
    "mistral-7b-v0.3": (MISTRAL_7B_V03, 7_248_023_552),
    "mistral-nemo": (MISTRAL_NEMO, 12_247_782_400),
    "qwen2.5-0.5b": (QWEN2_5_0_5B, 494_032_768),
    "qwen2.5-7b": (QWEN2_5_7B, 7_615_616_512),
    "qwen3-0.6b": (QWEN3_0_6B, 596_049_920),
    "qwen3-8b": (QWEN3_8B, 8_190_735_360),
    "gemma-2b": (GEMMA_2B, 2_506_172_416),
    "gemma-7b": (GEMMA_7B, 8_537_680_896),
}
"""Published models, their sizes by their config.json, and the parameters that they are published with."""

_app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
_app.command()(account)


def _run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(_app, list(arguments), env={"COLUMNS": "80", "NO_COLOR": "1"})
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def config_file(tmp_path: Path):
    def write(config: object) -> str:
        path = tmp_path / "config.json"
        path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
        return str(path)

    return write


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_have_their_published_counts(name: str):
    config, parameters = PUBLISHED[name]
    assert tally(shape_of_config(config)).parameters == parameters


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_listed_weights_are_those_that_transformers_makes(name: str):
    transformers = pytest.importorskip("transformers")
    import torch

    config, _ = PUBLISHED[name]
    own = {key: value for key, value in config.items() if key != "architectures" and value is not None}
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(**own), attn_implementation="eager"
        )
    counted = tally(shape_of_config(config))
    assert counted.parameters == sum(weight.numel() for weight in model.parameters())
    sizes = [tuple(weight.shape) for weight in model.parameters()]
    listed = [size for weight in counted.weights for size in [weight.shape] * weight.count]
    assert sorted(sizes) == sorted(listed)


@pytest.mark.parametrize("name", PUBLISHED)
def test_flops_follow_the_width_of_the_heads(name: str):
    shape = shape_of_config(PUBLISHED[name][0])
    terms = tally(shape, sequence_length=10).terms
    queries, keys = shape.num_heads * shape.d_head, shape.num_kv_heads * shape.d_head
    assert terms["attention_projections"] == 2 * 10 * shape.num_layers * shape.d_model * (2 * queries + 2 * keys)
    assert terms["attention_scores"] == terms["attention_values"] == 2 * 10 * 10 * queries * shape.num_layers
    assert terms["feed_forward"] == 6 * 10 * shape.d_model * shape.d_ff * shape.num_layers


def test_what_a_family_adds_is_said_and_listed(config_file):
    code, out, _ = _run(config_file(QWEN3_0_6B))
    said = " ".join(out.split())
    assert code == 0
    assert "tied, head_dim 128, norms on queries and keys; batch 1" in said
    assert "attn.q_norm 128 28 3,584" in said
    _, out, _ = _run(config_file(QWEN2_5_0_5B))
    assert "biases on q_proj, k_proj, v_proj" in " ".join(out.split())
    assert "attn.q_proj.bias 896 24 21,504" in " ".join(out.split())


def test_switches_give_biases_to_the_families_that_have_them():
    for config, key, biased in (
        (LLAMA_3_8B, "attention_bias", 4096 + 2 * 1024 + 4096),
        (LLAMA_3_8B, "mlp_bias", 2 * 14336 + 4096),
        (QWEN3_8B, "attention_bias", 4096 + 2 * 1024 + 4096),
        (GEMMA_2B, "attention_bias", 2048 + 2 * 256 + 2048),
    ):
        with_biases, without = (tally(shape_of_config(config | {key: on})) for on in (True, False))
        assert with_biases.parameters - without.parameters == without.shape.num_layers * biased
        assert with_biases.flops == without.flops


def test_a_head_of_another_width_can_be_given():
    wide = json.loads(_run("gpt2-xl", "--head-dim", "128", "--json")[1])
    usual = json.loads(_run("gpt2-xl", "--head-dim", "64", "--json")[1])
    plain = json.loads(_run("gpt2-xl", "--json")[1])
    assert (usual["parameters"], usual["flops"]) == (plain["parameters"], plain["flops"])
    assert wide["parameters"]["total"] - plain["parameters"]["total"] == 48 * 4 * 1600 * 25 * 64


@pytest.mark.parametrize(
    ("handout", "d_ffs", "xl_parameters", "xl_flops"),
    [
        (2026, (2048, 2752, 3392, 4288), 1_640_452_800, 3_516_769_894_400),
        (2025, (3072, 4096, 5120, 6400), 2_127_057_600, 4_513_336_524_800),
    ],
)
def test_presets_follow_the_handout_s_rule(handout: int, d_ffs: tuple[int, ...], xl_parameters: int, xl_flops: int):
    assert tuple(preset(name, handout).d_ff for name in PRESET_NAMES) == d_ffs
    xl = tally(preset("gpt2-xl", handout))
    assert (xl.parameters, xl.memory, xl.flops) == (xl_parameters, 4 * xl_parameters, xl_flops)


def test_the_nearest_multiple_is_nearest_and_not_above():
    assert [handout_d_ff(d_model, 2026) for d_model in (1280, 1600, 96, 24)] == [3392, 4288, 256, 64]


def test_the_report_states_totals_units_convention_and_another_length():
    code, out, err = _run("gpt2-xl")
    assert (code, err) == (0, "")
    said = " ".join(out.split())
    for words in (
        "1,640,452,800 parameters (1.640 billion)",
        "6,561,811,200 bytes = 6.562 GB (6.111 GiB) at 4 bytes per float32",
        "3,516,769,894,400 FLOPs = 3.517 TFLOPs",
        "One multiply-add is two FLOPs",
        "no causal halving",
        "scores 1024 64 1024 1200 161,061,273,600 4.6 %",
        "From 1024 to 2048 positions the T² terms grow 4 times, the others 2 times, all together 2.183 times.",
    ):
        assert words in said
    assert max(map(len, out.splitlines())) <= 80


def test_a_tied_head_has_no_weight_and_keeps_its_multiply():
    _, untied, _ = _run("gpt2-small", "--json")
    _, tied, _ = _run("gpt2-small", "--tied", "--json")
    first, second = json.loads(untied), json.loads(tied)
    assert first["parameters"]["total"] - second["parameters"]["total"] == 50257 * 768
    assert first["flops"] == second["flops"]
    assert "lm_head is token_embeddings" in " ".join(_run("gpt2-small", "--tied")[1].split())


def test_json_is_exact_and_its_rows_sum_to_its_totals():
    code, out, _ = _run("gpt2-xl", "--json", "--batch", "3", "--seq-len", "16384", "--dtype", "bfloat16")
    said = json.loads(out)
    assert code == 0
    assert said["flops"]["total"] == 3 * 133_577_729_638_400
    assert sum(multiply["flops"] for multiply in said["flops"]["matmuls"]) == said["flops"]["total"]
    assert sum(said["flops"]["terms"].values()) == said["flops"]["total"]
    assert sum(weight["parameters"] for weight in said["parameters"]["weights"]) == said["parameters"]["total"]
    assert said["memory"] == {"bytes": 2 * 1_640_452_800, "bytes_per_value": 2}
    assert said["other_length"]["total"] == 3 * 3_516_769_894_400


def test_markdown_has_the_same_tables():
    code, out, _ = _run("gpt2-xl", "--markdown", "--seq-len", "16384")
    assert code == 0
    assert "| **total** |  |  | **1,640,452,800** | **100.0 %** | **6.562 GB** |" in out
    assert "| w2 | back to the width | 16384 | 4288 | 1600 | 48 | 10,791,105,331,200 | 8.1 % |" in out
    assert "all together 37.98 times" in out
    assert "past context_length 1024: a model of this shape refuses it" in out


def test_sizes_one_by_one_and_on_top_of_a_preset():
    sizes = "--vocab-size 50257 --context-length 1024 --d-model 1600 --num-layers 48 --num-heads 25 --d-ff 4288"
    assert json.loads(_run(*sizes.split(), "--json")[1])["parameters"]["total"] == 1_640_452_800
    assert json.loads(_run("gpt2-xl", "--d-ff", "6400", "--json")[1])["flops"]["total"] == 4_513_336_524_800
    assert json.loads(_run("gpt2-xl", "--handout", "2025", "--json")[1])["flops"]["total"] == 4_513_336_524_800


def test_a_config_file_states_its_dtype(config_file):
    code, out, _ = _run(config_file(LLAMA_3_8B))
    assert code == 0
    assert "16,060,522,496 bytes = 16.06 GB (14.96 GiB) at 2 bytes per bfloat16" in " ".join(out.split())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qkv_bias": True}, "qkv_bias is true: projections with biases"),
        ({"use_bias": True}, "use_bias is true"),
        ({"model_type": "mistral", "attention_bias": True}, "attention_bias is true: projections with biases"),
        ({"model_type": "qwen2", "mlp_bias": True}, "mlp_bias is true"),
        ({"sliding_window": 4096}, "sliding_window is 4096: attention over a sliding window"),
        ({"num_local_experts": 8}, "num_local_experts is 8: experts"),
        ({"model_type": "qwen3_moe", "num_experts": 128}, "num_experts is 128: experts"),
        ({"model_type": "deepseek_v3", "kv_lora_rank": 512}, "kv_lora_rank is 512: compressed keys and values"),
        ({"n_positions": 1024}, "n_positions is 1024: learned positions"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, 'layer_types holds "sliding_attention"'),
        ({"hidden_act": "gelu"}, 'hidden_act is "gelu"'),
        ({"model_type": "gemma", "head_dim": 256}, 'hidden_act is "silu"'),
        ({"model_type": "gemma2"}, 'model_type is "gemma2"; what can be counted is one of llama, mistral, qwen2'),
        ({"model_type": None}, "model_type is missing"),
        ({"model_type": ["llama"]}, 'model_type is ["llama"]'),
        ({"quantization_config": {"bits": 4}}, 'quantization_config is {"bits": 4}: quantised weights'),
        ({"model_type": "mistral", "num_key_value_heads": None}, "num_key_value_heads is missing"),
        ({"model_type": "qwen3"}, "head_dim is missing"),
        ({"qk_norm": True}, "qk_norm is true: norms on queries and keys"),
        ({"query_key_layernorm": True}, "query_key_layernorm is true: this key is not known here"),
        ({"some_new_gate": "sigmoid"}, 'some_new_gate is "sigmoid": this key is not known here'),
        ({"extra_layers": 2}, "extra_layers is 2: this key is not known here and may change a weight or a multiply"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": "4096"}, 'hidden_size is "4096"; it must be a positive integer'),
        ({"head_dim": 0.5}, "head_dim is 0.5; it must be a positive integer"),
        ({"num_attention_heads": 24}, "d_model 4096 does not divide into num_heads 24"),
    ],
)
def test_another_architecture_is_refused_by_its_key(config_file, change: dict[str, Any], message: str):
    code, out, err = _run(config_file(LLAMA_3_8B | change))
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_keys_that_are_present_and_off_are_no_reason_to_refuse():
    off = {"sliding_window": None, "attention_bias": False, "num_local_experts": 0, "layer_types": ["full_attention"]}
    window_off = {"sliding_window": 4096, "use_sliding_window": False}
    assert shape_of_config(LLAMA_3_8B | off) == shape_of_config(LLAMA_3_8B | window_off) == shape_of_config(LLAMA_3_8B)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say which decoder: one of gpt2-small"),
        (["gpt3"], "gpt3 is neither a preset (gpt2-small, gpt2-medium, gpt2-large, gpt2-xl) nor a file"),
        (["--d-model", "64"], "add --vocab-size --context-length --num-layers --num-heads --d-ff"),
        (["gpt2-xl", "--handout", "2024"], "there is no 2024 handout here; choose 2026 or 2025"),
        (["--handout", "2025"], "--handout chooses the d_ff of a preset"),
        (["gpt2-xl", "--dtype", "fp32"], "dtype fp32 is not known; choose one of float64, float32"),
        (["gpt2-xl", "--seq-len", "0"], "the sequence length is 0"),
        (["gpt2-xl", "--num-heads", "24"], "d_model 1600 does not divide into num_heads 24"),
        (["gpt2-xl", "--d-ff", "9" * 400], "d_ff is larger than 1,000,000,000,000; no decoder is"),
        (["gpt2-xl", "--batch", "9" * 40], "the batch size is larger than"),
        (["gpt2-xl", "--rate", "1T", "--steps", "9" * 40], "it must be above 0 and below"),
        (["gpt2-xl", "--json", "--markdown"], "exclude each other"),
        (["gpt2-xl", "--head-dim", "0"], "head_dim is 0; it must be at least 1"),
        (["gpt2-xl", "--memory", "80"], "--memory is '80'; write it like 80GB or 24GiB"),
        (["gpt2-xl", "--rate", "fast"], "--rate is 'fast'; write it like 312T or 19.5e12"),
        (["gpt2-xl", "--mfu", "0.5"], "--mfu needs a rate"),
        (["gpt2-xl", "--rate", "1T", "--mfu", "0"], "--mfu is '0'; write a share above 0"),
        (["gpt2-xl", "--rate", "1T", "--mfu", "120%"], "--mfu is '120%'; write a share above 0"),
        (["gpt2-xl", "--rate", "1T", "--steps", "0"], "--steps is 0; it must be above 0"),
        (["gpt2-xl", "--rate", "1T", "--step-seconds", "nan"], "--step-seconds is nan; it must be above 0"),
        (["gpt2-xl", "--rate", "1T", "--step-seconds", "1"], "more than the 1 TFLOP/s of the rate"),
        (["gpt2-xl", "--rate", "1T", "--step-seconds", "99", "--mfu", "1"], "choose one"),
        (["gpt2-xl", "--compare", "gpt3"], "--compare gpt3 is not known; choose gpt2"),
        (["gpt2-xl", "--plot", "figure.nonsense"], "no ending that a figure can be written to"),
    ],
)
def test_a_wrong_call_gets_one_clear_line(arguments: list[str], message: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = _run(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00\x01", "7", '"text"'])
def test_a_file_that_is_no_config_gets_one_clear_line(config_file, content: str):
    code, _, err = _run(config_file(content))
    assert code == 2
    assert err.startswith("cs336 account: ")
    assert err.count("\n") == 1


@pytest.mark.slow
def test_a_plot_is_written_and_its_name_told(tmp_path: Path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "shares.svg"
    code, out, err = _run("gpt2-small", "--json", "--plot", str(path))
    assert (code, err) == (0, f"wrote {path}\n")
    assert json.loads(out)["flops"]["total"]
    assert path.read_text(encoding="utf-8").startswith("<?xml")


def test_the_command_never_imports_torch():
    code = (
        "import sys; from cs336_harness.commands.account import account; account('gpt2-xl'); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
