"""What published decoders have beside this one's sizes: heads of another width, biases, norms on queries and keys.

The owned decoder has none of it, so the checks and the fault dictionary know :class:`DecoderShape` alone. Imports no
torch.
"""

from __future__ import annotations

import dataclasses

from cs336_harness.shapes import DecoderShape


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Architecture(DecoderShape):
    """A decoder's shape with what its family adds.

    ``head_dim`` is the width of a head where it is not d_model / num_heads. ``biases`` names the matrices of a block
    that have a bias (``q_proj``, ``w1``, …). ``qk_norm`` puts a norm with a gain of d_head on queries and on keys.
    """

    head_dim: int | None = None
    biases: tuple[str, ...] = ()
    qk_norm: bool = False

    @property
    def d_head(self) -> int:
        """Channels of one head."""
        return self.d_model // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def d_q(self) -> int:
        """Channels of all query heads together."""
        return self.d_model if self.head_dim is None else self.num_heads * self.head_dim

    def layer_weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name within a layer -> size; a bias follows its matrix."""
        shapes: dict[str, tuple[int, ...]] = {}
        for name, size in DecoderShape.layer_weight_shapes(self).items():
            shapes[name] = size
            module = name.removesuffix(".weight")
            if module.rpartition(".")[2] in self.biases:
                shapes[f"{module}.bias"] = size[:1]
        if self.qk_norm:
            shapes |= {"attn.q_norm.weight": (self.d_head,), "attn.k_norm.weight": (self.d_head,)}
        return shapes

    def features(self) -> list[str]:
        """What it adds, in words; nothing for a decoder like the owned one."""
        said = [f"head_dim {self.head_dim}"] if self.d_q != self.d_model else []
        said += [f"biases on {', '.join(self.biases)}"] if self.biases else []
        return said + (["norms on queries and keys"] if self.qk_norm else [])


def features_of(shape: DecoderShape) -> list[str]:
    """What a shape has that the owned decoder has not, in words."""
    return shape.features() if isinstance(shape, Architecture) else []
