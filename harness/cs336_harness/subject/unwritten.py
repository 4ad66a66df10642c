"""Memory that PyTorch hands out unwritten, filled so that whatever is made of it shows."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

UNWRITTEN = (torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty, torch.Tensor.new_empty_strided)


class UnwrittenIs(TorchFunctionMode):
    """Inside, memory that PyTorch hands out unwritten holds one number, so that whatever is made of it shows."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self._number = number

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls one function of PyTorch, and fills what it leaves unwritten."""
        result = func(*args, **(kwargs or {}))
        if func in UNWRITTEN and result.is_floating_point() and not result.is_meta:
            result.fill_(self._number)
        return result
