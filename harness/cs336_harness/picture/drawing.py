"""Where each part stands in the drawing: from the token ids at the bottom to the logits at the top, as in the handout.

One unit is one pixel of a drawing that is :data:`WIDTH` wide, the width of a telephone.
"""

from __future__ import annotations

import dataclasses

WIDTH, HEIGHT = 400, 936


@dataclasses.dataclass(frozen=True, slots=True)
class Box:
    """A box of one part. ``frame`` holds other boxes and has its label at its upper edge; ``round`` is an addition."""

    part: str
    label: str
    x: int
    y: int
    width: int
    height: int = 32
    frame: bool = False
    round: bool = False

    @property
    def middle(self) -> tuple[float, float]:
        """The centre."""
        return self.x + self.width / 2, self.y + self.height / 2


MIDDLE = 180

BOXES = (
    Box("decoder", "whole decoder", 4, 36, 392, 826, frame=True),
    Box("logits", "logits", MIDDLE - 60, 4, 120, 26),
    Box("head", "head", MIDDLE - 90, 64, 180),
    Box("ln_final", "RMSNorm · final", MIDDLE - 90, 114, 180),
    Box("layers", "block", 20, 166, 320, 614, frame=True),
    Box("residual2", "+", MIDDLE - 13, 184, 26, 26, round=True),
    Box("feed_forward", "feed-forward", 40, 226, 268, 148, frame=True),
    Box("down", "W2", 84, 246, 192, 30),
    Box("silu", "SiLU", 64, 290, 104, 30),
    Box("up", "W1", 64, 334, 104, 30),
    Box("up", "W3", 192, 334, 104, 30),
    Box("ln2", "RMSNorm", MIDDLE - 90, 388, 180),
    Box("residual1", "+", MIDDLE - 13, 442, 26, 26, round=True),
    Box("attention", "self-attention", 40, 484, 268, 226, frame=True),
    Box("heads", "heads", 212, 474, 84, 22),
    Box("output", "output projection", 72, 506, 216, 30),
    Box("sdpa", "scaled dot-product", 50, 556, 248, 58, frame=True),
    Box("scores", "QKᵀ/√d", 57, 574, 80, 30),
    Box("mask", "mask", 143, 574, 64, 30),
    Box("softmax", "softmax", 213, 574, 79, 30),
    Box("rope", "RoPE", 57, 628, 156, 30),
    Box("projections", "Q", 57, 672, 74, 30),
    Box("projections", "K", 139, 672, 74, 30),
    Box("projections", "V", 221, 672, 74, 30),
    Box("ln1", "RMSNorm", MIDDLE - 90, 724, 180),
    Box("embedding", "token embedding", MIDDLE - 90, 802, 180, 34),
    Box("tie", "tied", 345, 420, 46, 28),
    Box("configuration", "configuration", 4, 900, 136),
    Box("accounting", "accounting", 148, 900, 122),
    Box("cache", "KV cache", 278, 900, 118),
)

LINES = (
    f"M{MIDDLE} 882V836",
    f"M{MIDDLE} 802V756",
    f"M{MIDDLE} 724V718M94 672V658M176 672V658M94 628V614M176 628V614M258 672V614",
    f"M{MIDDLE} 718H94V702M{MIDDLE} 718H176V702M{MIDDLE} 718H258V702",
    "M137 589H143M207 589H213",
    f"M{MIDDLE} 546V536M{MIDDLE} 506V468M{MIDDLE} 442V420",
    f"M{MIDDLE} 388V380H116V364M{MIDDLE} 380H244V364",
    f"M116 334V320M168 305H233M244 334V316M244 294V276M{MIDDLE} 246V210M{MIDDLE} 184V146",
    f"M{MIDDLE} 114V96M{MIDDLE} 64V30",
)
"""The way of the stream, upwards."""

SKIPS = (f"M{MIDDLE} 768H324V455H193", f"M{MIDDLE} 431H324V197H193")
"""The residual stream around each sublayer."""

TIE = "M270 819H368V448M368 420V80H270"
