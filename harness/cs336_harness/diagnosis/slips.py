"""Exceptions that have a usual cause: what the subject raised, in the terms of the contract."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from torch import Tensor

from cs336_harness.contract import MODEL_ENTRY_POINTS
from cs336_harness.defects import Place
from cs336_harness.diagnosis.wording import Diagnosis
from cs336_harness.subject.failures import CheckFailure, Evidence
from cs336_harness.subject.text import text_of

Slip = tuple[str, str]
"""The place, and what is wrong there."""

PLACES = {
    "run_linear": Place.LINEAR,
    "run_embedding": Place.EMBEDDING,
    "run_rmsnorm": Place.NORM,
    "run_silu": Place.FEED_FORWARD,
    "run_swiglu": Place.FEED_FORWARD,
    "run_rope": Place.POSITIONS,
}
"""Where a component's own mistake is; that of all others is in attention or somewhere in the decoder."""


def slip_of(failure: CheckFailure) -> Diagnosis | None:
    """The usual cause of a failure's exception; None where there is none."""
    cause = failure.__cause__
    text = text_of(cause) if isinstance(cause, RuntimeError) else failure.message
    text = " ".join(text.split())
    found = next(filter(None, (read(text, failure.evidence) for read in READERS)), None)
    return None if found is None else Diagnosis(where=found[0], confidence="likely", reading=found[1])


PRODUCT = re.compile(r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)")


def _product(text: str, evidence: Evidence) -> Slip | None:
    found = PRODUCT.search(text)
    if found is None:
        return None
    _, inner, out, into = map(int, found.groups())
    if inner != into:
        return None
    return Place.LINEAR, (
        f"x @ W is computed with W of shape ({out}, {into}); weights are stored (out, in), so y = W x is"
        f" x @ W.T: ({inner}) times ({into}, {out}) gives ({out})"
    )


EINSUM = re.compile(r"subscript \w+ has size (\d+) for operand \d+ which does not broadcast with .*? size (\d+)")


def _einsum(text: str, evidence: Evidence) -> Slip | None:
    found = EINSUM.search(text)
    if found is None:
        return None
    sizes = {int(size) for size in found.groups()}
    weight = next((shape for shape in _shapes(evidence) if len(shape) == 2 and {*shape} == sizes), None)
    if weight is None:
        return None
    return Place.LINEAR, (
        f"the einsum names the axes of the weight {weight} as (in, out); weights are stored (out, in),"
        ' as in "... d_in, d_out d_in -> ... d_out"'
    )


