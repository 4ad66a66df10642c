"""The closing drills, optional: three numpy functions from other prompts than the assignment's, held against PyTorch.

Nothing here belongs to the verdict on a decoder. A drill is *passed*, *failed* or *blank*; the reason for a failure is
one line that says what the prompt asks for. Expected numbers come from
``torch.nn.functional.scaled_dot_product_attention`` and ``torch.nn.MultiheadAttention``, never from the oracle.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib.util
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from cs336_harness.subject.calling import Subject
from cs336_harness.subject.time_limit import Clock, TimeUp, did_not_end

PLACE = Path("drills") / "attention.py"
"""Where a repository keeps them."""

LIMIT = 1e-9
"""Largest difference that passes, relative to the largest number; everything is float64."""

Function = Callable[..., Any]


class WrongDrillError(Exception):
    """A drill is not right. The text is one line."""


@dataclasses.dataclass(frozen=True, slots=True)
class DrillResult:
    """What became of one drill: ``passed``, ``failed`` or ``blank``, and why."""

    name: str
    outcome: str
    message: str = ""


def numbers(*size: int, seed: int) -> np.ndarray:
    """Normal float64 numbers of their own seed."""
    return np.random.default_rng(seed).standard_normal(size)


def _require(right: bool, message: str) -> None:
    if not right:
        raise WrongDrillError(message)


def _require_shape(what: str, found: Any, shape: tuple[int, ...]) -> np.ndarray:
    _require(
        isinstance(found, np.ndarray), f"{what} is a {type(found).__name__}; return a numpy array of shape {shape}"
    )
    _require(found.shape == shape, f"{what} has the shape {found.shape}; the prompt asks for {shape}")
    return found


def _require_close(what: str, found: np.ndarray, expected: np.ndarray, teach: str) -> None:
    wrong = ~(np.abs(found - expected) <= LIMIT * np.abs(expected).max())
    if wrong.any():
        place = tuple(int(index) for index in np.argwhere(wrong)[0])
        raise WrongDrillError(
            f"{what} differs in {int(wrong.sum())} of {wrong.size} numbers, first at {place}: got {found[place]:.6g},"
            f" expected {expected[place]:.6g}; {teach}"
        )


def attention(Q: np.ndarray, K: np.ndarray, V: np.ndarray, **options: Any) -> np.ndarray:
    """PyTorch's attention on numpy arrays."""
    q, k, v = (torch.from_numpy(array) for array in (Q, K, V))
    return F.scaled_dot_product_attention(q, k, v, **options).numpy()


def check_scaled_dot_product_attention(function: Function) -> None:
    """Without and with a mask, of which True blocks; huge scores; the weights."""
    Q, K, V = numbers(5, 6, seed=1), numbers(7, 6, seed=2), numbers(7, 3, seed=3)
    blocked = numbers(5, 7, seed=4) > 0
    blocked[:, 2] = False
    for mask in (None, blocked):
        given = {"blocked": mask} if mask is not None else {}
        returned = function(Q.copy(), K.copy(), V.copy(), **given)
        _require(isinstance(returned, tuple) and len(returned) == 2, "return two arrays: the output and the weights")
        output, weights = (
            _require_shape("the output", returned[0], (5, 3)),
            _require_shape("weights", returned[1], (5, 7)),
        )
        _require(bool(np.allclose(weights.sum(1), 1)), "each query's weights must sum to 1: softmax runs over the keys")
        if mask is not None:
            _require(not weights[mask].any(), "a blocked key has a weight above 0: here True means blocked")
        attends = None if mask is None else torch.from_numpy(~mask)
        expected = attention(Q, K, V, attn_mask=attends)
        _require_close("the output", output, expected, "softmax(Q Kᵀ / √d) V, with d the channels of a query")
        _require_close("weights times V", weights @ V, output, "return the weights that made the output")
    huge = np.full((1, 4), 100.0)
    output, _ = function(huge, np.concatenate([huge, -huge]), numbers(2, 3, seed=3))
    finite = bool(np.isfinite(output).all())
    _require(finite, "scores of 10000 give NaN or infinity: subtract each row's maximum before exp")


def check_self_attention(function: Function) -> None:
    """Three different widths; both directions."""
    X, W_q, W_k, W_v = numbers(6, 8, seed=5), numbers(8, 5, seed=6), numbers(8, 5, seed=7), numbers(8, 3, seed=8)
    output = _require_shape("the output", function(X.copy(), W_q.copy(), W_k.copy(), W_v.copy()), (6, 3))
    expected = attention(X @ W_q, X @ W_k, X @ W_v)
    causal = attention(X @ W_q, X @ W_k, X @ W_v, is_causal=True)
    _require(not np.allclose(output, causal), "this is causal attention; the prompt asks for both directions")
    _require_close("the output", output, expected, "queries are X W_q, keys X W_k, values X W_v, the scale 1/√d")


