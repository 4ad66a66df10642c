"""Where each part stands in the drawing: from the token ids at the bottom to the logits at the top, as in the handout.

One unit is one pixel of a drawing that is :data:`WIDTH` wide, the width of a telephone.
"""

from __future__ import annotations

import dataclasses

WIDTH, HEIGHT = 400, 768


@dataclasses.dataclass(frozen=True, slots=True)
class Box:
    """A box of one part. ``frame`` holds other boxes and has its label at its upper edge; ``round`` is an addition."""

    part: str
    label: str
    x: int
    y: int
    width: int
    height: int = 28
    frame: bool = False
    round: bool = False

    @property
    def middle(self) -> tuple[float, float]:
        """The centre."""
        return self.x + self.width / 2, self.y + self.height / 2


MIDDLE = 180

BOXES = (
    Box("decoder", "whole decoder", 4, 32, 392, 678, frame=True),
    Box("logits", "logits", MIDDLE - 60, 2, 120, 24),
    Box("head", "head", MIDDLE - 90, 48, 180),
    Box("ln_final", "RMSNorm · final", MIDDLE - 90, 88, 180),
    Box("layers", "block", 20, 134, 320, 518, frame=True),
    Box("residual2", "+", MIDDLE - 12, 148, 24, 24, round=True),
    Box("feed_forward", "feed-forward", 40, 186, 268, 128, frame=True),
    Box("down", "W2", 84, 202, 192),
    Box("silu", "SiLU", 64, 240, 104),
    Box("up", "W1", 64, 278, 104),
    Box("up", "W3", 192, 278, 104),
    Box("ln2", "RMSNorm", MIDDLE - 90, 326, 180),
    Box("residual1", "+", MIDDLE - 12, 366, 24, 24, round=True),
    Box("attention", "self-attention", 40, 404, 268, 196, frame=True),
    Box("heads", "heads", 212, 394, 84, 22),
    Box("output", "output projection", 72, 420, 216),
    Box("sdpa", "scaled dot-product", 50, 464, 248, 52, frame=True),
    Box("scores", "QKᵀ/√d", 57, 480, 80),
    Box("mask", "mask", 143, 480, 64),
    Box("softmax", "softmax", 213, 480, 79),
    Box("rope", "RoPE", 57, 526, 156),
    Box("projections", "Q", 57, 564, 74),
    Box("projections", "K", 139, 564, 74),
    Box("projections", "V", 221, 564, 74),
    Box("ln1", "RMSNorm", MIDDLE - 90, 612, 180),
    Box("embedding", "token embedding", MIDDLE - 90, 668, 180, 30),
    Box("tie", "tied", 341, 370, 54),
    Box("configuration", "configuration", 4, 738, 136),
    Box("accounting", "accounting", 148, 738, 122),
    Box("cache", "KV cache", 278, 738, 118),
)

LINES = (
    f"M{MIDDLE} 716V698",
    f"M{MIDDLE} 668V640",
    f"M{MIDDLE} 612V606M94 564V554M176 564V554M94 526V516M176 526V516M258 564V516",
    f"M{MIDDLE} 606H94V592M{MIDDLE} 606H176V592M{MIDDLE} 606H258V592",
    "M137 494H143M207 494H213",
    f"M{MIDDLE} 455V448M{MIDDLE} 420V390M{MIDDLE} 366V354",
    f"M{MIDDLE} 326V320H116V306M{MIDDLE} 320H244V306",
    f"M116 278V268M168 254H233M244 278V265M244 243V230M{MIDDLE} 202V172M{MIDDLE} 148V116",
    f"M{MIDDLE} 88V76M{MIDDLE} 48V26",
)
"""The way of the stream, upwards."""

SKIPS = (f"M{MIDDLE} 646H324V378H{MIDDLE + 13}", f"M{MIDDLE} 360H324V160H{MIDDLE + 13}")
"""The residual stream around each sublayer."""

TIE = "M270 683H368V398M368 370V62H270"

TIMES = (244, 254)
"""Where SiLU's part and W3's are multiplied."""

TOKENS = (MIDDLE, 729)
"""Where the token ids are named, below all."""
