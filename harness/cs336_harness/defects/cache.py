"""Defects of incremental decoding: what a cache of keys and values holds, for whom, and which positions are given to
what comes next.

Shapes: ``B`` rows, ``n`` tokens of the piece, ``h`` tokens held before it, ``K`` = num_kv_heads, ``d`` = d_head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from cs336_harness.defects.cached import CacheDefect
from cs336_harness.defects.defect import Place, defect

ONE_PIECE_AGAINST_MANY = (
    "Feed the same tokens once whole and once in two pieces: the logits must be the same, up to rounding.",
    "Print the positions that the first token of the second piece is rotated by.",
)
ASK_TWICE = (
    "Decode one text, then another, then the first again: the first and the third result must be equal.",
    "Print how many tokens the cache holds before the first piece of each call.",
)
WHO_SEES_WHAT = (
    "Feed a piece of two tokens after a piece of three, and print the mask: 2 rows, 5 columns.",
    "Row 0 stands at position 3 and sees four keys; row 1 sees all five.",
)


@defect(
    "cache-positions-restart",
    Place.CACHE,
    hint="Which position has the first token of the second piece?",
    steps=ONE_PIECE_AGAINST_MANY,
)
class PositionsRestart(CacheDefect):
    """Each piece is rotated as if it began at position 0: the cache is right, the positions are not counted on."""

    def first_position(self) -> int:
        return 0


@defect(
    "cache-positions-count-pieces",
    Place.CACHE,
    hint="Is the position a count of tokens, or of calls?",
    steps=ONE_PIECE_AGAINST_MANY,
)
class PositionsCountPieces(CacheDefect):
    """A piece begins at the number of pieces before it, not of tokens: right only while pieces are single tokens."""

    def first_position(self) -> int:
        return self.pieces


@defect(
    "cache-positions-one-late",
    Place.CACHE,
    hint="Is the count of tokens raised before the piece is rotated, or after?",
    steps=ONE_PIECE_AGAINST_MANY,
)
class PositionsOneLate(CacheDefect):
    """Every piece but the first begins one position too late."""

    def first_position(self) -> int:
        return self.seen + (self.seen > 0)


@defect(
    "cache-positions-one-early",
    Place.CACHE,
    hint="With five tokens held, which position comes next: 4 or 5?",
    steps=ONE_PIECE_AGAINST_MANY,
)
class PositionsOneEarly(CacheDefect):
    """Every piece but the first begins at the position of the last token held, which then occurs twice."""

    def first_position(self) -> int:
        return max(self.seen - 1, 0)


@defect(
    "cache-mask-ignores-held-keys",
    Place.CACHE,
    hint="The mask of a piece has as many columns as there are keys. In which column does a query's own key stand?",
    steps=WHO_SEES_WHAT,
)
class MaskIgnoresHeldKeys(CacheDefect):
    """The causal mask begins at the top left: query i of a piece sees the keys 0 to i of the whole text."""

    def visible_in_piece(self, query: int, new: int, held: int) -> Sequence[int]:
        return range(query + 1)


@defect(
    "cache-no-mask-in-later-pieces",
    Place.CACHE,
    hint="A single new token may see everything. May the first of several?",
    steps=WHO_SEES_WHAT,
)
class NoMaskInLaterPieces(CacheDefect):
    """With tokens held there is no mask at all: in a piece of several tokens the earlier ones see the later ones."""

    def visible_in_piece(self, query: int, new: int, held: int) -> Sequence[int]:
        return range(held + (new if held else query + 1))


@defect(
    "cache-blind-within-a-piece",
    Place.CACHE,
    hint="Does a token of the piece see the earlier tokens of its own piece?",
    steps=WHO_SEES_WHAT,
)
class BlindWithinAPiece(CacheDefect):
    """A token sees what the cache held before its piece and itself, but not the tokens between."""

    def visible_in_piece(self, query: int, new: int, held: int) -> Sequence[int]:
        return [*range(held), held + query] if held else range(query + 1)


@defect(
    "cache-rotates-held-keys-again",
    Place.CACHE,
    hint="How often is a key that stays in the cache rotated?",
    steps=(
        "Print one key of position 1 right after it is written, and again two steps later: it must not have turned.",
    ),
)
class RotatesHeldKeysAgain(CacheDefect):
    """The keys of the cache are rotated already and are rotated once more with every piece that follows."""

    def held_keys(self, keys: Tensor, new: int) -> Tensor:
        held = keys.shape[-2] - new
        again = self.rotate_keys(keys[..., :held, :], torch.arange(held), self.shape.rope_theta)
        return torch.cat([again, keys[..., held:, :]], dim=-2)


@defect(
    "cache-plain-keys",
    Place.CACHE,
    hint="Nothing to fix: it costs a rotation of every key at every step.",
    equivalent="Keys that are kept plain and all rotated anew by their own positions are the same keys.",
)
class KeepsPlainKeys(CacheDefect):
    """The cache holds keys that are not rotated; all of them are rotated anew for each piece."""

    def rotate_new_keys(self, keys: Tensor, positions: Tensor) -> Tensor:
        return keys

    def held_keys(self, keys: Tensor, new: int) -> Tensor:
        return self.rotate_keys(keys, self.positions_of_held(keys.shape[-2], new), self.shape.rope_theta)

    def positions_of_held(self, total: int, new: int) -> Tensor:
        """The position of each key, the new ones included: (total,)."""
        return torch.arange(total)


@defect(
    "cache-plain-keys-at-the-piece",
    Place.CACHE,
    hint="The keys are rotated when they are read: by their own positions, or by those of the piece that reads them?",
    steps=ONE_PIECE_AGAINST_MANY,
)
class PlainKeysAtThePiece(KeepsPlainKeys):
    """Keys are kept plain and rotated when they are read, counting from the position of the new piece."""

    def positions_of_held(self, total: int, new: int) -> Tensor:
        return torch.arange(total) + (total - new)


@defect(
    "cache-plain-keys-never-rotated",
    Place.CACHE,
    hint="Keys are kept before the rotation. Who rotates the ones that are held?",
    steps=ONE_PIECE_AGAINST_MANY,
)
class PlainKeysNeverRotated(KeepsPlainKeys):
    """Keys are kept plain, and only those of the new piece are rotated."""

    def held_keys(self, keys: Tensor, new: int) -> Tensor:
        held = keys.shape[-2] - new
        fresh = self.rotate_keys(keys[..., held:, :], torch.arange(held, held + new), self.shape.rope_theta)
        return torch.cat([keys[..., :held, :], fresh], dim=-2)


@defect(
    "cache-values-one-piece-late",
    Place.CACHE,
    hint="Are the values of the piece in the cache before it is read?",
    steps=("After a piece of one token, print the last row of the values that attention gets.",),
)
class ValuesOnePieceLate(CacheDefect):
    """The values of a piece are written after attention has read: in their place stand the last ones before."""

    def held_values(self, values: Tensor, new: int) -> Tensor:
        held = values.shape[-2] - new
        if not held:
            return values
        stale = values[..., held - 1 : held, :].expand(*values.shape[:-2], new, values.shape[-1])
        return torch.cat([values[..., :held, :], stale], dim=-2)


@defect(
    "cache-never-emptied",
    Place.CACHE,
    hint="What does the cache hold when a second text begins?",
    steps=ASK_TWICE,
)
class NeverEmptied(CacheDefect):
    """The next text begins behind the last one: its tokens see what was held, at positions that go on."""

    def empty(self) -> None:
        if self.held and next(iter(self.held.values()))[0].shape[0] != self.rows:
            super().empty()


@defect(
    "cache-keys-outlive-the-text",
    Place.CACHE,
    hint="The count of tokens begins at 0 again. Do the keys and values?",
    steps=ASK_TWICE,
)
class KeysOutliveTheText(CacheDefect):
    """The count starts again at 0, but the keys and values of the last text stay and are seen."""

    def empty(self) -> None:
        self.seen = self.pieces = 0
        if self.held and next(iter(self.held.values()))[0].shape[0] != self.rows:
            self.held.clear()


@defect(
    "cache-shared-by-models",
    Place.CACHE,
    hint="Is the cache made for each call, or once for the class?",
    steps=(
        "Build two models, decode with the first, then with the second: the second must not know the first one's text.",
    ),
)
class SharedByModels(CacheDefect):
    """One cache for all models, made with the class: it is emptied when a model begins the text after its first."""

    everybody: ClassVar[dict[int, tuple[Tensor, Tensor]]] = {}
    fresh = True

    def empty(self) -> None:
        if not self.fresh:
            super().empty()
        self.fresh = False
        held = type(self).everybody
        sizes = (self.rows, self.shape.num_kv_heads, self.shape.d_head)
        if any((keys.shape[0], keys.shape[1], keys.shape[3]) != sizes for keys, _ in held.values()):
            held.clear()
        self.held = held


@defect(
    "cache-shared-by-layers",
    Place.CACHE,
    hint="How many layers are there, and how many caches?",
    steps=("Print the keys that layer 0 and layer 1 read for position 0: they must differ.",),
)
class SharedByLayers(CacheDefect):
    """One piece of memory for all layers: every layer reads what the last layer wrote for the earlier pieces."""

    def keep(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        last = self.held.get(self.shape.num_layers - 1)
        if last is not None and self.layer < self.shape.num_layers - 1:
            self.held[self.layer] = last
        return super().keep(keys, values)


@defect(
    "cache-shared-by-rows",
    Place.CACHE,
    hint="Has the cache a batch axis, and does each row read its own?",
    steps=("Decode two different texts as one batch, and each alone: the logits of each must be the same.",),
)
class SharedByRows(CacheDefect):
    """Every row reads what row 0 wrote for the earlier pieces."""

    def held_keys(self, keys: Tensor, new: int) -> Tensor:
        return _of_row_zero(keys, new)

    def held_values(self, values: Tensor, new: int) -> Tensor:
        return _of_row_zero(values, new)


def _of_row_zero(held: Tensor, new: int) -> Tensor:
    before = held.shape[-2] - new
    return torch.cat([held[:1, :, :before].expand(len(held), -1, -1, -1), held[:, :, before:]], dim=-2)


@defect(
    "cache-written-over-when-full",
    Place.CACHE,
    hint="What happens to the token after the last place of the cache?",
    steps=("Fill the context, then feed one token more: it must be refused, with both numbers.",),
)
class WrittenOverWhenFull(CacheDefect):
    """A full cache is written over from its beginning, without a word."""

    def require_room(self, new: int) -> None:
        if self.seen + new > self.shape.context_length:
            self.empty()


@defect(
    "cache-heads-tiled",
    Place.CACHE,
    hint="Four query heads over two key/value heads: does the order of the repeated ones read 0 0 1 1 or 0 1 0 1?",
    steps=("Decode with 6 heads over 2 in two pieces, and as one: only a wrong order of the held heads differs.",),
)
class HeadsTiled(CacheDefect):
    """Key/value heads are repeated on their way into the cache, as 0 1 0 1 where the query heads read 0 0 1 1."""

    def kv_head_of_held(self, head: int) -> int:
        return head % self.shape.num_kv_heads


@defect(
    "cache-drops-last-token",
    Place.CACHE,
    hint="How many tokens does the cache hold after a piece of three?",
    steps=("Print the length of the cache after each piece, beside the number of tokens fed.",),
)
class DropsLastToken(CacheDefect):
    """The last token of each piece is left out of the cache: what follows cannot see it."""

    def after_piece(self, new: int) -> None:
        self.held = {layer: (keys[..., :-1, :], values[..., :-1, :]) for layer, (keys, values) in self.held.items()}


@defect(
    "cache-doubles-last-token",
    Place.CACHE,
    hint="How many tokens does the cache hold after a piece of three?",
    steps=("Print the length of the cache after each piece, beside the number of tokens fed.",),
)
class DoublesLastToken(CacheDefect):
    """The last token of each piece is kept twice: what follows gives it double weight."""

    def after_piece(self, new: int) -> None:
        self.held = {layer: (_last_twice(keys), _last_twice(values)) for layer, (keys, values) in self.held.items()}


def _last_twice(held: Tensor) -> Tensor:
    return torch.cat([held, held[..., -1:, :]], dim=-2)


@defect(
    "cache-first-layer-only",
    Place.CACHE,
    hint="Does every layer read from its cache, or the first alone?",
    steps=("Decode with one layer, then with two: which of them goes wrong in the second piece?",),
)
class FirstLayerOnly(CacheDefect):
    """Only the first layer keeps anything; every other one sees the new piece alone."""

    def after_piece(self, new: int) -> None:
        self.held = {0: self.held[0]}


@defect(
    "cache-positions-in-bfloat16",
    Place.CACHE,
    hint="In which dtype is the running position counted? bfloat16 has no 257.",
    steps=("Print the position of the piece after 300 tokens.",),
)
class PositionsInBfloat16(CacheDefect):
    """The position at which a piece begins is kept in bfloat16, which counts to 256 exactly and no further."""

    def positions_of_piece(self, new: int) -> Tensor:
        return super().positions_of_piece(new).to(torch.bfloat16).to(torch.int64) if self.seen else torch.arange(new)


@defect(
    "cache-leaves-full-pass-cached",
    Place.CACHE,
    hint="After decoding in pieces, does a plain call of the model still begin with an empty cache?",
    steps=("Call the model, decode in pieces, call the model again on the same ids: both calls must agree.",),
)
class LeavesFullPassCached(CacheDefect):
    """The model goes on with its cache after the pieces: a plain call that follows sees the text that was decoded."""

    def transformer_lm(self, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        if self.continues or not self.held or len(token_ids) != self.rows:
            return super().transformer_lm(weights, token_ids)
        self.continues = True
        try:
            return super().transformer_lm(weights, token_ids)
        finally:
            self.continues = False
            self.empty()
