"""The models of the accounting problem: GPT-2's four sizes in the shape that the handouts give them."""

from cs336_harness.shapes import DecoderShape

HANDOUTS = (2026, 2025)

_SIZES = {
    "gpt2-small": (12, 768, 12),
    "gpt2-medium": (24, 1024, 16),
    "gpt2-large": (36, 1280, 20),
    "gpt2-xl": (48, 1600, 25),
}

PRESET_NAMES = tuple(_SIZES)

D_FF_RULES = {2026: "the nearest multiple of 64 to 8/3 of d_model", 2025: "4 times d_model"}


def nearest_multiple_of_64(numerator: int, denominator: int) -> int:
    """The multiple of 64 nearest to a fraction, the upper one when two are as near."""
    return (2 * numerator + 64 * denominator) // (128 * denominator) * 64


def handout_d_ff(d_model: int, handout: int) -> int:
    """d_ff of a model of this width: 4288 for 1600 in the 2026 handout, 6400 in the 2025 one.

    Raises:
        ValueError: there is no such handout.
    """
    if handout not in HANDOUTS:
        raise ValueError(f"there is no {handout} handout here; choose {' or '.join(map(str, HANDOUTS))}")
    return 4 * d_model if handout == 2025 else nearest_multiple_of_64(8 * d_model, 3)


def preset(name: str, handout: int = 2026) -> DecoderShape:
    """One of GPT-2's sizes: vocabulary 50257, context 1024, untied, as many key/value heads as query heads.

    Raises:
        ValueError: the name or the handout is not known.
    """
    if name not in _SIZES:
        raise ValueError(f"{name} is no preset; choose one of {', '.join(PRESET_NAMES)}")
    num_layers, d_model, num_heads = _SIZES[name]
    return DecoderShape(
        vocab_size=50257,
        context_length=1024,
        d_model=d_model,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        d_ff=handout_d_ff(d_model, handout),
    )


def readable_preset(name: str) -> str:
    """A preset's name as people write it: GPT-2 XL, GPT-2 small."""
    return name.replace("gpt2-xl", "GPT-2 XL").replace("gpt2-", "GPT-2 ")
