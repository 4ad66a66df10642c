"""What the decoder promises of its source: the parts of torch that it is built from, and signatures that hold."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jaxtyping
import pytest
import torch
from small_decoder import CONFIG, seeded, token_ids

import cs336_basics
from cs336_basics import attention, layers, rope, transformer
from cs336_basics.attention import fused_scaled_dot_product_attention
from cs336_basics.transformer import TransformerLM

SOURCES = sorted(Path(cs336_basics.__path__[0]).glob("*.py"))
SHAPED = (layers, rope, attention, transformer)

FROM_NN = {"Module", "ModuleList", "Parameter", "init", "functional"}
FROM_FUNCTIONAL = {"scaled_dot_product_attention"}
READY_MADE = {"softmax", "log_softmax", "silu", "silu_", "rms_norm", "layer_norm", "embedding", "linear"}


def ready_made_parts(source: str) -> list[str]:
    """What the source takes from torch that the decoder is to build itself."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module in ("torch.nn", "torch.nn.functional"):
            allowed = FROM_NN if node.module == "torch.nn" else FROM_FUNCTIONAL
            found += [alias.name for alias in node.names if alias.name not in allowed]
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if (
                (owner in ("nn", "torch.nn") and node.attr not in FROM_NN)
                or (owner in ("F", "nn.functional", "torch.nn.functional") and node.attr not in FROM_FUNCTIONAL)
                or (owner not in ("layers", "adapters", "self") and node.attr in READY_MADE)
            ):
                found.append(f"{owner}.{node.attr}")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_it_is_built_from_parameters_and_modules_alone(path: Path) -> None:
    assert ready_made_parts(path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "nn.Linear(2, 3)",
        "torch.nn.Embedding(2, 3)",
        "F.silu(x)",
        "torch.nn.functional.rms_norm(x, (3,))",
        "x.softmax(-1)",
        "torch.softmax(x, -1)",
        "torch.special.log_softmax(x, -1)",
        "torch.ops.aten.silu(x)",
        "from torch.nn import RMSNorm",
        "from torch.nn.functional import linear",
    ],
)
def test_a_ready_made_part_would_be_found(line: str) -> None:
    assert len(ready_made_parts(line)) == 1


def functions_of(module: ModuleType) -> Iterator[tuple[Any, str, Any]]:
    """Each function that the module defines, in itself or in a class: its owner, its name, and it."""
    for owner in (module, *(value for value in vars(module).values() if inspect.isclass(value))):
        for name, function in list(vars(owner).items()):
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                yield owner, name, function


@pytest.fixture
def shapes_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call of the decoder's functions is checked against its shapes."""
    beartype = pytest.importorskip("beartype").beartype
    for module in SHAPED:
        for owner, name, function in functions_of(module):
            if not inspect.isgeneratorfunction(function) and "Unpack" not in str(inspect.signature(function)):
                monkeypatch.setattr(owner, name, jaxtyping.jaxtyped(function, typechecker=beartype))


def test_every_tensor_in_a_public_signature_has_a_shape() -> None:
    bare = [
        f"{module.__name__}.{name}({parameter})"
        for module in SHAPED
        for owner, name, function in functions_of(module)
        if not name.startswith("_")
        for parameter, hint in inspect.get_annotations(function).items()
        if hint in (torch.Tensor, torch.Tensor | None)
    ]
    assert bare == []


@pytest.mark.usefixtures("shapes_checked")
@pytest.mark.parametrize("fused", [False, True], ids=["explicit", "fused"])
def test_the_shapes_in_the_signatures_hold(fused: bool) -> None:
    function = fused_scaled_dot_product_attention if fused else attention.scaled_dot_product_attention
    model = TransformerLM(CONFIG, function, generator=seeded())
    model(token_ids(2, 7), torch.arange(7))
    model(token_ids(12))
    Q, K, V, mask = (torch.zeros(size) for size in ((4, 6, 5, 2), (4, 2, 3, 2), (4, 2, 3, 7), (4, 1, 5, 3)))
    function(Q, K, V, mask.bool())


@pytest.mark.usefixtures("shapes_checked")
def test_a_shape_that_does_not_hold_is_refused() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        layers.Linear(4, 3)(torch.zeros(2, 4, dtype=torch.int64))
    with pytest.raises(jaxtyping.TypeCheckError):
        attention.scaled_dot_product_attention(torch.zeros(5, 2), torch.zeros(3, 2), torch.zeros(4, 2))
