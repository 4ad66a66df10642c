"""Closing drills, optional: attention three times over, in numpy alone, each from another prompt than the assignment's.

    uv run pytest tests/test_drills.py        what is right, what is not yet

Read the prompts closely: the mask, the weights and the layouts are not those of the contract. Replace each
``raise NotImplementedError``; nothing else of the harness looks at this file.
"""

from __future__ import annotations

import numpy as np


def scaled_dot_product_attention(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, blocked: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """One head over one sequence, and the weights it used.

    Args:
        Q: queries (Tq, d).
        K: keys (Tk, d).
        V: values (Tk, d_v).
        blocked: boolean (Tq, Tk), **True where a query must not look**; None when every query may look at every key.
            No query is blocked from every key.

    Returns:
        The output (Tq, d_v) and the weights (Tq, Tk). Scores as large as 10000 must not overflow.
    """
    raise NotImplementedError


def self_attention(X: np.ndarray, W_q: np.ndarray, W_k: np.ndarray, W_v: np.ndarray) -> np.ndarray:
    """One head in which a sequence attends to itself, in both directions.

    Args:
        X: the sequence (T, D).
        W_q, W_k: (D, d), and W_v: (D, d_v). They stand to the **right** of X: a query is a row of X W_q.

    Returns:
        (T, d_v). d, d_v and D are three different numbers; the scale is that of d.
    """
    raise NotImplementedError


def multi_head_self_attention(
    X: np.ndarray, W_q: np.ndarray, W_k: np.ndarray, W_v: np.ndarray, W_o: np.ndarray, num_heads: int
) -> np.ndarray:
    """Causal self-attention in several heads, over a batch, without positions.

    Args:
        X: (batch, T, D).
        W_q, W_k, W_v, W_o: (D, D), to the right of what they multiply. The channels of X W_q are those of head 0, then
            those of head 1, and so on, D / num_heads each; the heads' outputs are put side by side in the same order
            before W_o.
        num_heads: a divisor of D.

    Returns:
        (batch, T, D). Position t knows positions 0 to t.
    """
    raise NotImplementedError
