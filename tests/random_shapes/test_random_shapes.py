"""Random valid shapes against the slow oracle: the same in every run; a failure says how to make its shape again."""

import pytest

pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cs336_harness.checks.slow_oracle import judge_random_shape
from cs336_harness.checks.whole_model import Case
from cs336_harness.places import HOME
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import ASSEMBLY
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.loading import load


@st.composite
def cases(draw: st.DrawFn, grouped: bool = True) -> Case:
    """Small models of every kind; d_ff is a multiple of 64 between 2 and 3 times d_model."""
    num_heads = draw(st.sampled_from([1, 2, 3, 4, 5, 6]))
    d_head = draw(st.sampled_from([size for size in (4, 6, 8, 10, 14, 24, 30) if 22 <= size * num_heads <= 32]))
    divisors = [count for count in range(1, num_heads + 1) if num_heads % count == 0]
    context_length = draw(st.integers(1, 9))
    shape = DecoderShape(
        vocab_size=draw(st.integers(2, 40)),
        context_length=context_length,
        d_model=d_head * num_heads,
        num_layers=draw(st.integers(1, 3)),
        num_heads=num_heads,
        num_kv_heads=draw(st.sampled_from(divisors)) if grouped else num_heads,
        d_ff=64,
        rope_theta=draw(st.sampled_from([100.0, 1000.0, 10000.0, 500000.0])),
        tie_embeddings=draw(st.booleans()) if grouped else False,
    )
    return Case(shape, draw(st.integers(1, 3)), draw(st.integers(1, context_length)), seed=draw(st.integers(0, 999)))


@pytest.fixture(scope="session")
def subject(request: pytest.FixtureRequest) -> Subject:
    """The subject that this run judges; hypothesis calls it too often for a process of its own."""
    return load(request.config.getoption("adapters") or HOME)


@settings(
    derandomize=True,
    max_examples=10,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_random_shapes(subject: Subject, data: st.DataObject) -> None:
    if subject.state("run_transformer_lm") != "filled":
        pytest.skip("run_transformer_lm is blank or not defined")
    grouped = all(subject.state(name) == "filled" for name in ASSEMBLY)
    judge_random_shape(subject, data.draw(cases(grouped)))