ADDED = re.compile(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension")


def _lost_axis(text: str, evidence: Evidence) -> Slip | None:
    found = ADDED.search(text)
    if found is None or evidence.entry_point not in ("run_rmsnorm", "run_softmax"):
        return None
    sizes = {int(size) for size in found.groups()}
    shape = next((shape for shape in _shapes(evidence) if len(shape) > 1 and {*shape[-2:]} == sizes), None)
    if shape is None:
        return None
    kept, lost = (*shape[:-1], 1), shape[:-1]
    return PLACES.get(evidence.entry_point, Place.ATTENTION), (
        f"{lost} meets {shape}: a mean, sum or maximum has dropped the axis that it ran over; with keepdim=True it is"
        f" {kept}, which fits"
    )


def _time_for_batch(text: str, evidence: Evidence) -> Slip | None:
    """One row of positions whose time meets the batch: an axis was added behind time, where it belongs in front."""
    found = ADDED.search(text)
    arguments = evidence.arguments or {}
    x, positions = arguments.get("in_query_or_key"), arguments.get("token_positions")
    if found is None or evidence.entry_point != "run_rope" or x is None or positions is None or positions.ndim != 1:
        return None
    if x.ndim < 3 or {int(size) for size in found.groups()} != {x.shape[0], x.shape[-2]} or x.shape[0] == x.shape[-2]:
        return None
    return Place.POSITIONS, (
        f"cos and sin have time where in_query_or_key {tuple(x.shape)} has its batch: an axis was added behind time;"
        f" positions ({len(positions)},) fit as they are, and with more axes these stand in front: unsqueeze(0)"
    )


def _truth(text: str, evidence: Evidence) -> Slip | None:
    if "Boolean value of Tensor with more than one value is ambiguous" not in text:
        return None
    return PLACES.get(evidence.entry_point or "", "the condition"), (
        "an `if`, `not`, `and` or `or` asks a whole tensor whether it is true; whether an argument was left out is"
        " `if x is None`, and of the elements .any() or .all() is asked"
    )


DTYPES = re.compile(
    r"expected scalar type (\w+) but found (\w+)"
    r"|same dtype, but got:? (?:m1 |mat1 )?(\w+(?: int)?) (?:!=|and) (\w+(?: int)?)"
)
NAMES = {"Double": "float64", "double": "float64", "Float": "float32", "float": "float32", "Half": "float16"}
NAMES |= {"BFloat16": "bfloat16", "c10::BFloat16": "bfloat16", "Long": "int64", "long int": "int64", "long": "int64"}


def _dtypes(text: str, evidence: Evidence) -> Slip | None:
    found = DTYPES.search(text)
    if found is None:
        return None
    one, other = (NAMES.get(name, name) for name in filter(None, found.groups()))
    given = {str(value.dtype).removeprefix("torch.") for value in _tensors(evidence) if value.is_floating_point()}
    made = [name for name in (one, other) if name not in given]
    if len(made) != 1 or not given:
        return None
    where = PLACES.get(evidence.entry_point or "", "dtypes")
    usual = "an integer tensor such as one_hot" if made[0] == "int64" else f"torch.{made[0]}, .to(…), a NumPy array"
    return where, (
        f"what is given is {' and '.join(sorted(given))}, and something on the way becomes {made[0]} ({usual}): a"
        " product needs one dtype on both sides"
    )


def _tensors(evidence: Evidence) -> Iterator[Tensor]:
    for value in (evidence.arguments or {}).values():
        yield from (
            each for each in (value.values() if isinstance(value, dict) else (value,)) if isinstance(each, Tensor)
        )


def _shapes(evidence: Evidence) -> Iterator[tuple[int, ...]]:
    yield from (tuple(tensor.shape) for tensor in _tensors(evidence))


LOADING = "Error(s) in loading state_dict"
SIZE = re.compile(
    r"size mismatch for (\S+): copying a param with shape torch\.Size\(\[([\d, ]*)\]\) from checkpoint,"
    r" the shape in current model is torch\.Size\(\[([\d, ]*)\]\)"
)
NAMES_OF_WEIGHTS = "names of the weights"


def _loading(text: str, evidence: Evidence) -> Slip | None:
    if LOADING not in text or evidence.entry_point not in MODEL_ENTRY_POINTS:
        return None
    missing, unexpected = _listed(text, "Missing"), _listed(text, "Unexpected")
    if missing and unexpected:
        return NAMES_OF_WEIGHTS, (
            f"one weight has two names: the module calls it {missing[0]}, and it is loaded as {unexpected[0]}; both"
            " must be the same"
            if len(missing) == len(unexpected) == 1
            else f"the module's names are not those that are loaded: it has {_some(missing)}, and is given"
            f" {_some(unexpected)}"
        )
    if unexpected:
        listed = all(re.match(r"(\w+\.)?\d+\.", name.removeprefix("layers.")) for name in unexpected)
        why = "; blocks in a plain Python list are not seen by PyTorch: nn.ModuleList registers them" if listed else ""
        return NAMES_OF_WEIGHTS, f"the module has no Parameter called {_some(unexpected)}{why}"
    if missing:
        table = "a table that is not trained is made with register_buffer(…, persistent=False): it is not looked for"
        own = "the contract has no biases" if all(name.endswith("bias") for name in missing) else table
        return NAMES_OF_WEIGHTS, f"the module has {_some(missing)}, and nothing of that name is loaded; {own}"
    return _sizes(text)


def _sizes(text: str) -> Slip | None:
    found = [(name, _numbers(given), _numbers(own)) for name, given, own in SIZE.findall(text)]
    turned = [name for name, given, own in found if given == own[::-1] and given != own]
    if not found or len(turned) != len(found):
        return None
    if len(found) == 2 and found[0][1] == found[1][2]:
        (one, _, _), (other, _, _) = found
        return Place.FEED_FORWARD if "w2" in one + other else "shapes of the weights", (
            f"{one} is given what belongs to {other}, and {other} what belongs to {one}: they are exchanged where they"
            " are loaded, or both are made as (in, out)"
        )
    name, given, own = found[0]
    return Place.LINEAR, f"{name} is made with the shape {own} and given {given}: weights are stored (out, in)"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number.strip())


def _listed(text: str, kind: str) -> list[str]:
    found = re.search(rf"{kind} key\(s\) in state_dict: ((?:\"[^\"]*\"(?:, )?)+)", text)
    return re.findall(r'"([^"]*)"', found.group(1)) if found else []


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"


READERS: tuple[Callable[[str, Evidence], Slip | None], ...] = (
    _product,
    _einsum,
    _lost_axis,
    _time_for_batch,
    _truth,
    _dtypes,
    _loading,
)
