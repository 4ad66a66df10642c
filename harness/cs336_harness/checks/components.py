"""The components, one by one, against the public snapshots: CS336's own twelve tests, on inputs that hide less."""

from __future__ import annotations

from cs336_harness.checks.comparing import judge_snapshot
from cs336_harness.checks.registry import check
from cs336_harness.subject.calling import Subject


@check("components.linear", task="linear", needs=["run_linear"], snapshot="linear")
def linear(subject: Subject) -> float:
    """A linear layer without bias: y = W x.

    Usually broken by multiplying with the transpose, by an initialisation that is not overwritten, or by a bias.
    """
    return judge_snapshot(subject, "linear")


@check("components.embedding", task="embedding", needs=["run_embedding"], snapshot="embedding")
def embedding(subject: Subject) -> float:
    """A look-up of one row of the table per token id, unscaled.

    Usually broken by a scale of sqrt(d_model), by a padding row of zeros, or by indexing the wrong axis.
    """
    return judge_snapshot(subject, "embedding")


@check("components.silu", task="positionwise_feedforward", needs=["run_silu"], snapshot="silu")
def silu(subject: Subject) -> float:
    """SiLU: x times sigmoid(x).

    Usually broken by returning the sigmoid alone, or by GELU or ReLU in its place.
    """
    return judge_snapshot(subject, "silu")


@check(
    "components.softmax",
    task="softmax",
    needs=["run_softmax"],
    snapshot="softmax",
    after=["components.softmax_dim"],
)
def softmax(subject: Subject) -> float:
    """Softmax along the last axis.

    Usually broken by normalising along another axis, or over the whole tensor.
    """
    return judge_snapshot(subject, "softmax")


@check(
    "components.rmsnorm",
    task="rmsnorm",
    needs=["run_rmsnorm"],
    snapshot="rmsnorm",
    after=["components.rmsnorm_eps"],
)
def rmsnorm(subject: Subject) -> float:
    """RMSNorm: x · gain / sqrt(mean(x²) + eps) over the last axis.

    The input is small, so that eps counts, and the gains are random. Usually broken by a forgotten gain, an eps outside
    the root, a subtracted mean, or a sum in place of the mean.
    """
    return judge_snapshot(subject, "rmsnorm")


@check(
    "components.swiglu",
    task="positionwise_feedforward",
    needs=["run_swiglu"],
    snapshot="swiglu",
    after=["components.linear", "components.silu"],
)
def swiglu(subject: Subject) -> float:
    """SwiGLU: W2(silu(W1 x) ⊙ W3 x).

    Usually broken by exchanging W1 and W3, by gating after the product, or by a feed-forward of two matrices.
    """
    return judge_snapshot(subject, "swiglu")


@check(
    "components.rope",
    task="rope",
    needs=["run_rope"],
    snapshot="rope",
    after=["components.rope_theta", "components.rope_positions"],
)
def rope(subject: Subject) -> float:
    """Rotary positions: the channels (2i, 2i + 1) are one pair, turned by position · theta^(-2i / d_k).

    Usually broken by pairing channel i with i + d_k/2, by the opposite direction, or by a wrong exponent.
    """
    return judge_snapshot(subject, "rope")


@check(
    "components.scaled_dot_product_attention",
    task="scaled_dot_product_attention",
    needs=["run_scaled_dot_product_attention"],
    snapshot="scaled_dot_product_attention",
    after=["components.softmax", "components.softmax_far_apart"],
)
def scaled_dot_product_attention(subject: Subject) -> float:
    """Attention with a boolean mask, True meaning attend, and more keys than queries.

    Usually broken by the mask read the other way, a softmax over the queries, or a scale other than 1/sqrt(d_k).
    """
    return judge_snapshot(subject, "scaled_dot_product_attention", ("row", "query", "channel"))


@check(
    "components.4d_scaled_dot_product_attention",
    task="scaled_dot_product_attention",
    needs=["run_scaled_dot_product_attention"],
    snapshot="4d_scaled_dot_product_attention",
    after=["components.scaled_dot_product_attention"],
)
def scaled_dot_product_attention_4d(subject: Subject) -> float:
    """The same attention with two leading axes, batch and heads.

    Usually broken by ``K.T`` or a transpose that counts axes from the front.
    """
    return judge_snapshot(subject, "4d_scaled_dot_product_attention", ("row", "head", "query", "channel"))


@check(
    "components.multihead_self_attention",
    task="multihead_self_attention",
    needs=["run_multihead_self_attention"],
    snapshot="multihead_self_attention",
    after=["components.linear", "components.scaled_dot_product_attention"],
)
def multihead_self_attention(subject: Subject) -> float:
    """Causal multi-head self-attention without positions.

    Usually broken by a missing causal mask, heads split or merged without the transpose, or no output projection.
    """
    return judge_snapshot(subject, "multihead_self_attention")


@check(
    "components.multihead_self_attention_with_rope",
    task="multihead_self_attention",
    needs=["run_multihead_self_attention_with_rope"],
    snapshot="multihead_self_attention_with_rope",
    after=[
        "components.multihead_self_attention",
        "components.rope",
        "components.attention_theta",
        "components.batch_and_heads[multihead_self_attention_with_rope]",
    ],
)
def multihead_self_attention_with_rope(subject: Subject) -> float:
    """Causal multi-head self-attention with queries and keys rotated, head by head.

    Usually broken by rotating the values too, by rotating before the split into heads, or by rotating one of the two.
    """
    return judge_snapshot(subject, "multihead_self_attention_with_rope")


@check(
    "components.transformer_block",
    task="transformer_block",
    needs=["run_transformer_block"],
    snapshot="transformer_block",
    after=[
        "components.rmsnorm",
        "components.swiglu",
        "components.multihead_self_attention_with_rope",
        "components.block_theta",
        "components.batch_and_heads[transformer_block]",
    ],
)
def transformer_block(subject: Subject) -> float:
    """One pre-norm block: x + attention(norm(x)), then x + feed_forward(norm(x)).

    Usually broken by normalising after the sublayer, by a residual taken from the normed input, or one norm used twice.
    """
    return judge_snapshot(subject, "transformer_block")
