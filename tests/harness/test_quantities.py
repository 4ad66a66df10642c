"""What an accounting answer may state, looked up both ways; and the one table of accounting mistakes."""

import re
from fractions import Fraction

import pytest
from written import HANDOUTS, Sizes

from cs336_harness.cost.laws import SHAPES
from cs336_harness.cost.ledger import (
    ATTENTION,
    BLOCK,
    BYTES,
    EVERYTHING,
    FEED_FORWARD,
    FLOPS,
    LAYER,
    PARAMETERS,
    POSITION_PAIRS,
    PROJECTIONS,
    RATIO,
    components_of,
    true_ledger,
)
from cs336_harness.cost.measure import Measure
from cs336_harness.cost.mistakes import MISTAKES, mistakes_in, slips
from cs336_harness.cost.quantities import Amounts, Case, quantity, sibling
from cs336_harness.defects import all_defects

SHAPE = HANDOUTS["2026"]
SIZES = Sizes(SHAPE)
MAIN = Case("gpt2-xl", SHAPE, 1, SHAPE.context_length)
LONG = Case("gpt2-xl", SHAPE, 1, 16 * SHAPE.context_length)
SMALL = Case("gpt2-small", sibling(SHAPE, "gpt2-small"), 1, SHAPE.context_length)
ALL = Amounts([MAIN, LONG, SMALL])


def exactly(value: int) -> list[tuple[str, frozenset[str], str]]:
    return [(q.dimension, q.measure.components, q.measure.scope) for q in ALL.near(Fraction(value), Fraction(value))]


@pytest.mark.parametrize(
    ("value", "dimension", "components", "scope"),
    [
        (SIZES.parameters, PARAMETERS, EVERYTHING, "model"),
        (4 * SIZES.parameters, BYTES, EVERYTHING, "model"),
        (SIZES.flops, FLOPS, EVERYTHING, "model"),
        (4 * SIZES.D**2, PARAMETERS, PROJECTIONS, "layer"),
        (3 * SIZES.D * SIZES.F * SIZES.L, PARAMETERS, FEED_FORWARD, "model"),
        (4 * SIZES.T**2 * SIZES.D, FLOPS, POSITION_PAIRS, "layer"),
        (8 * SIZES.T * SIZES.D**2 + 4 * SIZES.T**2 * SIZES.D, FLOPS, ATTENTION, "layer"),
        (SIZES.flops - SIZES.lines["lm_head"], FLOPS, BLOCK, "model"),
    ],
)
def test_a_value_is_found_by_what_it_is(value: int, dimension: str, components: frozenset[str], scope: str):
    assert (dimension, components_of(dimension, components), scope) in exactly(value)


def test_growth_is_measured_between_lengths_and_between_models():
    long = Sizes(SHAPE.replace(context_length=16 * SHAPE.context_length))
    growth = quantity(Measure(FLOPS, components_of(FLOPS, EVERYTHING)), LONG, MAIN)
    assert growth.value == Fraction(long.flops, SIZES.flops)
    assert growth.dimension == RATIO
    squares = quantity(Measure(FLOPS, POSITION_PAIRS), LONG, MAIN)
    assert squares.value == 256
    models = quantity(Measure(PARAMETERS, components_of(PARAMETERS, EVERYTHING)), MAIN, SMALL)
    assert models.value == Fraction(SIZES.parameters, Sizes(SMALL.shape).parameters)


def test_per_token_and_in_one_block():
    per_token = quantity(Measure(FLOPS, components_of(FLOPS, EVERYTHING), per_token=True), MAIN)
    assert per_token.value == Fraction(SIZES.flops, SIZES.T)
    block = quantity(Measure(PARAMETERS, components_of(PARAMETERS, BLOCK), LAYER), MAIN)
    assert block.value == 4 * SIZES.D**2 + 3 * SIZES.D * SIZES.F + 2 * SIZES.D


@pytest.mark.parametrize("handout", HANDOUTS)
def test_siblings_have_their_d_ff_by_the_rule_of_the_stated_model(handout: str):
    shape = HANDOUTS[handout].replace(vocab_size=1000, tie_embeddings=True)
    small = sibling(shape, "gpt2-small")
    assert small.d_ff == {"2026": 2048, "2025": 3072}[handout]
    assert (small.vocab_size, small.tie_embeddings, small.num_layers) == (1000, True, 12)


def test_no_two_quantities_are_the_same_thing():
    assert len({(q.measure, q.case) for q in ALL.all}) == len(ALL.all)
    assert all(q.value > 0 for q in ALL.all)


SHAPES_TO_GET_WRONG = [
    *SHAPES.values(),
    *(shape.replace(tie_embeddings=True) for shape in SHAPES.values()),
    SHAPES["gpt2_xl"].replace(d_ff=6400),
    SHAPES["mha"].replace(d_model=80, num_heads=5, num_kv_heads=5),
]


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_changes_a_total_somewhere_and_says_what_to_think_about(name: str):
    mistake = MISTAKES[name]
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert mistake.prose or mistake.code
    assert mistake.explanation.endswith(".")
    assert mistake.hint.endswith("?")
    for dimension in (PARAMETERS, FLOPS):
        if dimension in mistake.prose | mistake.code:
            assert mistake.steps_in(dimension)
            whole = Measure(dimension, EVERYTHING)
            ledgers = [true_ledger(shape, 3, 20) for shape in SHAPES_TO_GET_WRONG]
            changed = [ledger for ledger in ledgers if whole.of(mistake.change(ledger)) != whole.of(ledger)]
            assert changed
            assert "{" not in mistake.said_of(changed[0])


def test_the_fault_dictionary_takes_its_accounting_entries_from_the_table():
    entries = {name for name, entry in all_defects().items() if entry.place == "accounting"}
    derived = {f"{dimension}-{m.name}".lower() for m in MISTAKES.values() for dimension in m.code}
    assert entries == derived
    for mistake in MISTAKES.values():
        for dimension in mistake.code:
            entry = all_defects()[f"{dimension}-{mistake.name}".lower()]
            assert (entry.explanation(), entry.hint) == (mistake.explanation, mistake.hint)
            assert entry.steps == mistake.steps_in(dimension)


def test_no_mistake_touches_the_true_ledger():
    ledger = Case("", SHAPE, 1, 1024).ledger
    before = (dict(ledger.parameters), dict(ledger.flops))
    for mistake in MISTAKES.values():
        mistake.change(ledger)
    assert (ledger.parameters, ledger.flops) == before


def test_slips_know_the_unit_that_was_written():
    ledger = MAIN.ledger
    units = ("GB", "GiB", "KB", "bytes")
    names = {unit: {slip.name for slip in slips(BYTES, unit, ledger, 4, "model")} for unit in units}
    assert "gib-as-gb" in names["GB"]
    assert "gib-as-gb" in names["KB"]
    assert "gb-as-gib" in names["GiB"]
    assert not {"gib-as-gb", "gb-as-gib"} & names["bytes"]
    assert {slip.name for slip in slips(FLOPS, "", ledger, 4, "layer")} >= {"all-blocks"}


def test_the_usual_mistakes_stand_first():
    for dimension in (PARAMETERS, BYTES, FLOPS):
        usual = [mistake.usual for mistake in mistakes_in(dimension)]
        assert usual == sorted(usual, reverse=True)
