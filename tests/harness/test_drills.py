"""The drills are unsolved as handed out, a solution of each passes, and each usual mistake is named in one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cs336_harness.course import drills
from cs336_harness.places import HOME

SOLUTION = """
import numpy as np

def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)

def scaled_dot_product_attention(Q, K, V, blocked=None):
    scores = Q @ K.T / np.sqrt(Q.shape[-1])
    if blocked is not None:
        scores = np.where(blocked, -np.inf, scores)
    weights = softmax(scores)
    return weights @ V, weights

def self_attention(X, W_q, W_k, W_v):
    return scaled_dot_product_attention(X @ W_q, X @ W_k, X @ W_v)[0]

def multi_head_self_attention(X, W_q, W_k, W_v, W_o, num_heads):
    batch, time, width = X.shape
    q, k, v = (
        (X @ W).reshape(batch, time, num_heads, width // num_heads).transpose(0, 2, 1, 3) for W in (W_q, W_k, W_v)
    )
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(width // num_heads)
    later = np.triu(np.ones((time, time), dtype=bool), 1)
    heads = softmax(np.where(later, -np.inf, scores)) @ v
    return heads.transpose(0, 2, 1, 3).reshape(batch, time, width) @ W_o
"""

MISTAKES = [
    ("np.where(blocked, -np.inf", "np.where(~blocked, -np.inf", 0, "a blocked key has a weight above 0"),
    (" / np.sqrt(Q.shape[-1])", "", 0, "the output differs in .* with d the channels of a query"),
    ("x - x.max(-1, keepdims=True)", "x", 0, "scores of 10000 give NaN or infinity"),
    ("powers.sum(-1, keepdims=True)", "powers.sum(-2, keepdims=True)", 0, "each query's weights must sum to 1"),
    ("return weights @ V, weights", "return weights @ V", 0, "return two arrays"),
    (
        "return weights @ V, weights",
        "return (weights @ V).T, weights",
        0,
        r"the shape \(3, 5\); the prompt asks for \(5, 3\)",
    ),
    ("return weights @ V, weights", "return weights @ V, weights[:, ::-1]", 0, "return the weights|above 0"),
    ("X @ W_q, X @ W_k, X @ W_v", "X @ W_k, X @ W_q, X @ W_v", 1, "queries are X W_q"),
    (
        "X @ W_q, X @ W_k, X @ W_v)[0]",
        "X @ W_q, X @ W_k, X @ W_v, np.triu(np.ones((6, 6)), 1) > 0)[0]",
        1,
        "both directions",
    ),
    ("heads.transpose(0, 2, 1, 3).reshape", "heads.reshape", 2, "moves earlier positions"),
    ("np.sqrt(width // num_heads)", "np.sqrt(width)", 2, "the output differs in .* put heads side by side"),
    ("np.where(later, -np.inf, scores)", "scores", 2, "a change of the last token moves earlier positions"),
    ("width) @ W_o", "width)", 2, "the output differs"),
    ("return heads", "heads = heads + X.mean(0).mean()\n    return heads", 2, "moves earlier positions|rows mix"),
    ("batch, time, width = X.shape", "batch, time, width = X.T", 2, "multi_head_self_attention raised ValueError"),
]


def judged(text: str, folder: Path) -> list[drills.DrillResult]:
    path = folder / "attention.py"
    path.write_text(text, encoding="utf-8")
    return drills.judge(path)


def test_every_drill_is_unsolved_as_handed_out() -> None:
    results = drills.judge(HOME / drills.PLACE)
    assert [(result.name, result.outcome) for result in results] == [(name, "blank") for name in drills.DRILLS]
    assert drills.lines(HOME) == [
        "optional, closing drills in drills/attention.py: 0 of 3 passed",
        "  next: scaled_dot_product_attention",
    ]


def test_a_solution_of_each_passes(tmp_path: Path) -> None:
    assert [result.outcome for result in judged(SOLUTION, tmp_path)] == ["passed"] * 3
    (tmp_path / "drills").mkdir()
    (tmp_path / "attention.py").rename(tmp_path / drills.PLACE)
    assert drills.lines(tmp_path) == ["optional, closing drills in drills/attention.py: 3 of 3 passed"]


@pytest.mark.parametrize(("right", "wrong", "number", "message"), MISTAKES)
def test_a_mistake_is_named_in_one_line(tmp_path: Path, right: str, wrong: str, number: int, message: str) -> None:
    assert right in SOLUTION
    result = judged(SOLUTION.replace(right, wrong), tmp_path)[number]
    assert result.outcome == "failed"
    assert "\n" not in result.message
    assert re.search(message, result.message)


def test_a_drill_that_exits_or_prints_is_kept_to_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exiting = "import os, sys\nprint(os.getcwd())\ndef self_attention(*given):\n    print('here')\n    sys.exit(3)\n"
    result = judged(exiting, tmp_path)[1]
    assert result.message == "self_attention raised SystemExit: 3"
    messages = {result.message for result in judged(f"{exiting}sys.exit(4)", tmp_path)}
    assert messages == {"attention.py: SystemExit: 4"}
    assert capsys.readouterr().out == ""


def test_a_file_of_another_purpose_is_not_executed(tmp_path: Path) -> None:
    (tmp_path / "drills").mkdir()
    mark = tmp_path / "executed"
    foreign = f"open({str(mark)!r}, 'w')\n\n\ndef flash_attention(Q, K, V):\n    return Q\n"
    for text in (foreign, "def broken(", "\0"):
        (tmp_path / drills.PLACE).write_text(text)
        assert drills.lines(tmp_path) == []
    assert not mark.exists()
    (tmp_path / drills.PLACE).write_text("def self_attention(X, W_q, W_k, W_v:\n    return X\n")
    assert "attention.py: SyntaxError: " in drills.lines(tmp_path)[1]
    (tmp_path / drills.PLACE).write_text(f"{foreign}\n\ndef self_attention(X, W_q, W_k, W_v):\n    return X\n")
    assert drills.lines(tmp_path)[0].endswith("0 of 3 passed")
    assert mark.exists()


def test_a_file_that_cannot_be_imported_or_lacks_a_function_says_so(tmp_path: Path) -> None:
    broken = judged("import numpi", tmp_path)
    assert {result.message for result in broken} == {"attention.py: ModuleNotFoundError: No module named 'numpi'"}
    assert judged("x = 1", tmp_path)[1].message == "drills/attention.py defines no self_attention"
    assert drills.lines(tmp_path) == []
