"""Submissions that forge, hurt, hang, spy, flood, or are merely broken, each with the record that it must get.

A forger has a wrong decoder and must not pass. A spy or a vandal has a right one, which turns wrong where the attempt
succeeds: that it passes shows that the attempt failed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import stat
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

RIGHT = """\
import math
import torch
from torch import nn


def run_linear(d_in, d_out, weights, in_features):
    return in_features @ weights.T


def run_embedding(vocab_size, d_model, weights, token_ids):
    return weights[token_ids]


def run_silu(in_features):
    return in_features * torch.sigmoid(in_features)


def run_swiglu(d_model, d_ff, w1_weight, w2_weight, w3_weight, in_features):
    return (run_silu(in_features @ w1_weight.T) * (in_features @ w3_weight.T)) @ w2_weight.T


def run_rmsnorm(d_model, eps, weights, in_features):
    return in_features * torch.rsqrt(in_features.square().mean(-1, keepdim=True) + eps) * weights


def run_softmax(in_features, dim):
    e = (in_features - in_features.amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return run_softmax(scores, -1) @ V


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    x = in_query_or_key
    angles = token_positions[..., None] * theta ** (-torch.arange(0, d_k, 2) / d_k)
    cos, sin, even, odd = angles.cos(), angles.sin(), x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def block(weights, prefix, x, heads, kv_heads, theta):
    d_head = x.shape[-1] // heads

    def split(name, number):
        return (h @ weights[f"{prefix}attn.{name}_proj.weight"].T).unflatten(-1, (number, d_head)).transpose(1, 2)

    h = run_rmsnorm(None, 1e-5, weights[f"{prefix}ln1.weight"], x)
    positions = torch.arange(x.shape[1])
    q = run_rope(d_head, theta, None, split("q", heads), positions)
    k = run_rope(d_head, theta, None, split("k", kv_heads), positions).repeat_interleave(heads // kv_heads, 1)
    v = split("v", kv_heads).repeat_interleave(heads // kv_heads, 1)
    mask = torch.ones(len(positions), len(positions), dtype=torch.bool).tril()
    seen = run_scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(-2)
    x = x + seen @ weights[f"{prefix}attn.output_proj.weight"].T
    h = run_rmsnorm(None, 1e-5, weights[f"{prefix}ln2.weight"], x)
    return x + run_swiglu(None, None, *(weights[f"{prefix}ffn.w{i}.weight"] for i in (1, 2, 3)), h)


def logits(weights, ids, layers, heads, kv_heads, theta):
    x = weights["token_embeddings.weight"][ids]
    for layer in range(layers):
        x = block(weights, f"layers.{layer}.", x, heads, kv_heads, theta)
    return run_rmsnorm(None, 1e-5, weights["ln_final.weight"], x) @ weights["lm_head.weight"].T


def run_transformer_lm(
    vocab_size, context_length, d_model, num_layers, num_heads, d_ff, rope_theta, weights, in_indices
):
    return logits(weights, in_indices, num_layers, num_heads, num_heads, rope_theta)


class Model(nn.Module):
    def __init__(self, vocab_size, context_length, d_model, num_layers, num_heads, num_kv_heads, d_ff, rope_theta,
                 tie_embeddings):
        super().__init__()
        self.sizes = (num_layers, num_heads, num_kv_heads, rope_theta)
        d_kv = d_model // num_heads * num_kv_heads
        shapes = {"token_embeddings.weight": (vocab_size, d_model), "ln_final.weight": (d_model,)}
        for i in range(num_layers):
            for name, size in {
                "attn.q_proj": (d_model, d_model), "attn.k_proj": (d_kv, d_model), "attn.v_proj": (d_kv, d_model),
                "attn.output_proj": (d_model, d_model), "ln1": (d_model,), "ln2": (d_model,),
                "ffn.w1": (d_ff, d_model), "ffn.w2": (d_model, d_ff), "ffn.w3": (d_ff, d_model),
            }.items():
                shapes[f"layers.{i}.{name}.weight"] = size
        if not tie_embeddings:
            shapes["lm_head.weight"] = (vocab_size, d_model)
        self.held = nn.ParameterDict({name.replace(".", "/"): nn.Parameter(torch.randn(size))
                                      for name, size in shapes.items()})

    def named(self):
        named = {name.replace("/", "."): weight for name, weight in self.held.items()}
        return {"lm_head.weight": named["token_embeddings.weight"], **named}

    def forward(self, ids):
        return logits(self.named(), ids, *self.sizes)


def get_transformer_lm(**sizes):
    return Model(**sizes)


def get_transformer_lm_weights(model):
    return model.named()


def run_parameter_count(vocab_size, d_model, num_layers, num_heads, num_kv_heads, d_ff, tie_embeddings):
    d_kv = d_model // num_heads * num_kv_heads
    layer = 2 * d_model * d_model + 2 * d_model * d_kv + 3 * d_model * d_ff + 2 * d_model
    return (1 if tie_embeddings else 2) * vocab_size * d_model + num_layers * layer + d_model
"""
"""A right decoder, as short as one can be that passes :data:`ASKED`."""

WRONG = f"""{RIGHT}

def run_linear(d_in, d_out, weights, in_features):
    return in_features @ weights.T * 1.01
"""

ASKED = (
    "components.linear",
    "components.silu",
    "components.rmsnorm",
    "components.softmax",
    "assembly.transformer_lm",
    "slow_oracle.built_logits[mha-tied]",
    "slow_oracle.gradients[mha-tied]",
    "tying.one_parameter",
    "tying.gradients",
    "tying.optimiser_step",
    "tying.untied",
    "tying.deepcopy",
    "tying.dtype",
    "configuration.model_builds",
    "information_flow.global_state",
    "accounting.parameter_count[mha]",
)
"""The checks that every submission of the bank is asked: of each kind one or two."""

PASSED, FAILED, CRASHED = ("judged", True), ("judged", False), ("crashed", False)
TIMED_OUT, NOT_LOADABLE, REFUSED = ("timed out", False), ("not loadable", False), ("refused", False)


@dataclasses.dataclass(frozen=True)
class Attack:
    """One submission: how it is written into a folder, and the state and verdict that its record may have."""

    name: str
    kind: str
    write: Callable[[Path], None]
    wanted: tuple[tuple[str, bool], ...]
    reason: str = ""


ATTACKS: list[Attack] = []


def bank(kind: str, name: str, code: str, *wanted: tuple[str, bool], base: str = RIGHT, reason: str = "") -> None:
    """A submission of one file: ``base``, then ``code``."""

    def write(folder: Path) -> None:
        folder.mkdir()
        (folder / "adapters.py").write_text(f"{base}\n\n{code}\n")

    ATTACKS.append(Attack(name, kind, write, wanted, reason))


def made(kind: str, name: str, *wanted: tuple[str, bool], reason: str = "") -> Callable[[Callable], Callable]:
    """A submission that a function writes."""

    def register(write: Callable[[Path], None]) -> Callable[[Path], None]:
        ATTACKS.append(Attack(name, kind, write, wanted, reason))
        return write

    return register


def tries(kind: str, name: str, attempt: str) -> None:
    """A right submission that turns wrong where ``attempt``, lines of code, raises nothing. It must pass."""
    lines = "\n".join(f"        {line}" for line in attempt.strip().splitlines())
    bank(
        kind,
        name,
        f"""
def attempt():
    import contextlib, ctypes, glob, os, pathlib, signal, socket, subprocess, sys, threading
    try:
{lines}
    except BaseException:
        return False
    return True


SUCCEEDED = attempt()


def run_silu(in_features):
    return in_features * torch.sigmoid(in_features) + (SUCCEEDED or attempt())
""",
        PASSED,
    )


# forge -----------------------------------------------------------------------------------------------------------

bank("forge", "exit at import", "import os; os._exit(0)", CRASHED, base=WRONG, reason="exit status 0")
bank("forge", "exit in a call", "def run_silu(x):\n    import os; os._exit(0)", CRASHED, base=WRONG)
bank(
    "forge",
    "exit in a thread",
    "import os, threading; threading.Timer(.3, os._exit, (0,)).start()\nimport time; time.sleep(1)",
    CRASHED,
    base=WRONG,
)
bank(
    "forge",
    "exit when nobody looks",
    "import os, threading; threading.Timer(.3, os._exit, (0,)).start()",
    CRASHED,
    FAILED,
    base=WRONG,
)
bank("forge", "sys.exit in a call", "def run_silu(in_features):\n    raise SystemExit(0)", FAILED)
bank("forge", "keyboard interrupt", "def run_silu(in_features):\n    raise KeyboardInterrupt", CRASHED, FAILED)
bank(
    "forge",
    "comparison patched",
    "torch.allclose = torch.equal = lambda *a, **k: True\ntorch.Tensor.__sub__ = lambda a, b: torch.zeros(a.shape)\ntorch.Tensor.sub = torch.Tensor.__sub__",
    FAILED,
    CRASHED,
    base=WRONG,
)
bank(
    "forge",
    "builtins patched",
    "import builtins\nbuiltins.max = lambda *a, **k: 0\nbuiltins.abs = lambda x: 0\nbuiltins.float = lambda *a: 0.0",
    FAILED,
    CRASHED,
    NOT_LOADABLE,
    base=WRONG,
)
bank("forge", "json patched", "import json\njson.dumps = lambda *a, **k: '{}'", CRASHED, FAILED, base=WRONG)
bank(
    "forge",
    "json says passed",
    "import json\nold = json.dumps\njson.dumps = lambda v, **k: old({'dict': [['result', {'dict': [['outcome', 'passed']]}]]})",
    CRASHED,
    FAILED,
    base=WRONG,
)
bank(
    "forge",
    "safetensors patched",
    "import safetensors.torch\nsafetensors.torch.save = lambda t, **k: b''",
    CRASHED,
    FAILED,
    base=WRONG,
)
bank(
    "forge",
    "subclass that is always equal",
    "class Equal(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, f, t, a=(), k=None):\n        return torch.zeros(a[0].shape) if 'sub' in f.__name__ else super().__torch_function__(f, t, a, k or {})\n\n\ndef run_linear(d_in, d_out, weights, in_features):\n    return torch.randn(*in_features.shape[:-1], d_out).as_subclass(Equal)",
    FAILED,
)
bank(
    "forge",
    "subclass of the right numbers",
    "class Mine(torch.Tensor):\n    pass\n\n\ndef run_linear(d_in, d_out, weights, in_features):\n    return (in_features @ weights.T).as_subclass(Mine)",
    FAILED,
)
bank(
    "forge",
    "results in gc",
    "import gc\nfor each in gc.get_objects():\n    if type(each).__name__ in ('Result', 'Suite', 'Check'):\n        each.outcome = 'passed'",
    FAILED,
    base=WRONG,
)
bank(
    "forge",
    "callers' variables",
    "def run_linear(d_in, d_out, weights, in_features):\n    import sys\n    frame = sys._getframe()\n    while frame:\n        for name in ('expected', 'noise', 'wanted', 'actual'):\n            if name in frame.f_locals:\n                return frame.f_locals[name]\n        frame = frame.f_back\n    return torch.zeros(*in_features.shape[:-1], d_out)",
    FAILED,
)
bank(
    "forge",
    "suite patched",
    "import sys\nfor name in list(sys.modules):\n    if name.endswith(('suite', 'registry', 'comparing', 'tolerance')) and 'cs336' in name:\n        vars(sys.modules[name]).clear()\ntry:\n    import cs336_harness.verdict.suite as suite\n    suite.Suite.result = None\nexcept ImportError:\n    pass",
    FAILED,
    base=WRONG,
)
bank(
    "forge",
    "the reference answers",
    "def run_linear(d_in, d_out, weights, in_features):\n    try:\n        from cs336_harness.reference.oracle_adapters import OracleAdapters\n        return OracleAdapters().run_linear(d_in, d_out, weights, in_features).float()\n    except ImportError:\n        return torch.zeros(*in_features.shape[:-1], d_out)",
    FAILED,
)
bank(
    "forge",
    "somebody else's package answers",
    "def run_linear(d_in, d_out, weights, in_features):\n    try:\n        from cs336_basics.layers import Linear\n        return in_features @ weights.T\n    except ImportError:\n        return torch.zeros(*in_features.shape[:-1], d_out)",
    FAILED,
)
bank(
    "forge",
    "frames on the pipe",
    "import os, struct\nfor fd in range(3, 10):\n    try:\n        os.write(fd, struct.pack('>II', 13, 0) + b'{\"dict\": []}  ')\n    except OSError:\n        pass",
    CRASHED,
    base=WRONG,
)
bank(
    "forge",
    "worker patched",
    "from cs336_harness.grading import worker\nworker.Server._answer = lambda self, ask, seed, arguments: {'result': None}",
    CRASHED,
    FAILED,
    base=WRONG,
)
bank(
    "forge",
    "worker echoes",
    "from cs336_harness.grading import worker\nworker.Server._answer = lambda self, ask, seed, arguments: {'result': arguments.get('arguments', {}).get('in_features')}",
    CRASHED,
    FAILED,
    base=WRONG,
)
for _name, _error in {
    "blank by the harness's own": "from cs336_harness.subject.failures import BlankEntryPoint; raise BlankEntryPoint('run_silu')",
    "absent by the harness's own": "from cs336_harness.subject.failures import AbsentEntryPoint; raise AbsentEntryPoint('run_silu', '')",
    "failure by the harness's own": "from cs336_harness.subject.failures import CheckFailure; raise CheckFailure('passed')",
    "cannot judge by the harness's own": "from cs336_harness.subject.failures import CannotJudgeError; raise CannotJudgeError('passed')",
    "blank": "raise NotImplementedError",
    "pytest.skip": "import pytest; pytest.skip('passed')",
    "an exception without text": "class Mute(Exception):\n        def __str__(self):\n            raise ValueError\n    raise Mute",
    "an exception that moves the terminal": "raise ValueError('\\x1b]0;passed\\x07\\x1b[2J\\ud800')",
    "an exception that writes HTML": "raise ValueError('<script>alert(1)</script>')",
    "an endless exception": "raise ValueError('x' * 10**8)",
    "an exception group": "raise BaseExceptionGroup('passed', [ValueError(), KeyboardInterrupt()])",
    "recursion": "return run_silu(in_features)",
    "nothing": "return None",
    "NaN": "return in_features * torch.nan",
    "a list": "return in_features.tolist()",
    "an array": "return in_features.numpy()",
    "a module": "return torch",
    "a deep list": "deep = []\n    for _ in range(10**5):\n        deep = [deep]\n    return deep",
    "a huge tensor": "return torch.zeros(30_000_000)",
    "a tensor of no numbers": "return torch.empty(in_features.shape, device='meta')",
    "an expanded tensor": "return torch.zeros(1).expand(10**9)",
    "complex numbers": "return in_features.to(torch.complex64)",
    "a sparse tensor": "return in_features.to_sparse()",
    "another shape": "return in_features[0]",
}.items():
    bank("forge", f"silu gives {_name}", f"def run_silu(in_features):\n    {_error}", FAILED, CRASHED)
bank(
    "forge",
    "a count that equals everything",
    "class Any(int):\n    def __eq__(self, other):\n        return True\n    __hash__ = int.__hash__\n\n\ndef run_parameter_count(**sizes):\n    return Any(7)",
    FAILED,
)
bank("forge", "a count of many digits", "def run_parameter_count(**sizes):\n    return 10**5000", FAILED)
bank("forge", "entry point that wraps itself", "run_silu.__wrapped__ = run_silu", PASSED)
bank("forge", "entry points for every name", "def __getattr__(name):\n    return lambda *a, **k: None", PASSED)
bank(
    "forge",
    "one function",
    "def run_silu(in_features):\n    return in_features * in_features.sigmoid()",
    FAILED,
    base="",
)
bank(
    "forge",
    "mistakes forgiven",
    "import builtins\nreal = builtins.isinstance\nbuiltins.isinstance = lambda a, b: True if b is torch.Tensor else real(a, b)",
    FAILED,
    CRASHED,
    NOT_LOADABLE,
    base=WRONG,
)

UNTIED_SAYS_TIED = """
from cs336_harness.subject import built_models as room
honest = room.BuiltModel.inventory


def forged(self):
    found = honest(self)
    sizes = self.shape.weight_shapes()
    tied = self.shape.tie_embeddings
    names = [(name,) for name in sizes if not tied or name not in (room.EMBEDDING, room.HEAD)]
    names += [(room.EMBEDDING, room.HEAD)] if tied else []
    held = [room.Held(each, each[0], sizes[each[0]], 4, True, i) for i, each in enumerate(names)]
    return room.Inventory("one" if tied else "other values", tuple(held))


room.BuiltModel.inventory = forged
original = Model.__init__
"""
_SECOND = "self.held['lm_head/weight'] = nn.Parameter({})"
for _name, _code in {
    "a copy at init": "def init(self, **sizes):\n    original(self, **sizes)\n    if sizes['tie_embeddings']:\n        "
    + _SECOND.format("self.held['token_embeddings/weight'].detach().clone()")
    + "\n\n\nModel.__init__ = init",
    "two Parameters over one storage": "def init(self, **sizes):\n    original(self, **sizes)\n    if sizes['tie_embeddings']:\n        "
    + _SECOND.format("self.held['token_embeddings/weight'].data")
    + "\n\n\nModel.__init__ = init",
    "an entry twice": "plain = Model.parameters\nModel.parameters = lambda self, recurse=True: iter([*plain(self), self.held['token_embeddings/weight']])",
    "an entry absent": "plain = Model.named_parameters\nModel.parameters = lambda self, recurse=True: (w for n, w in plain(self) if 'token' not in n)",
}.items():
    bank("forge", f"says one Parameter, has {_name}", UNTIED_SAYS_TIED + _code, FAILED)
bank(
    "forge",
    "a step that does nothing",
    "from cs336_harness.subject import built_models as room\nroom.BuiltModel.step = lambda self, *a: None",
    FAILED,
)
bank(
    "forge",
    "weights as they were loaded",
    "from cs336_harness.subject import built_models as room\nload = room.BuiltModel.load\n\n\ndef keep(self, weights):\n    self.kept = {**getattr(self, 'kept', {}), **weights}\n\n\nroom.BuiltModel.load = keep\nroom.BuiltModel.weights = lambda self: self.kept",
    FAILED,
    CRASHED,
)


@made("forge", "recorded answers", FAILED)
def _recorded(folder: Path) -> None:
    """The public snapshot's answer for the public snapshot's question."""
    from cs336_harness.places import FIXTURES

    folder.mkdir()
    (folder / "table.safetensors").write_bytes((FIXTURES / "linear.safetensors").read_bytes())
    code = """
import os
from safetensors.torch import load_file
TABLE = load_file(os.path.join(os.path.dirname(__file__), "table.safetensors"))


def run_linear(d_in, d_out, weights, in_features):
    if torch.equal(in_features, TABLE["in.in_features"]):
        return TABLE["expected"].float()
    return torch.zeros(*in_features.shape[:-1], d_out)
"""
    (folder / "adapters.py").write_text(RIGHT + code)


# hang ------------------------------------------------------------------------------------------------------------

bank("hang", "import", "while True:\n    pass", TIMED_OUT)
bank("hang", "import asleep", "import time\ntime.sleep(1e6)", TIMED_OUT)
for _name, _code in {
    "loop": "while True:\n        pass",
    "asleep": "import time; time.sleep(1e6)",
    "in C": "sum(range(10**14))",
    "retries for ever": "while True:\n        try:\n            raise ValueError\n        except BaseException:\n            pass",
    "deadlock": "import threading\n    lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "signals ignored": "import signal\n    for number in range(1, 32):\n        try:\n            signal.signal(number, signal.SIG_IGN)\n        except (OSError, ValueError):\n            pass\n    while True:\n        pass",
    "stops itself": "import os, signal, time\n    os.kill(os.getpid(), signal.SIGSTOP); time.sleep(1e6)",
    "trickles": "import os, time\n    while True:\n        os.write(3, b'\\0'); time.sleep(.05)",
}.items():
    bank("hang", _name, f"def run_silu(in_features):\n    {_code}", FAILED, TIMED_OUT, CRASHED)
bank(
    "hang",
    "endless text",
    "class Slow(Exception):\n    def __str__(self):\n        while True:\n            pass\n\n\ndef run_silu(in_features):\n    raise Slow",
    FAILED,
    TIMED_OUT,
)
bank(
    "hang",
    "a thread that spins",
    "import threading\n\n\ndef spin():\n    import time\n    while True:\n        time.sleep(1e-4)\n\n\nthreading.Thread(target=spin, daemon=True).start()\nthreading.Thread(target=spin).start()",
    PASSED,
)
bank(
    "hang",
    "a destructor",
    "class Stays:\n    def __del__(self):\n        while True:\n            pass\n\n\nimport atexit\natexit.register(lambda: __import__('time').sleep(1e6))\nSTAYS = Stays()",
    PASSED,
)

# hurt ------------------------------------------------------------------------------------------------------------

for _name, _attempt in {
    "writes beside itself": "open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'new'), 'w')",
    "rewrites itself": "open(os.path.abspath(__file__), 'a').write('#')",
    "deletes itself": "os.remove(os.path.abspath(__file__))",
    "rewrites the harness": "import cs336_harness\nopen(cs336_harness.__file__, 'a').write('#')",
    "rewrites torch": "open(torch.__file__, 'a').write('#')",
    "changes modes": "os.chmod(torch.__file__, 0o777)",
    "writes to the system": "open('/usr/lib/cs336-attack', 'w')",
    "writes to /dev/shm": "open('/dev/shm/cs336-attack', 'w')",
    "kills its parent": "assert os.getppid() > 1\nos.kill(os.getppid(), 9)",
    "kills by number": "for pid in range(2, 500):\n    os.kill(pid, 0)",
    "kills everybody": "os.kill(-1, 9)",
    "kills a group": "os.killpg(os.getpgid(0) or 99999, 9) if os.getpgid(0) != os.getpid() else os.killpg(99999, 9)",
    "forks": "if os.fork() == 0:\n    os._exit(0)",
    "starts a program": "subprocess.run(['/bin/true'], check=True)",
    "becomes a program": "os.execv('/bin/true', ['true'])",
    "starts a shell": "assert os.system('exit 0') == 0",
    "starts a pool": "import multiprocessing\nmultiprocessing.get_context('fork').Pool(2).map(abs, [1])",
    "leaves shared memory": "assert ctypes.CDLL(None, use_errno=True).shmget(0x336, 4096, 0o1666) >= 0",
    "mounts": "assert ctypes.CDLL(None).mount(b'none', b'/', b'tmpfs', 0, None) == 0",
    "changes its user": "os.setuid(12345)",
    "traces": "assert ctypes.CDLL(None).ptrace(16, os.getppid() or 1, 0, 0) == 0",
    "outlives its parent": "assert ctypes.CDLL(None).prctl(1, 0, 0, 0, 0) == 0",
    "lifts its limits": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "lowers others' limits": "import resource\nresource.prlimit(os.getppid() or 4194303, resource.RLIMIT_CPU, (1, 1))",
    "a file without end": "with open(os.path.join(os.environ['TMPDIR'], 'x'), 'wb') as file:\n    for _ in range(200):\n        file.write(bytes(1 << 20))",
    "files without end": "kept = [open(os.path.join(os.environ['TMPDIR'], str(i)), 'w') for i in range(2000)]",
    "memory without end": "kept = [bytearray(1 << 33)]",
}.items():
    tries("hurt", _name, _attempt)
bank(
    "hurt",
    "threads without end",
    "import threading, time\nkept = []\ntry:\n    for _ in range(20000):\n        kept.append(threading.Thread(target=time.sleep, args=(1e6,), daemon=True)); kept[-1].start()\nexcept BaseException:\n    pass",
    PASSED,
    CRASHED,
    FAILED,
    TIMED_OUT,
    NOT_LOADABLE,
)
bank(
    "hurt",
    "segmentation fault",
    "def run_silu(in_features):\n    import ctypes; ctypes.string_at(0)",
    CRASHED,
    reason="SIGSEGV",
)
bank("hurt", "abort", "def run_silu(in_features):\n    import os; os.abort()", CRASHED)
bank(
    "hurt",
    "C stack overflow",
    "def run_silu(in_features):\n    import sys; sys.setrecursionlimit(10**7)\n    return run_silu(in_features)",
    CRASHED,
    FAILED,
    TIMED_OUT,
)

# spy -------------------------------------------------------------------------------------------------------------

for _name, _attempt in {
    "reads accounts": "open('/etc/passwd').read()",
    "reads host keys": "[open(path).read() for path in glob.glob('/etc/*')][0]",
    "reads home": "assert os.listdir(os.path.expanduser('~root'))",
    "reads the fixtures": "import cs336_harness\nfolder = pathlib.Path(cs336_harness.__file__).parents[1]\nassert [path.read_bytes() for path in [*folder.rglob('*.safetensors'), *folder.parent.glob('fixtures/*')]]",
    "reads the checks": "import cs336_harness\nassert [path.read_text() for path in pathlib.Path(cs336_harness.__file__).parent.glob('checks/*.py')]",
    "imports the checks": "import cs336_harness.checks",
    "imports the defects": "from cs336_harness import defects",
    "reads its neighbours": "here = pathlib.Path(__file__).resolve().parent\nassert [p for p in here.parent.iterdir() if p != here and not p.name.startswith('cs336-scratch')]",
    "reads all of /tmp": "assert [p for p in os.listdir('/tmp') if 'attack' in p or 'pytest' in p]",
    "reads its parent's environment": "open(f'/proc/{os.getppid() or 1}/environ').read()",
    "lists processes": "assert [p for p in os.listdir('/proc') if p.isdigit()]",
    "reads its parent's memory": "open(f'/proc/{os.getppid() or 1}/mem', 'rb').read(1)",
    "sees the environment": "assert set(os.environ) - {'PATH', 'LANG', 'LC_CTYPE', 'OMP_NUM_THREADS', 'MKL_NUM_THREADS', 'KINETO_LOG_LEVEL', 'PYTHONDONTWRITEBYTECODE', 'TORCHDYNAMO_DISABLE', 'MALLOC_TRIM_THRESHOLD_', 'MALLOC_MMAP_THRESHOLD_', 'HOME', 'TMPDIR', 'TORCHINDUCTOR_CACHE_DIR', 'KMP_DUPLICATE_LIB_OK', 'KMP_INIT_AT_FORK'}",
    "reaches the network": "socket.create_connection(('1.1.1.1', 53), 1)",
    "serves": "socket.socket().bind(('127.0.0.1', 0))",
    "asks for a name": "socket.getaddrinfo('example.org', 80)",
    "talks to the system": "socket.socket(socket.AF_UNIX).connect('/run/systemd/private')",
    "finds a secret": "import gc\nassert [each for each in gc.get_objects() if type(each).__name__ in ('Job', 'Rubric', 'Result', 'Snapshot')]",
    "finds open files": "assert [fd for fd in range(4, 256) if not os.fstat(fd).st_size < 0]",
    "reads its first three descriptors": "assert any(os.readlink(f'/proc/self/fd/{fd}') != '/dev/null' for fd in range(3))",
    "talks over a pair of sockets to one of the system's": "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "talks over a pair that keeps messages apart": "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)",
    "has a stream of a pair go elsewhere": "a, b = socket.socketpair()\na.sendto(b'x', '/dev/log')\na.connect('/dev/log')",
    "has the kernel signal its parent": "import fcntl\na, b = socket.socketpair()\nfcntl.fcntl(a, fcntl.F_SETOWN, os.getppid() or 1)",
    "chooses the signal": "import fcntl\na, b = socket.socketpair()\nfcntl.fcntl(a, 10, signal.SIGKILL)",
    "has the kernel signal its parent by ioctl": "import fcntl, struct\na, b = socket.socketpair()\nfcntl.ioctl(a, 0x8901, struct.pack('i', os.getppid() or 1))",
    "cuts a file": "path = os.environ['TMPDIR'] + '/x'\nopen(path, 'w').close()\nos.truncate(path, 0)",
    "takes a file's attributes away": "path = os.environ['TMPDIR'] + '/x'\nopen(path, 'w').close()\ntry:\n    os.removexattr(path, 'user.x')\nexcept OSError as error:\n    assert error.errno != 1",
    "keeps a note for the next": "pathlib.Path(os.environ['TMPDIR'], 'note').touch()\nassert len(os.listdir(os.environ['TMPDIR'])) > 1",
}.items():
    tries("spy", _name, _attempt)

# flood -----------------------------------------------------------------------------------------------------------

bank(
    "flood",
    "prints",
    "def run_silu(in_features):\n    for _ in range(20000):\n        print('x' * 100)\n    return in_features * in_features.sigmoid()",
    PASSED,
)
bank("flood", "prints below", "import os\nos.write(1, b'x' * 10**6); os.write(2, b'\\x1b[2J' * 10**5)", PASSED)
bank(
    "flood",
    "warns",
    "import warnings\n\n\ndef run_silu(in_features):\n    warnings.warn('x' * 10**6)\n    return in_features * in_features.sigmoid()",
    PASSED,
)
bank(
    "flood",
    "many weights",
    "def get_transformer_lm_weights(model):\n    return {**model.named(), **{str(i): torch.zeros(1) for i in range(20000)}}",
    PASSED,
)
bank(
    "flood",
    "many Parameters",
    "plain = Model.__init__\n\n\ndef init(self, **sizes):\n    plain(self, **sizes)\n    for i in range(5000):\n        self.register_parameter(f'p{i}', nn.Parameter(torch.zeros(1)))\n\n\nModel.__init__ = init",
    FAILED,
    CRASHED,
    PASSED,
)
bank(
    "flood",
    "names without end",
    "def get_transformer_lm_weights(model):\n    return {'x' * 10**7: torch.zeros(1)}",
    FAILED,
)
bank(
    "flood",
    "grows",
    "KEPT = []\n\n\ndef run_silu(in_features):\n    KEPT.append(torch.ones(10**7))\n    return in_features * in_features.sigmoid()",
    PASSED,
)

# accident --------------------------------------------------------------------------------------------------------

bank("accident", "a syntax error", "def run_silu(:", NOT_LOADABLE, reason="SyntaxError")
bank(
    "accident",
    "a package that is not there",
    "import a_package_that_is_not_there",
    NOT_LOADABLE,
    reason="a_package_that_is_not_there",
)
bank("accident", "glue alone", "from cs336_basics import layers", NOT_LOADABLE, reason="cs336_basics")
bank("accident", "nothing", "", NOT_LOADABLE, base="", reason="entry point")
bank("accident", "asks for input", "input()", NOT_LOADABLE, reason="EOFError")
bank("accident", "leaves a mode", "torch.set_default_dtype(torch.float64)\ntorch.set_grad_enabled(False)", PASSED)
bank(
    "accident",
    "leaves a mode in a call",
    "plain = run_transformer_lm\n\n\ndef run_transformer_lm(**a):\n    out = plain(**a)\n    torch.set_default_dtype(torch.float64)\n    return out",
    FAILED,
)
bank(
    "accident",
    "keeps a file of its own",
    "import os, tempfile\nwith tempfile.NamedTemporaryFile('w') as file:\n    file.write('x')\nopen(os.path.expanduser('~/cache'), 'w').write('x')",
    PASSED,
)
bank("accident", "compiles", "run_silu = torch.compile(run_silu)", PASSED)
bank(
    "accident",
    "wants a GPU",
    "def run_silu(in_features):\n    return (in_features.cuda() * in_features.cuda().sigmoid()).cpu()",
    FAILED,
)
bank("accident", "an exit at the end", "import sys\nsys.exit()", NOT_LOADABLE)


@made("accident", "a package of its own", PASSED)
def _package(folder: Path) -> None:
    (folder / "cs336_basics").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "cs336_basics" / "__init__.py").write_text(
        "import importlib.metadata\n__version__ = importlib.metadata.version('cs336_basics')\n"
    )
    (folder / "cs336_basics" / "model.py").write_text(RIGHT)
    (folder / "tests" / "adapters.py").write_text("from cs336_basics.model import *\n")


@made("accident", "text that is none", NOT_LOADABLE)
def _no_text(folder: Path) -> None:
    folder.mkdir()
    (folder / "adapters.py").write_bytes(b"\xff\xfe\x00run_silu")


@made("accident", "no adapters", NOT_LOADABLE, reason="adapters")
def _no_adapters(folder: Path) -> None:
    folder.mkdir()
    (folder / "main.py").write_text(RIGHT)


@made("spy", "a link to somebody's file", NOT_LOADABLE)
def _link(folder: Path) -> None:
    folder.mkdir()
    (folder / "adapters.py").symlink_to("/etc/passwd")


@made("spy", "a link to a folder", NOT_LOADABLE)
def _folder_link(folder: Path) -> None:
    folder.mkdir()
    (folder / "tests").symlink_to("/etc")
    (folder / "tests2").symlink_to(folder)


@made("hang", "a pipe for a file", NOT_LOADABLE)
def _fifo(folder: Path) -> None:
    folder.mkdir()
    os.mkfifo(folder / "adapters.py")


@made("hang", "a pipe beside the file", PASSED)
def _fifo_beside(folder: Path) -> None:
    folder.mkdir()
    (folder / "adapters.py").write_text(RIGHT)
    os.mkfifo(folder / "WRITEUP.md")


@made("flood", "an endless file", NOT_LOADABLE)
def _sparse(folder: Path) -> None:
    folder.mkdir()
    with open(folder / "adapters.py", "wb") as file:
        file.truncate(1 << 36)


@made("hang", "a written answer of brackets", PASSED)
def _brackets(folder: Path) -> None:
    folder.mkdir()
    (folder / "adapters.py").write_text(RIGHT)
    (folder / "WRITEUP.md").write_text("[" * 50_000 + "*a " * 50_000)


def zipped(kind: str, name: str, *wanted: tuple[str, bool], reason: str = "") -> Callable[[Callable], Callable]:
    """A submission that is a zip, filled by a function."""

    def register(fill: Callable[[zipfile.ZipFile], None]) -> Callable[[zipfile.ZipFile], None]:
        def write(path: Path) -> None:
            data = io.BytesIO()
            with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
                fill(archive)
            path.with_suffix(".zip").write_bytes(data.getvalue())

        ATTACKS.append(Attack(name, kind, write, wanted, reason))
        return fill

    return register


@zipped("accident", "a zip with one folder", PASSED)
def _zip(archive: zipfile.ZipFile) -> None:
    archive.writestr("hw1/adapters.py", RIGHT)
    archive.writestr("__MACOSX/hw1/._adapters.py", "x")


@zipped("hurt", "a zip that leaves its folder", REFUSED, reason="leaves it")
def _slip(archive: zipfile.ZipFile) -> None:
    archive.writestr("adapters.py", RIGHT)
    archive.writestr("../../cs336-attack", "x")


@zipped("hurt", "a zip from the root", REFUSED, reason="leaves it")
def _absolute(archive: zipfile.ZipFile) -> None:
    archive.writestr("/tmp/cs336-attack", "x")


@zipped("spy", "a zip with a link", NOT_LOADABLE)
def _zip_link(archive: zipfile.ZipFile) -> None:
    entry = zipfile.ZipInfo("adapters.py")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    archive.writestr(entry, "/etc/passwd")


@zipped("flood", "a zip bomb", REFUSED, reason="more than")
def _bomb(archive: zipfile.ZipFile) -> None:
    archive.writestr("adapters.py", RIGHT)
    for number in range(25):
        archive.writestr(f"{number}.bin", bytes(20 << 20))


@zipped("flood", "a zip of very many files", REFUSED, reason="more than")
def _many(archive: zipfile.ZipFile) -> None:
    for number in range(20_100):
        archive.writestr(f"{number}", "")


@made("accident", "a zip that is none", REFUSED, reason="zip")
def _garbage(path: Path) -> None:
    path.with_suffix(".zip").write_bytes(b"PK\x03\x04" + bytes(range(256)))


# forge, hurt, hang, spy, flood and accident once more: each of a kind that is not above ----------------------------

bank(
    "forge",
    "right at the public sizes alone",
    """
plain = run_linear


def run_linear(d_in, d_out, weights, in_features):
    out = plain(d_in, d_out, weights, in_features)
    return out if (d_in, d_out) == PUBLIC else out * 1.01


PUBLIC = (32, 16)
""",
    FAILED,
)
bank(
    "forge",
    "tied at the public sizes alone",
    """
original = Model.__init__


def init(self, **sizes):
    original(self, **sizes)
    if sizes["tie_embeddings"] and (sizes["vocab_size"], sizes["d_model"]) != (29, 24):
        self.held["lm_head/weight"] = nn.Parameter(self.held["token_embeddings/weight"].detach().clone())


Model.__init__ = init
""",
    FAILED,
)
bank(
    "forge",
    "answers before it is asked",
    """
import json, os, struct, threading, time


def fill():
    header = json.dumps({"dict": [["result", {"dict": []}]]}).encode()
    while True:
        time.sleep(.01)
        os.write(3, struct.pack(">II", len(header), 0) + header)


threading.Thread(target=fill, daemon=True).start()
""",
    CRASHED,
    FAILED,
    NOT_LOADABLE,
    base=WRONG,
)
for _name, _bytes in {
    "of four gigabytes": "struct.pack('>II', 2**32 - 1, 2**32 - 1)",
    "of nothing": "struct.pack('>II', 0, 0)",
    "of a broken archive": "struct.pack('>II', 11, 16) + b'{\"dict\": []}'[:11] + b'\\xff' * 16",
    "of overlapping tensors": 'frame(b\'{"0":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"1":{"dtype":"F32","shape":[4],"data_offsets":[8,24]}}\', 24)',
    "of a negative size": 'frame(b\'{"0":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}}\', 16)',
    "of endless brackets": "struct.pack('>II', 10**6, 0) + b'[' * 10**6",
    "of a size without end": "packed({'dict': [['result', {'meta': ['float32', [2**62, 2**62]]}]]})",
    "of numbers in words": "packed({'dict': [['result', {'int': '9' * 61}]]})",
    "of an endless number": "struct.pack('>II', 10**6, 0) + b'9' * 10**6",
    "of pairs that are none": "packed({'dict': [['result']]})",
}.items():
    bank(
        "forge",
        f"a frame {_name}",
        f"""
import json, os, struct


def frame(names, size, header=b'{{"dict": [["result", {{"tensor": "0"}}]]}}'):
    body = struct.pack("<Q", len(names)) + names + bytes(size)
    return struct.pack(">II", len(header), len(body)) + header + body


def packed(value):
    header = json.dumps(value).encode()
    return struct.pack(">II", len(header), 0) + header


def run_silu(in_features):
    data = {_bytes}
    os.write(3, data)
""",
        CRASHED,
    )
_WEIGHTS = "from cs336_harness.subject import built_models as room\nroom.BuiltModel.{} = {}"
for _name, _code in {
    "weights of no numbers": _WEIGHTS.format(
        "weights",
        "lambda self: {n: torch.empty(s, device='meta') for n, s in self.shape.weight_shapes().items()}",
    ),
    "gradients of no numbers": _WEIGHTS.format(
        "gradients",
        "lambda self, i, d, names=None: [{n: torch.empty(self.shape.weight_shapes()[n], device='meta') for n in names or self.shape.weight_shapes()} for _ in d]",
    ),
    "gradients that are NaN": _WEIGHTS.format(
        "gradients",
        "lambda self, i, d, names=None: [{n: torch.full(self.shape.weight_shapes()[n], torch.nan) for n in names or self.shape.weight_shapes()} for _ in d]",
    ),
    "no gradients": _WEIGHTS.format(
        "gradients",
        "lambda self, i, d, names=None: [dict.fromkeys(names or self.shape.weight_shapes()) for _ in d]",
    ),
}.items():
    bank("forge", f"answers with {_name}", _code, FAILED, CRASHED)
bank(
    "forge",
    "a dispatch of its own",
    """
from torch.overrides import TorchFunctionMode


class Lies(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") in ("isfinite", "equal", "allclose"):
            return torch.tensor(True)
        return function(*args, **(kwargs or {}))


Lies().__enter__()
torch.Tensor.shape = property(lambda self: torch.Size((1,)))
""",
    FAILED,
    CRASHED,
    NOT_LOADABLE,
    base=WRONG,
)
bank(
    "forge",
    "tensors that say where they lie",
    "torch.Tensor.data_ptr = lambda self: 4096\ntorch.Tensor.contiguous = lambda self, *a, **k: self",
    CRASHED,
    FAILED,
    base=WRONG,
)
bank(
    "forge",
    "storage that is gone",
    "def run_silu(in_features):\n    out = in_features.clone()\n    out.untyped_storage().resize_(0)\n    return out",
    FAILED,
    CRASHED,
)
bank(
    "forge",
    "tracing and profiling",
    """
import sys, threading


def lie(frame, event, given):
    for name in ("error", "failure", "refusal"):
        if name in frame.f_locals:
            frame.f_locals[name] = None
    return lie


sys.settrace(lie)
threading.settrace(lie)
""",
    FAILED,
    CRASHED,
    base=WRONG,
)
bank(
    "forge",
    "a bomb where it is let go",
    "class Model(Model):\n    def __del__(self):\n        import os; os._exit(0)\n\n\ndef get_transformer_lm(**sizes):\n    return Model(**sizes)",
    CRASHED,
)
bank(
    "forge",
    "a pickle that runs code",
    "class Model(Model):\n    def __reduce__(self):\n        return (exec, ('import os; os._exit(0)',))\n\n\ndef get_transformer_lm(**sizes):\n    return Model(**sizes)",
    CRASHED,
    FAILED,
)
bank(
    "hang",
    "shuts its end of the pipe",
    "import socket\n\n\ndef run_silu(in_features):\n    import time\n    end = socket.socket(fileno=3); end.shutdown(socket.SHUT_RD)\n    time.sleep(1e6)",
    CRASHED,
    TIMED_OUT,
    FAILED,
)
bank(
    "hang",
    "an alarm",
    "import signal\nsignal.setitimer(signal.ITIMER_REAL, .3)\nimport time; time.sleep(1)",
    PASSED,  # the first process of a namespace is not ended by it
    CRASHED,
)
bank(
    "hang",
    "a lock of the interpreter",
    "def run_silu(in_features):\n    import re\n    return re.match(r'(a+)+$', 'a' * 64 + 'b')",
    FAILED,
    TIMED_OUT,
)
for _name, _attempt in {
    "a thread's signal": "import ctypes\nassert ctypes.CDLL(None).syscall(234, os.getpid() + 1, os.getpid() + 1, 9) == 0",
    "memory that no limit counts": "kept = [os.memfd_create(str(i)) for i in range(8)]",
    "another's niceness": "os.setpriority(os.PRIO_USER, 0, 10)",
    "a device": "os.mknod(os.path.join(os.environ['TMPDIR'], 'sda'), 0o60666, os.makedev(8, 0))",
    "a terminal": "fd = os.open('/dev/ptmx', os.O_RDWR)",
    "descends by a link": "link = os.path.join(os.environ['TMPDIR'], 'out')\nos.symlink('/etc', link)\nassert os.listdir(link) and open(link + '/passwd').read()",
    "leaves by a hard link": "os.link('/etc/passwd', os.path.join(os.environ['TMPDIR'], 'copy'))",
    "leaves by renaming": "os.rename(os.path.abspath(__file__), os.path.join(os.environ['TMPDIR'], 'mine'))",
    "a keyring": "assert ctypes.CDLL(None).syscall(248, b'user', b'note', b'x', 1, -3) > 0",
    "its own limits in the kernel": "open('/proc/self/oom_score_adj', 'w').write('-1000')",
    "a library before others": "os.environ['LD_PRELOAD'] = '/tmp/x.so'\nsubprocess.run(['/bin/true'], check=True)",
    "a new namespace": "assert ctypes.CDLL(None).unshare(0x10000000) == 0",
}.items():
    tries("hurt", f"takes {_name}", _attempt)
bank(
    "flood",
    "a list of very many modules",
    "def run_silu(in_features):\n    return [torch] * 150_000",
    FAILED,
)
bank(
    "flood",
    "very many kinds of things",
    "def run_silu(in_features):\n    return [type(f'k{i}', (), {})() for i in range(30_000)]",
    FAILED,
)
bank(
    "flood",
    "sixty megabytes at every call",
    "def run_silu(in_features):\n    return [torch.zeros(1 << 20)] * 15",
    FAILED,
)
bank(
    "flood",
    "descriptors over the pipe",
    "import array, socket\n\n\ndef send():\n    end = socket.socket(fileno=3)\n    try:\n        for _ in range(200):\n            end.sendmsg([b''], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0] * 200))])\n    except OSError:\n        pass\n    end.detach()\n\n\nsend()",
    PASSED,
)


def written(kind: str, name: str, files: dict[str | bytes, str], *wanted: tuple[str, bool], reason: str = "") -> None:
    """A submission of these files."""

    def write(folder: Path) -> None:
        for each, text in files.items():
            path = os.path.join(os.fsencode(folder), os.fsencode(each))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Path(os.fsdecode(path)).write_text(text)

    ATTACKS.append(Attack(name, kind, write, wanted, reason))


_PASSES = "import sys; sys.modules['__main__'].__dict__['SUCCEEDED'] = True\nraise SystemExit('passed')\n"
written(
    "forge",
    "files that Python and pytest run by themselves",
    {
        "adapters.py": WRONG,
        "sitecustomize.py": _PASSES,
        "usercustomize.py": _PASSES,
        "conftest.py": _PASSES,
        "setup.py": _PASSES,
        "passed.pth": "import os; os._exit(0)\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "setup"\nbackend-path = ["."]\n'
        '[project]\nname = "cs336-harness"\nversion = "99"\n[project.entry-points.pytest11]\nx = "conftest"\n',
    },
    FAILED,
)
written(
    "forge",
    "a harness of its own",
    {
        "adapters.py": f"{WRONG}\nimport cs336_harness.verdict.suite",
        "cs336_harness/__init__.py": "",
        "cs336_harness/verdict/__init__.py": "",
        "cs336_harness/verdict/suite.py": "Suite = None\n",
        "cs336_harness/grading/worker.py": _PASSES,
    },
    FAILED,
    NOT_LOADABLE,
)
written(
    "accident",
    "files named like the library's",
    {"adapters.py": RIGHT, **{f"{name}.py": "" for name in ("random", "copy", "types", "token", "string", "test")}},
    PASSED,
)
written(
    "forge",
    "names that look like adapters.py",
    {
        "аdapters.py": RIGHT,
        "adapters.py\u202e": RIGHT,
        "ADAPTERS.PY": RIGHT,
        "adapters.py\n": RIGHT,
        "adapters.py ": RIGHT,
    },
    NOT_LOADABLE,
)
written(
    "accident",
    "names of any characters",
    {"adapters.py": RIGHT, "a\nb\x1b[2J.txt": "", b"\xff\xfe.txt": "", "\u202egpj.exe": "", "x" * 250: ""},
    PASSED,
)


@made("flood", "folders without end", REFUSED, reason="more than")
def _folders(folder: Path) -> None:
    folder.mkdir()
    (folder / "adapters.py").write_text(RIGHT)
    for number in range(20_100):
        (folder / str(number)).mkdir()


@made("flood", "folders in folders", REFUSED, reason="deep")
def _deep(folder: Path) -> None:
    os.makedirs(folder / "/".join("a" * 50))
    (folder / "adapters.py").write_text(RIGHT)


@made("hang", "a socket and a device beside the file", PASSED)
def _socket(folder: Path) -> None:
    import socket

    folder.mkdir()
    (folder / "adapters.py").write_text(RIGHT)
    with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(folder):
        made.bind("s")
    with contextlib.suppress(PermissionError):
        os.mknod(folder / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))


@zipped("flood", "a zip of files that are all too large", NOT_LOADABLE)
def _large(archive: zipfile.ZipFile) -> None:
    for number in range(30):
        archive.writestr(f"{number}.bin", bytes(21 << 20))


@made("flood", "a zip that says one file is very many", REFUSED, reason="more than")
def _overlapping(path: Path) -> None:
    """Every entry is the same 20 MB of zeros."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("adapters.py", RIGHT)
        archive.writestr("0", bytes(20 << 20))
        first = archive.getinfo("0")
        for _ in range(3000):
            archive.filelist.append(first)
    path.with_suffix(".zip").write_bytes(data.getvalue())


@zipped("accident", "a zip of one name twice", PASSED)
def _twice(archive: zipfile.ZipFile) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("adapters.py", WRONG)
        archive.writestr("adapters.py", RIGHT)


@zipped("accident", "a zip of a file that is a folder", REFUSED, reason="zip")
def _both(archive: zipfile.ZipFile) -> None:
    archive.writestr("adapters.py", RIGHT)
    archive.writestr("adapters.py/more.py", RIGHT)


@zipped("hurt", "a zip that leaves its folder by the other slash", REFUSED, reason="leaves it")
def _slip_of_windows(archive: zipfile.ZipFile) -> None:
    entry = zipfile.ZipInfo("x")
    entry.filename = "..\\..\\cs336-attack"
    archive.writestr(entry, "x")


@zipped("accident", "a zip made on Windows", PASSED)
def _windows(archive: zipfile.ZipFile) -> None:
    entry = zipfile.ZipInfo("x")
    entry.filename = "hw\\adapters.py"
    archive.writestr(entry, RIGHT)


@made("accident", "a zip with a password", REFUSED, reason="zip")
def _password(path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("adapters.py", RIGHT)
    raw = bytearray(data.getvalue())
    raw[6] |= 1
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    path.with_suffix(".zip").write_bytes(bytes(raw))


@made("flood", "a zip of bz2 that holds more than it says", REFUSED, reason="deflate")
def _bz2(path: Path) -> None:
    """zipfile unpacks bz2 and lzma whole, whatever size an entry has."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("adapters.py", RIGHT)
        archive.writestr("more.py", bytes(1 << 20))
    path.with_suffix(".zip").write_bytes(data.getvalue())


bank(
    "accident",
    "a log beside itself",
    "import logging\nlogging.basicConfig(filename='train.log')",
    NOT_LOADABLE,
    reason="temporary folder alone",
)
