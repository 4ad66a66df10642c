"""A model that the subject assembled, and the operations that a check may ask of it.

A check never touches a module: it asks for an operation and gets plain tensors. So the same check judges a model in
this process and one that lives in another, behind a pipe. Nothing that ``get_transformer_lm`` and
``get_transformer_lm_weights`` return is taken on trust: every canonical name must give a live Parameter of the right
size, and whatever the subject raises becomes one clear line.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import pickle
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Literal

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure, Evidence, explained_by

ASSEMBLY = ("get_transformer_lm", "get_transformer_lm_weights")
"""The entry points that a check needs to build a model."""

IN_PIECES = "run_transformer_lm_in_pieces"
"""The entry point of a model that keeps keys and values."""

EMBEDDING, HEAD = "token_embeddings.weight", "lm_head.weight"

IN_PLACE = tuple(
    f"components.arguments_untouched[{name}]"
    for name in ("rmsnorm", "silu", "swiglu", "softmax", "rope", "scaled_dot_product_attention", "transformer_block")
)
"""What writes over its input can leave back-propagation without numbers that it needs."""

THE_MODEL = "the model that get_transformer_lm built"

Tied = Literal["one", "one storage", "equal values", "other values"]
Load = Literal["load_state_dict", "safetensors", "assign", "first name alone", "second name alone"]
ONE_NAME: tuple[Load, Load] = ("first name alone", "second name alone")


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """One entry of ``model.parameters()``: the canonical names of it, the module's own name, its size.

    ``number`` is the same for two entries that are one Parameter.
    """

    names: tuple[str, ...]
    own_name: str
    shape: tuple[int, ...]
    bytes_per_element: int
    trained: bool
    number: int

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return functools.reduce(lambda product, size: product * size, self.shape, 1)


@dataclasses.dataclass(frozen=True, slots=True)
class Inventory:
    """What the subject's own process says of its Parameters: identity, names and counts.

    Whoever controls that process may say anything here, so no check passes on it alone: what one Parameter *does* is
    asked for as well, in values.
    """

    tied: Tied
    held: tuple[Held, ...]

    def times(self, name: str) -> int:
        """How often ``model.parameters()`` gives the Parameter of a canonical name."""
        return sum(name in held.names for held in self.held)


class BuiltModel:
    """One model of the subject.

    ``module`` is what ``get_transformer_lm`` returned; ``parameters`` maps every canonical name of ``shape`` to the
    Parameter that ``get_transformer_lm_weights`` gave for it, both vocabulary names included. Both are for this module
    alone; everybody else asks for operations.
    """

    def __init__(self, subject: Subject, shape: DecoderShape, module: nn.Module, parameters: dict[str, nn.Parameter]):
        self.subject = subject
        self.shape = shape
        self._module = module
        self._parameters = parameters
        self._forward = subject.setting.compiled(module)

    @property
    def device(self) -> torch.device:
        """Where the embedding lies."""
        return self._parameters[EMBEDDING].device

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Copies ``weights`` (canonical names, all or some) into the live Parameters, which keep identity and dtype."""
        with torch.no_grad():
            for name, weight in weights.items():
                self._parameters[name].copy_(weight)

    def weights(self) -> dict[str, Tensor]:
        """Every weight as it is now, copied, under its canonical name."""
        return {name: _copied(parameter) for name, parameter in self._parameters.items()}

    def inventory(self) -> Inventory:
        """What is said of the Parameters; see :class:`Inventory`."""
        names: dict[int, list[str]] = {}
        for name, parameter in self._parameters.items():
            names.setdefault(id(parameter), []).append(name)
        own_names = {id(parameter): name for name, parameter in self._module.named_parameters()}
        numbers: dict[int, int] = {}
        held = tuple(
            Held(
                tuple(names.get(id(parameter), ())),
                own_names.get(id(parameter), ""),
                tuple(parameter.shape),
                parameter.element_size(),
                parameter.requires_grad,
                numbers.setdefault(id(parameter), len(numbers)),
            )
            for parameter in self._module.parameters()
        )
        return Inventory(_tied(self._parameters[EMBEDDING], self._parameters[HEAD]), held)

    def state_names(self) -> list[str]:
        """The names in the model's state dict."""
        return list(self._run("model.state_dict()", self._module.state_dict))

    def evidence(self, token_ids: Tensor | None = None, pieces: Sequence[int] = ()) -> Evidence:
        """Evidence that names this model: its sizes, its weights as they are, and the token ids of the call.

        ``pieces`` are the sizes of the pieces that the ids were fed in, where they were.
        """
        arguments: dict[str, Any] = {**self.shape.model_arguments(), "weights": self.weights()}
        if token_ids is not None:
            arguments["in_indices"] = token_ids
        if pieces:
            arguments["pieces"] = tuple(pieces)
        return Evidence(entry_point=ASSEMBLY[0], arguments=arguments)

    @contextlib.contextmanager
    def _witnessed(self, token_ids: Tensor | None = None) -> Generator[None]:
        """Gives a failure inside the evidence of this model: only then, because it copies every weight."""
        try:
            yield
        except CheckFailure as failure:
            failure.evidence.entry_point = ASSEMBLY[0]
            failure.evidence.arguments = self.evidence(token_ids).arguments
            raise

    def _run(self, what: str, function: Callable[[], Any], *, grad: bool = False, ids: Tensor | None = None) -> Any:
        with self._witnessed(ids):
            return self.subject.run(what, function, grad=grad, evidence=Evidence(entry_point=ASSEMBLY[0]))

    def forward(self, token_ids: Tensor, *, grad: bool = False) -> Any:
        """Whatever the model returns for a copy of token ids (batch, T) on its device; ``grad`` leaves autograd on."""
        given = token_ids.clone().to(self.device)
        return self._run(THE_MODEL, lambda: self._forward(given), grad=grad, ids=token_ids)

    @explained_by("configuration.model_builds")
    def logits(self, token_ids: Tensor, grad: bool = False) -> Tensor:
        """Raw logits (batch, T, V) of token ids (batch, T): finite and of that shape, or :class:`CheckFailure`.

        Detached; ``grad`` leaves autograd on while they are computed.
        """
        return self._checked(token_ids, self.forward(token_ids, grad=grad)).detach()

    def _checked(self, token_ids: Tensor, result: Any) -> Tensor:
        with self._witnessed(token_ids):
            return self.subject.checked(THE_MODEL, result, (*token_ids.shape, self.shape.vocab_size))

    def in_pieces(self, pieces: list[Tensor], *, grad: bool = False) -> Any:
        """Whatever ``run_transformer_lm_in_pieces`` returns for these very tensors; ``grad`` leaves autograd on."""
        with self._witnessed(torch.cat(pieces, dim=1)):
            return self.subject.invoke(IN_PIECES, copy=False, grad=grad, model=self._module, pieces=pieces)

    @explained_by("configuration.model_builds")
    def logits_in_pieces(self, token_ids: Tensor, sizes: Sequence[int], grad: bool = False) -> list[Tensor]:
        """Raw logits (batch, n, V) of each piece of token ids (batch, T), cut into pieces of these sizes.

        :class:`CheckFailure` unless a list of as many tensors comes back, finite and of the right shapes.
        """
        pieces = [piece.clone().to(self.device) for piece in token_ids.split(list(sizes), dim=1)]
        return self._checked_pieces(token_ids, sizes, self.in_pieces(pieces, grad=grad))

    def _checked_pieces(self, token_ids: Tensor, sizes: Sequence[int], result: Any) -> list[Tensor]:
        expected = [(len(token_ids), size, self.shape.vocab_size) for size in sizes]
        evidence = self.evidence(token_ids, sizes)
        if not isinstance(result, list | tuple) or len(result) != len(expected):
            kind = f"{len(result)} results" if isinstance(result, list | tuple) else f"a {type(result).__name__}"
            raise CheckFailure(
                f"{IN_PIECES} returned {kind}; it must return a list of {len(expected)} tensors", evidence
            )
        return [
            self.subject.checked(f"{IN_PIECES}, piece {number},", part, size, evidence).detach()
            for number, (part, size) in enumerate(zip(result, expected, strict=True))
        ]

    def pieces_after_call(self, token_ids: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        """The list of pieces that ``run_transformer_lm_in_pieces`` was handed, as it left it."""
        pieces = [piece.clone().to(self.device) for piece in token_ids.split(list(sizes), dim=1)]
        self.in_pieces(pieces)
        return [piece.to("cpu") for piece in pieces]

    def ids_after_forward(self, token_ids: Tensor) -> Tensor:
        """The token ids that the model was handed, as its forward pass left them."""
        given = token_ids.clone().to(self.device)
        self._run(THE_MODEL, lambda: self._forward(given), ids=token_ids)
        return given.to("cpu")

    @explained_by("configuration.model_builds")
    def gradients(
        self, token_ids: Tensor, directions: Sequence[Tensor], names: Sequence[str] | None = None
    ) -> list[dict[str, Tensor | None]] | None:
        """For each direction (batch, T, V), the gradient of ``(logits * direction).sum()`` by canonical name.

        Of ``names``, or of every weight; None for one that the logits do not depend on. One forward pass serves all
        directions. None in place of the list when the logits carry no gradient at all.
        """
        logits = self._checked(token_ids, self.forward(token_ids, grad=True))
        if not logits.requires_grad:
            return None
        wanted = {name: self._parameters[name] for name in names or self._parameters}
        unique = {id(parameter): parameter for parameter in wanted.values()}
        if frozen := [name for name, parameter in wanted.items() if not parameter.requires_grad]:
            named = frozen[0] if len(frozen) == 1 else f"{frozen[0]} and {len(frozen) - 1} more"
            evidence = self.evidence(token_ids)
            evidence.raised = ("takes no gradient", "")
            raise CheckFailure(
                f"{named} of {THE_MODEL} {'takes' if len(frozen) == 1 else 'take'} no gradient: requires_grad is False,"
                " so no training would move it; in a correct decoder every weight is an nn.Parameter that learns",
                evidence,
            )

        def of(direction: Tensor) -> dict[str, Tensor | None]:
            given = torch.autograd.grad(
                (logits * direction.to(logits)).sum(),  # a scalar: for anything else PyTorch imports sympy
                list(unique.values()),
                retain_graph=len(directions) > 1,
                allow_unused=True,
            )
            found = dict(zip(unique, map(_dense, given), strict=True))
            parts = {name: found[id(parameter)] for name, parameter in wanted.items()}
            return {name: None if part is None else _copied(part) for name, part in parts.items()}

        what = f"back-propagation through {THE_MODEL}"
        with explained_by(*IN_PLACE):
            return [self._run(what, functools.partial(of, each), grad=True, ids=token_ids) for each in directions]

    def step(self, token_ids: Tensor, direction: Tensor, rate: float) -> None:
        """One step of gradient descent on ``(logits * direction).sum()`` over ``model.parameters()``, as SGD takes
        it."""
        logits = self._checked(token_ids, self.forward(token_ids, grad=True))

        def take() -> None:
            (logits * direction.to(logits)).sum().backward()
            with torch.no_grad():  # what SGD does; torch.optim itself takes a second to import
                for parameter in self._module.parameters():
                    if parameter.grad is not None:
                        parameter.sub_(rate * parameter.grad)

        self._run(f"back-propagation through {THE_MODEL}", take, grad=True, ids=token_ids)

    def set_mode(self, mode: Literal["train", "eval"]) -> None:
        """``model.train()`` or ``model.eval()``."""
        self._run(f"model.{mode}()", getattr(self._module, mode))

    def draws_random_numbers(self, token_ids: Tensor) -> bool:
        """Whether a forward pass moves a generator: the CPU's, or that of the GPU where the model is on one."""
        before = gpu_generator_state(self.device)
        self.logits(token_ids)
        visit = self.subject.last_visit
        drew = not torch.equal(before, gpu_generator_state(self.device))
        return drew or (visit is not None and visit.drew_random_numbers)

    def copies_weight(self, token_ids: Tensor, name: str) -> bool:
        """Whether a forward pass makes a second tensor of the values of one weight."""
        given, seen = token_ids.clone().to(self.device), _CopiesSeen(self._parameters[name])

        def forward() -> None:
            with seen:
                self._module(given)

        self._run(THE_MODEL, forward, grad=True, ids=token_ids)
        return seen.any

    def counted_flops(self, token_ids: Tensor) -> int:
        """The FLOPs of the matrix multiplies that PyTorch's profiler sees in a forward pass."""
        from torch.autograd.profiler import profile
        from torch.nn.attention import SDPBackend, sdpa_kernel

        # Fused attention is one operation that the profiler counts as nothing; the kernel made of multiplies is counted
        with sdpa_kernel(SDPBackend.MATH), profile(with_flops=True, record_shapes=True, use_kineto=False) as profiled:
            self.logits(token_ids)
        return sum(event.flops or 0 for event in profiled.function_events if event.name in _MULTIPLIES)

    def deepcopy(self) -> BuiltModel:
        """``copy.deepcopy`` of the model."""
        return self._again(self._run("copy.deepcopy", lambda: copy.deepcopy(self._module)))

    def pickled(self) -> BuiltModel:
        """The model as ``torch.save(model)`` keeps it: through pickle and back, in memory, and nothing but itself."""
        return self._again(self._run("pickle", lambda: pickle.loads(pickle.dumps(self._module))))

    def cast(self, dtype: torch.dtype) -> BuiltModel:
        """``model.to(dtype)``."""
        return self._again(self._run("model.to(dtype)", functools.partial(self._module.to, dtype)))

    def moved(self, device: str) -> BuiltModel:
        """``model.to(device)``."""
        return self._again(self._run(f'model.to("{device}")', functools.partial(self._module.to, device)))

    def to_empty(self) -> BuiltModel:
        """``model.to_empty(device="cpu")``, which brings a model from the meta device. Its numbers mean nothing."""
        return self._again(self._run("model.to_empty", lambda: _to_empty(self._module)))

    def ways_to_load_one_name(self) -> list[Load]:
        """One for each entry of the model's state dict that lies in the memory of the embedding, in their order."""
        return list(ONE_NAME[: len(self._shared_entries(self._module.state_dict()))])

    def _shared_entries(self, state: Mapping[str, Tensor]) -> list[str]:
        shared = self._parameters[EMBEDDING].data_ptr()
        return [name for name, tensor in state.items() if tensor.data_ptr() == shared]

    def load_state_of(self, source: BuiltModel, how: Load) -> str:
        """Loads the state dict of another model of this shape; what was done, in the words of a message.

        ``safetensors``: by way of a file, which holds the shared matrix once. ``assign``: with ``assign=True`` and a
        tensor of its own for every name. ``… name alone``: without the other name of the shared matrix.
        """
        state = source._module.state_dict()
        shared = source._shared_entries(state)
        what = {"safetensors": "a round trip through safetensors", "assign": "load_state_dict(assign=True)"}.get(
            how, "load_state_dict"
        )
        kept = shared[ONE_NAME.index(how)] if how in ONE_NAME else None
        if kept is not None:
            what = f"load_state_dict with {kept} alone of the two vocabulary names"

        def load() -> None:
            if how == "safetensors":
                self._module.load_state_dict(_through_a_file(state), strict=False)
            elif how == "assign":
                self._module.load_state_dict({name: tensor.clone() for name, tensor in state.items()}, assign=True)
            else:
                self._module.load_state_dict(
                    {name: state[name] for name in state if kept in (None, name) or name not in shared}
                )

        self._run(what, load)
        self._parameters = live_parameters(self.subject, self.shape, self._module)
        return what

    def _again(self, module: nn.Module) -> BuiltModel:
        """The model as it is after something was done to it: its Parameters are asked for anew."""
        return BuiltModel(self.subject, self.shape, module, live_parameters(self.subject, self.shape, module))


_MULTIPLIES = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")


def _dense(gradient: Tensor | None) -> Tensor | None:
    """A gradient with every number written down; that of ``nn.Embedding(sparse=True)`` has the looked-up rows alone."""
    return gradient if gradient is None or gradient.layout == torch.strided else gradient.to_dense()


def _copied(tensor: Tensor) -> Tensor:
    """A copy on the CPU; what lies on the meta device has no numbers to copy."""
    tensor = tensor.detach()
    return tensor.clone() if tensor.is_meta else tensor.to("cpu", copy=True)


def _tied(embedding: Tensor, head: Tensor) -> Tied:
    if embedding is head:
        return "one"
    if not embedding.is_meta and embedding.data_ptr() == head.data_ptr():
        return "one storage"
    return "equal values" if not embedding.is_meta and torch.equal(embedding, head) else "other values"


def gpu_generator_state(device: torch.device) -> Tensor:
    """The state of the generator of a GPU; empty for the CPU, whose own :attr:`Subject.last_visit` tells of."""
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.mps.get_rng_state() if device.type == "mps" else torch.empty(0)


class _CopiesSeen(TorchDispatchMode):
    """Notices tensors that have the weight's size and values, and memory of their own."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight.detach()
        self.any = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation of PyTorch, below autograd, and looks at its result."""
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.shape == self.weight.shape and not self.any:
            elsewhere = result.untyped_storage().data_ptr() != self.weight.untyped_storage().data_ptr()
            self.any = elsewhere and torch.equal(result.detach().to(self.weight), self.weight)
        return result


def _through_a_file(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict as it comes back from a safetensors file: the file holds each storage under one name.

    That is what ``safetensors.torch.save_model`` writes. The format has no complex numbers; such buffers stay.
    """
    kept = {name: tensor.contiguous() for name, tensor in _one_name_each(state).items()}
    plain = {name: tensor for name, tensor in kept.items() if not tensor.is_complex()}
    return {**kept, **safetensors.torch.load(safetensors.torch.save(plain))}


def _one_name_each(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict with each storage under its first name in the alphabet, as safetensors keeps it."""
    seen: set[tuple[int, torch.Size]] = set()
    kept = {}
    for name in sorted(state):
        key = (state[name].data_ptr(), state[name].shape)
        if key not in seen or state[name].numel() == 0:
            kept[name] = state[name]
        seen.add(key)
    return kept


def _to_empty(module: nn.Module) -> nn.Module:
    """``module.to_empty(device="cpu")``. PyTorch's own goes by ``empty_like``, which imports sympy on meta."""
    if type(module).to_empty is not nn.Module.to_empty:
        return module.to_empty(device="cpu")
    return module._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu"))


@explained_by("configuration.model_builds")
def build(
    subject: Subject, shape: DecoderShape, weights: Mapping[str, Tensor] | None = None, device: str | None = None
) -> BuiltModel:
    """The subject's model of a shape, on ``device`` (the subject's own by default, or meta), filled with ``weights``.

    Raises :class:`CheckFailure` when the model is no ``nn.Module``, or a name is missing, no Parameter, or of another
    size.
    """
    model = assemble(subject, shape, device)
    if weights is not None:
        model.load(weights)
    return model


@functools.singledispatch
def assemble(subject: Subject, shape: DecoderShape, device: str | None) -> BuiltModel:
    """The model as the subject makes it; a subject that lives elsewhere registers a function of its own."""
    arguments = shape.model_arguments()
    module = subject.invoke("get_transformer_lm", copy=False, grad=True, **arguments)
    evidence = Evidence(entry_point="get_transformer_lm", arguments=arguments)
    if not isinstance(module, nn.Module):
        kind = "nothing (is a return statement missing?)" if module is None else f"a {type(module).__name__}"
        raise CheckFailure(f"get_transformer_lm returned {kind}; it must return a torch.nn.Module", evidence)
    if device is not None:
        _place_on(device, module)
    else:
        module = subject.setting.settled(module)
    return BuiltModel(subject, shape, module, live_parameters(subject, shape, module))


def _place_on(device: str, module: nn.Module) -> None:
    """Puts an empty Parameter of ``device`` in the place of each; one under two names stays one, as when built there.

    A constructor that itself ran on meta would draw its weights and compute its tables there, for which PyTorch imports
    half of its compiler: seven seconds.
    """
    moved: dict[nn.Parameter, nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                empty = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
                moved.setdefault(parameter, nn.Parameter(empty, requires_grad=parameter.requires_grad))
                part._parameters[name] = moved[parameter]


def weight_sizes(subject: Subject, shape: DecoderShape) -> dict[str, tuple[int, ...]] | None:
    """The size of every Parameter that the subject gives for a shape, right or wrong; None when it gives none."""
    sizes = sizes_given(subject, shape)
    for entry_point in ASSEMBLY:
        subject.note_answer(entry_point, sizes is not None)
    return sizes


@functools.singledispatch
def sizes_given(subject: Subject, shape: DecoderShape) -> dict[str, tuple[int, ...]] | None:
    """The same, wherever the subject lives."""
    try:
        module = subject.ask("get_transformer_lm", copy=False, grad=True, arguments=shape.model_arguments())
        weights = subject.ask("get_transformer_lm_weights", copy=False, grad=True, arguments={"model": module})
    except CheckFailure:
        return None
    if not isinstance(weights, Mapping):
        return None
    return {str(name): tuple(weight.shape) for name, weight in weights.items() if isinstance(weight, nn.Parameter)}


def live_parameters(subject: Subject, shape: DecoderShape, module: nn.Module) -> dict[str, nn.Parameter]:
    """What ``get_transformer_lm_weights`` gives for a model: canonical name -> Parameter, in the canonical order."""
    given = subject.invoke("get_transformer_lm_weights", copy=False, grad=True, model=module)
    evidence = Evidence(entry_point="get_transformer_lm_weights", arguments=shape.model_arguments())
    what = "get_transformer_lm_weights"
    if not isinstance(given, Mapping):
        kind = "nothing (is a return statement missing?)" if given is None else f"a {type(given).__name__}"
        raise CheckFailure(f"{what} returned {kind}; it must return a dict: canonical name -> Parameter", evidence)
    sizes = shape.weight_shapes()
    missing = [name for name in sizes if name not in given]
    if missing:
        also = f", and of {len(missing) - 1} more" if len(missing) > 1 else ""
        message = f"{what} has no entry of the name {missing[0]}{also}; it must name every weight of the model"
        if shape.tie_embeddings and missing == [HEAD]:
            message = f"{what} has no lm_head.weight; of a tied model both vocabulary names give the one Parameter"
        evidence.raised = (what, message)  # the same for every check that builds such a model
        raise CheckFailure(message, evidence)
    for name, size in sizes.items():
        parameter = given[name]
        if not isinstance(parameter, nn.Parameter):
            kind = type(parameter).__name__
            raise CheckFailure(
                f"{what} gives a {kind} for {name}; it must give the model's own live Parameter, no copy and no view",
                evidence,
            )
        if tuple(parameter.shape) != size:
            message = f"{name} has the shape {tuple(parameter.shape)}; at these sizes it must be {size}, (out, in)"
            evidence.raised = (what, message)
            raise CheckFailure(message, evidence)
    return {name: given[name] for name in sizes}
