"""What a subject is judged on: a device, a dtype, and whether its code goes through ``torch.compile``.

On the CPU, in float32 and as it stands is the usual one. In any other, arguments and models are moved and cast before
the subject sees them, and what it computes comes back to the CPU, where it is compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cs336_harness.subject.failures import CannotJudgeError

if TYPE_CHECKING:  # a wrong setting is refused before torch is loaded
    from torch import nn

DEVICES = ("cpu", "cuda", "mps")
DTYPES = ("float32", "bfloat16", "float64")


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One way to run a decoder. ``device`` may have a number (``cuda:1``), ``backend`` is that of ``torch.compile``."""

    device: str = "cpu"
    dtype: str = "float32"
    compile: bool = False
    backend: str = "inductor"

    def __post_init__(self) -> None:
        kind, _, number = self.device.partition(":")
        if kind not in DEVICES or (number and not number.isdecimal()) or (kind == "cpu" and number):
            raise CannotJudgeError(f"no device {self.device!r}; there are {', '.join(DEVICES)}")
        if self.dtype not in DTYPES:
            raise CannotJudgeError(f"no dtype {self.dtype!r} to judge in; there are {', '.join(DTYPES)}")
        if self.backend != "inductor" and not self.compile:
            raise CannotJudgeError(f"--backend {self.backend} says how --compile compiles: give --compile too")

    @property
    def gpu(self) -> bool:
        """Whether it is no CPU."""
        return self.device != "cpu"

    @property
    def usual(self) -> bool:
        """Whether nothing is moved, cast or compiled."""
        return self == USUAL

    def __str__(self) -> str:
        """As it ends "right …": ``in bfloat16 on cuda, compiled``."""
        return f"in {self.dtype} on {self.device}" + (", compiled" if self.compile else "")

    def require(self) -> None:
        """:class:`CannotJudgeError` where this machine has not what it takes. To be called where the subject runs."""
        if not self.usual:
            _require_device(self)
        if self.compile:
            _require_compiler(self.backend)

    def enter(self) -> str:
        """Settles what PyTorch keeps for the whole process, once the subject is loaded: what was found otherwise."""
        import torch

        if self.compile:
            limits: Any = torch._dynamo.config  # beyond them it would go on uncompiled, without a word
            limits.recompile_limit = limits.accumulated_recompile_limit = 10**6
        if self.usual or torch.get_float32_matmul_precision() == "highest":
            return ""
        torch.set_float32_matmul_precision("highest")
        return ", its set_float32_matmul_precision put back to 'highest' (no TF32)"

    def placed(self, value: Any) -> Any:
        """Tensors on the device, float32 ones in the dtype: other dtypes were chosen by who made them."""
        import torch

        if isinstance(value, torch.Tensor):
            return value.to(self.device, getattr(torch, self.dtype) if value.dtype == torch.float32 else value.dtype)
        if isinstance(value, Mapping):
            return {name: self.placed(item) for name, item in value.items()}
        return value

    def settled(self, module: nn.Module) -> nn.Module:
        """The module itself, moved and cast as ``module.to`` does it; on the meta device it stays there."""
        import torch

        return module if self.usual else module.to(self.device, getattr(torch, self.dtype))

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function through ``torch.compile``, where that is asked for."""
        if not self.compile:
            return function
        import torch

        return torch.compile(function, backend=self.backend)


USUAL = Setting()


def _require_device(setting: Setting) -> None:
    import torch

    kind, _, number = setting.device.partition(":")
    option, cpu = f"--device {setting.device}", "leave --device out to judge on the CPU"
    if kind == "cuda" and not torch.cuda.is_available():
        built = "" if torch.backends.cuda.is_built() else f", and PyTorch {torch.__version__} is built without CUDA"
        raise CannotJudgeError(f"{option}: PyTorch finds no CUDA GPU here{built}; {cpu}")
    if kind == "cuda" and number and int(number) >= torch.cuda.device_count():
        raise CannotJudgeError(f"{option}: the CUDA GPUs here are 0 to {torch.cuda.device_count() - 1}")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise CannotJudgeError(f"{option}: PyTorch finds no Apple GPU here; {cpu}")
    if kind == "mps" and setting.dtype == "float64":
        raise CannotJudgeError(f"{option} --dtype float64: an Apple GPU has no float64; {cpu}")


def _require_compiler(backend: str) -> None:
    """Compiles one line. What PyTorch writes when that fails is a page long."""
    import torch
    from torch._dynamo import list_backends

    if backend not in list_backends(exclude_tags=()):
        usual = ", ".join(dict.fromkeys(["inductor", "aot_eager", "eager", *list_backends()]))
        raise CannotJudgeError(f"--backend {backend}: torch.compile has no such backend; it has {usual}")
    try:
        torch.compile(torch.sin, backend=backend)(torch.ones(2))
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise CannotJudgeError(
            f"--compile: torch.compile does not work here, with {type(error).__name__}: {reason}; the backend inductor"
            " needs a C++ compiler, --backend aot_eager does not"
        ) from None
