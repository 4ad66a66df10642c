"""The cache: pieces equal the whole, nothing else moves, and what does not fit is refused before it is written."""

import dataclasses
from typing import Any

import pytest
import torch
from small_decoder import CONFIG, assert_near, seeded, token_ids
from torch import Tensor

from cs336_basics.attention import fused_scaled_dot_product_attention, scaled_dot_product_attention
from cs336_basics.cache import KeyValueCache
from cs336_basics.config import TransformerConfig
from cs336_basics.generation import generate
from cs336_basics.transformer import TransformerLM

ATTENTIONS = (scaled_dot_product_attention, fused_scaled_dot_product_attention)
DOUBLE: dict[str, Any] = {"dtype": torch.float64}


def model_of(config: TransformerConfig = CONFIG, **options: Any) -> TransformerLM:
    return TransformerLM(config, generator=seeded(), **options)


@torch.no_grad()
def in_pieces(model: TransformerLM, ids: Tensor, *sizes: int) -> Tensor:
    weight = model.token_embeddings.weight
    cache = KeyValueCache(model.config, len(ids), weight.device, weight.dtype)
    return torch.cat([model(piece, cache=cache) for piece in ids.split(list(sizes), dim=1)], dim=1)


@pytest.mark.parametrize("attention", ATTENTIONS, ids=["explicit", "fused"])
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("kv_heads", [6, 2, 1])
def test_pieces_of_any_size_give_the_logits_of_the_whole(kv_heads: int, tied: bool, attention: Any) -> None:
    config = dataclasses.replace(CONFIG, num_kv_heads=kv_heads, tie_embeddings=tied)
    model, ids = model_of(config, attention=attention, **DOUBLE), token_ids(3, 12)
    for sizes in ([12], [1] * 12, [7, 5], [11, 1], [1, 11], [3, 1, 4, 2, 2]):
        assert_near(in_pieces(model, ids, *sizes), model(ids).detach(), 1e-10)


def test_positions_may_be_given_and_go_on_from_what_is_held_otherwise() -> None:
    model, ids = model_of(**DOUBLE), token_ids(2, 6)
    jumping = torch.tensor([0, 1, 5, 9, 40, 1000])
    with torch.no_grad():
        cache = KeyValueCache(CONFIG, 2, **DOUBLE)
        parts = [model(ids[:, part], jumping[part], cache=cache) for part in (slice(0, 4), slice(4, 6))]
        assert_near(torch.cat(parts, dim=1), model(ids, jumping), 1e-10)
    assert cache.length == 6


def test_what_does_not_fit_is_refused_and_the_cache_stays_as_it_was() -> None:
    model, ids = model_of(**DOUBLE), token_ids(2, 12)
    with torch.no_grad():
        cache = KeyValueCache(CONFIG, 2, **DOUBLE)
        first = model(ids[:, :9], cache=cache)
        with pytest.raises(ValueError, match="13 tokens, 9 of them in the cache, are more than"):
            model(ids[:, :4], cache=cache)
        with pytest.raises(ValueError, match="the cache holds 2 rows, not 3"):
            model(token_ids(3, 1), cache=cache)
        with pytest.raises(ValueError, match="outside the vocabulary"):
            model(torch.full((2, 1), CONFIG.vocab_size), cache=cache)
        assert cache.length == 9
        assert_near(torch.cat([first, model(ids[:, 9:], cache=cache)], dim=1), model(ids), 1e-10)
    with pytest.raises(ValueError, match=r"under torch\.no_grad\(\)"):
        model(ids[:, :1], cache=KeyValueCache(CONFIG, 2, **DOUBLE))


def test_under_keep_last_a_cache_takes_one_context_and_no_window() -> None:
    model = model_of(dataclasses.replace(CONFIG, context_policy="keep_last"))
    with torch.no_grad(), pytest.raises(ValueError, match="13 tokens, 0 of them in the cache, are more than"):
        model(token_ids(2, 13), cache=KeyValueCache(CONFIG, 2))


def test_a_model_in_bfloat16_keeps_its_dtype_and_counts_past_256() -> None:
    config = dataclasses.replace(CONFIG, context_length=300, num_layers=1)
    model, ids = model_of(config, dtype=torch.bfloat16), token_ids(1, 300)
    logits = in_pieces(model, ids, 257, *[1] * 43)
    assert logits.dtype == torch.bfloat16
    with torch.no_grad():
        assert_near(logits, model(ids), 0.05)


def test_greedy_generation_takes_the_likeliest_token_each_time() -> None:
    model, ids = model_of(**DOUBLE), token_ids(2, 3)
    generated = generate(model, ids, 9)
    assert torch.equal(generated[:, :3], ids)
    assert torch.equal(model(generated)[:, 2:-1].argmax(-1), generated[:, 3:])
    assert torch.equal(generate(model, ids, 0), ids)


def test_sampling_is_seeded_and_follows_the_temperature() -> None:
    model, ids = model_of(), token_ids(1, 2)
    drawn = generate(model, ids, 10, temperature=1.0, generator=seeded(3))
    assert torch.equal(drawn, generate(model, ids, 10, temperature=1.0, generator=seeded(3)))
    assert not torch.equal(drawn, generate(model, ids, 10, temperature=1.0, generator=seeded(4)))
    assert torch.equal(generate(model, ids, 10, temperature=1e-4, generator=seeded()), generate(model, ids, 10))
    many = generate(model, ids.expand(4000, -1), 1, temperature=2.0, generator=seeded())[:, -1]
    shares = torch.bincount(many, minlength=CONFIG.vocab_size) / 4000
    assert_near(shares.double(), torch.softmax(model(ids)[0, -1].double() / 2, -1).detach(), 0.03)


def test_generation_refuses_before_it_computes() -> None:
    model = model_of()
    with pytest.raises(ValueError, match="13 tokens, 0 of them in the cache, are more than context_length 12"):
        generate(model, token_ids(1, 4), 10)
    assert generate(model, token_ids(1, 4), 9).shape == (1, 13)  # the last token's logits are not asked for
    with pytest.raises(ValueError, match="temperature must be 0"):
        generate(model, token_ids(1, 4), 1, temperature=-1.0)
