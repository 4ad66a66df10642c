"""TransformerConfig: what it derives, what it refuses and in which words, JSON in and out."""

import dataclasses
import itertools
import subprocess
import sys
from typing import Any

import pytest

from cs336_basics.config import TransformerConfig

SIZES: dict[str, Any] = {"vocab_size": 31, "context_length": 12, "d_model": 24, "num_layers": 2, "num_heads": 6}


def refusal(**changes: Any) -> str:
    with pytest.raises(ValueError, match=r".") as refused:
        TransformerConfig(**{**SIZES, **changes})
    return str(refused.value)


def test_sizes_left_out_are_derived() -> None:
    config = TransformerConfig(**SIZES)
    assert (config.num_kv_heads, config.d_head, config.d_ff) == (6, 4, 64)
    assert (config.rope_theta, config.norm_eps) == (10000.0, 1e-5)
    assert (config.tie_embeddings, config.context_policy) == (False, "reject")


@pytest.mark.parametrize(
    ("d_model", "d_ff"), [(512, 1344), (768, 2048), (1600, 4288), (2560, 6848), (48, 128), (6, 64), (1024, 2752)]
)
def test_d_ff_is_the_multiple_of_64_nearest_to_eight_thirds_of_d_model(d_model: int, d_ff: int) -> None:
    assert TransformerConfig(**{**SIZES, "d_model": d_model, "num_heads": 1}).d_ff == d_ff
    assert d_ff == 64 or abs(d_ff - 8 / 3 * d_model) <= 32


def test_it_is_frozen_and_takes_keywords_only() -> None:
    config = TransformerConfig(**SIZES)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.d_model = 48  # ty: ignore[invalid-assignment]
    with pytest.raises(TypeError):
        TransformerConfig(*SIZES.values())  # ty: ignore[missing-argument, too-many-positional-arguments]


@pytest.mark.parametrize(
    "name", ["vocab_size", "context_length", "d_model", "num_layers", "num_heads", "num_kv_heads", "d_ff"]
)
def test_sizes_are_positive_integers(name: str) -> None:
    for value in (0, -3, 2.0, True, "8"):
        assert refusal(**{name: value}) == f"{name} must be a positive integer, got {value!r}"


@pytest.mark.parametrize("name", ["rope_theta", "norm_eps"])
def test_theta_and_eps_are_finite_and_positive(name: str) -> None:
    for value in (0.0, -1.0, float("inf"), float("nan"), True, "10000", None):
        assert refusal(**{name: value}) == f"{name} must be a finite positive number, got {value!r}"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"d_model": 50},
            "d_model 50 does not divide into num_heads 6; d_model 48 or 60 would fit, or num_heads 5",
        ),
        (
            {"num_heads": 8},
            "d_model 24 over num_heads 8 gives a head size of 3, and RoPE needs an even one; "
            "d_model 16 or 32 would fit, or num_heads 6",
        ),
        (
            {"d_model": 5},
            "d_model 5 does not divide into num_heads 6; d_model 12 would fit",
        ),
        (
            {"num_kv_heads": 4},
            "num_heads 6 does not divide into num_kv_heads 4; num_kv_heads 1, 2, 3, 6 would fit",
        ),
        ({"tie_embeddings": "yes"}, "tie_embeddings must be True or False, got 'yes'"),
        ({"context_policy": "truncate"}, "context_policy must be 'reject' or 'keep_last', got 'truncate'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_refusal_names_the_numbers_and_what_would_fit(changes: dict[str, Any], says: str) -> None:
    assert refusal(**changes) == says


def test_what_is_said_to_fit_does_fit() -> None:
    followed = 0
    for d_model, num_heads in itertools.product(range(1, 61), (1, 4, 6, 7)):
        if d_model % (2 * num_heads) == 0:
            continue
        said = refusal(d_model=d_model, num_heads=num_heads)
        widths, _, heads = said.split("; ")[1].removesuffix(" would fit").partition(" would fit, or num_heads ")
        fitting = [{"d_model": int(width), "num_heads": num_heads} for width in widths.split(" ")[1::2]]
        fitting += [{"d_model": d_model, "num_heads": int(heads)}] if heads else []
        for sizes in fitting:
            TransformerConfig(**{**SIZES, **sizes})
            followed += 1
    assert followed > 300


def test_huge_sizes_are_refused_without_a_search() -> None:
    refusal(d_model=10**15 + 1, num_heads=10**12)
    refusal(d_model=2 * 10**12, num_heads=10**12, num_kv_heads=10**11 + 1)


def test_json_round_trip_keeps_every_field() -> None:
    config = TransformerConfig(
        **SIZES,
        num_kv_heads=2,
        d_ff=40,
        rope_theta=500000.0,
        norm_eps=1e-6,
        tie_embeddings=True,
        context_policy="keep_last",
    )
    assert TransformerConfig.from_json(config.to_json()) == config
    assert all(getattr(config, field.name) != field.default for field in dataclasses.fields(config))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "the config is not JSON: "),
        ("[1, 2]", "the config must be a JSON object of field names and values, got '[1, 2]'"),
        ('{"n_heads": 6}', "the config has no field 'n_heads'; did you mean num_heads?"),
        ('{"zzz": 6}', "the config has no field 'zzz'; its fields are vocab_size, context_length, "),
        ('{"vocab_size": 31, "d_model": 24}', "the config lacks context_length, num_layers, num_heads"),
        (TransformerConfig(**SIZES).to_json().replace("31", "0"), "vocab_size must be a positive integer, got 0"),
    ],
)
def test_json_that_does_not_fit_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        TransformerConfig.from_json(text)
    assert str(refused.value).startswith(says)


@pytest.mark.slow
def test_config_imports_no_torch() -> None:
    code = "import sys, cs336_basics.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