def check_multi_head_self_attention(function: Function) -> None:
    """Batch, heads, length and width are four numbers; causal; rows do not mix."""
    batch, time, width, heads = 3, 5, 8, 4
    X = numbers(batch, time, width, seed=9)
    W_q, W_k, W_v, W_o = (numbers(width, width, seed=seed) for seed in (10, 11, 12, 13))
    weights = [W_q, W_k, W_v, W_o]

    def called(x: np.ndarray) -> np.ndarray:
        return _require_shape("the output", function(x.copy(), *(w.copy() for w in weights), heads), x.shape)

    output = called(X)
    later = X.copy()
    later[:, -1] += 1
    unmoved = np.allclose(called(later)[:, :-1], output[:, :-1])
    _require(unmoved, "a change of the last token moves earlier positions: position t knows 0 to t and nothing later")
    _require(
        bool(np.allclose(called(X[1:2]), output[1:2])), "a row alone differs from the same row in the batch: rows mix"
    )
    layer = torch.nn.MultiheadAttention(width, heads, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.from_numpy(np.concatenate([W_q.T, W_k.T, W_v.T])))
        layer.out_proj.weight.copy_(torch.from_numpy(W_o.T))
        blocked = torch.ones(time, time, dtype=torch.bool).triu(1)
        x = torch.from_numpy(X)
        expected = layer(x, x, x, attn_mask=blocked, need_weights=False)[0].numpy()
    _require_close(
        "the output", output, expected, "split channels into heads, attend in each, put heads side by side, W_o"
    )


DRILLS: dict[str, Callable[[Function], None]] = {
    "scaled_dot_product_attention": check_scaled_dot_product_attention,
    "self_attention": check_self_attention,
    "multi_head_self_attention": check_multi_head_self_attention,
}
"""Each drill in order, and what holds it against its reference."""


def judge(path: Path, clock: Clock | None = None) -> list[DrillResult]:
    """What became of each drill in a file; a file that cannot be imported fails all three with its error.

    ``clock`` limits the time of each drill.
    """
    clock = clock or Clock()
    try:
        with _kept_to_itself(path), clock.running(f"importing {PLACE}"):
            module = _import(path)
    except KeyboardInterrupt:
        raise
    except TimeUp as up:
        return [DrillResult(name, "failed", did_not_end(f"importing {PLACE}", up.seconds)) for name in DRILLS]
    except BaseException as error:  # sys.exit() is no Exception
        return [DrillResult(name, "failed", f"{path.name}: {type(error).__name__}: {error}") for name in DRILLS]
    with _kept_to_itself(path):
        return [_judge(name, check, getattr(module, name, None), clock) for name, check in DRILLS.items()]


@contextlib.contextmanager
def _kept_to_itself(path: Path) -> Generator[None]:
    """Runs a learner's file as a subject's: in its repository, its prints kept to itself, PyTorch's state restored."""
    root = path.resolve().parent.parent if path.parent.name == PLACE.parent.name else path.resolve().parent
    with Subject(None, "drills", root=root).at_home():
        yield


def _judge(name: str, check: Callable[[Function], None], function: Any, clock: Clock) -> DrillResult:
    if not callable(function):
        return DrillResult(name, "failed", f"{PLACE} defines no {name}")
    clock.restart(clock.seconds)
    try:
        with np.errstate(all="ignore"), clock.running(name):  # what comes of an overflow is judged, and said in words
            check(function)
    except NotImplementedError:
        return DrillResult(name, "blank", f"{name} is not written yet; it is optional")
    except WrongDrillError as wrong:
        return DrillResult(name, "failed", f"{name}: {wrong}")
    except KeyboardInterrupt:
        raise
    except TimeUp as up:
        return DrillResult(name, "failed", did_not_end(name, up.seconds))
    except BaseException as error:
        return DrillResult(name, "failed", f"{name} raised {type(error).__name__}: {str(error).partition(chr(10))[0]}")
    return DrillResult(name, "passed")


def _import(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("cs336_drills", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _defines_a_drill(path: Path) -> bool:
    """Whether a file is about the drills at all, found without executing it: a foreign one may have the same place."""
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        tree = ast.parse(text)
    except (ValueError, SyntaxError):  # a typing mistake in a learner's drills is told
        return any(f"def {name}(" in text for name in DRILLS)
    return any(isinstance(node, ast.FunctionDef) and node.name in DRILLS for node in tree.body)


def lines(root: Path, judge: Callable[[Path], list[DrillResult]] = judge) -> list[str]:
    """Where a learner stands with the drills of a repository: nothing when it has none. ``judge`` judges the file."""
    path = root / PLACE
    if not path.is_file() or not _defines_a_drill(path):
        return []
    results = judge(path)
    passed = [result for result in results if result.outcome == "passed"]
    following = next((result for result in results if result.outcome != "passed"), None)
    said = f"optional, closing drills in {PLACE}: {len(passed)} of {len(results)} passed"
    if following is None:
        return [said]
    return [said, f"  next: {following.message}" if following.outcome == "failed" else f"  next: {following.name}"]
