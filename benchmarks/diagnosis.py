"""How much of the dictionary is caught, named and placed, and what is said of pairs and of correct decoders.

    uv run python benchmarks/diagnosis.py [--pairs 200] [--seed 0]

*Caught*: some required check fails. *Told once*: every other failure is blocked by the first. *Named*: the diagnosis of
the first failure is that mistake and no other. *Placed*: it gives the mistake's place. *Black box*: the place found
through run_transformer_lm alone, without any name. Pairs are drawn at random from those that do not contradict each
other and of which neither hides the other; *both named* counts the pairs of which the whole report names both. What
reports cost is measured by benchmarks/reports.py.
"""

import argparse
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "harness"))

import torch
from unlisted import UNLISTED
from unlisted import subject_of as unlisted_subject
from variations import COVERING, VARIATIONS, VariationAdapters

from cs336_harness.checks import all_checks
from cs336_harness.defects import Defect, contradiction, real_defects, subject_of
from cs336_harness.diagnosis import Probe
from cs336_harness.diagnosis.localising import locate
from cs336_harness.diagnosis.matching import match, match_pair
from cs336_harness.diagnosis.observing import expected_of, same
from cs336_harness.diagnosis.programs import EVERY, can_show, program
from cs336_harness.subject.calling import Subject
from cs336_harness.verdict.audit import audit
from cs336_harness.verdict.suite import Suite


def single_mistakes() -> None:
    """Every mistake of the dictionary, alone."""
    caught = once = named = placed = 0
    for defect in real_defects():
        audited = audit(defect)
        caught += bool(audited.failing)
        once += len(audited.told) == 1
        found = audited.diagnosis
        exact = found is not None and [item.name for item in found.defects] == [defect.name]
        right = found is not None and found.where == str(defect.place)
        named, placed = named + exact, placed + right
        if not (audited.failing and exact and right):
            print(f"  {defect.name}: {'caught' if audited.failing else 'not caught'}, said: {found and found.title}")
    total = len(real_defects())
    print(
        f"single mistakes: {total}; caught {caught / total:.1%}, told once {once / total:.1%},"
        f" named {named / total:.1%}, placed {placed / total:.1%}"
    )


def black_box() -> None:
    """Places through run_transformer_lm alone."""
    total = right = 0
    for defect in real_defects():
        if can_show(defect, "run_transformer_lm"):
            found = locate(Probe(subject_of(defect)), "run_transformer_lm")
            total += found is not None
            right += found is not None and found.place is defect.place
    print(f"black box, place without a name: {right} of {total} exactly")


def correct_decoders() -> None:
    """Names given to what is right."""
    false = 0
    for title, variation in {**VARIATIONS, **COVERING}.items():
        probe = Probe(Subject(VariationAdapters(variation), title))
        false += sum(
            (match(probe, program_name) or match_pair(probe, program_name)) is not None for program_name in EVERY
        )
    print(f"correct variations: {len(VARIATIONS) + len(COVERING)}; named {false}")


def unlisted_faults() -> None:
    """What is said of faults that the dictionary does not hold."""
    for name, (_, places) in UNLISTED.items():
        suite = Suite(unlisted_subject(name))
        results = list(suite.run(check for check in all_checks().values() if not check.advisory))
        failed = [result for result in results if result.outcome == "failed"]
        found = next((result.diagnosis for result in failed if result.diagnosis is not None), None)
        where = found.where if found is not None else "nowhere"
        verdict = "right" if where in {str(place) for place in places} else "WRONG"
        said = found.title if found is not None else failed[0].message if failed else "NOT CAUGHT"
        print(f"  {name}: {len(failed)} failed; {where} ({verdict}); {said}")


def hides(first: type[Defect], second: type[Defect]) -> bool:
    """Whether the first changes nothing beside the second."""
    return all(
        same(expected_of(experiment, (first, second)), experiment, (second,))
        for name in EVERY
        for experiment in program(name)
    )


def two_mistakes(number: int, seed: int) -> None:
    """Pairs drawn at random."""
    draw = random.Random(seed)
    both = one = done = 0
    while done < number:
        pair = draw.sample(real_defects(), 2)
        if contradiction(*pair) is not None or hides(*pair) or hides(*reversed(pair)):
            continue
        done += 1
        suite = Suite(subject_of(*pair))
        checks = [check for check in all_checks().values() if not check.advisory]
        told = {d.name for r in suite.run(checks) if r.diagnosis is not None for d in r.diagnosis.defects}
        hit = sum(defect.name in told for defect in pair)
        both, one = both + (hit == 2), one + (hit == 1)
        if hit < 2:
            print(f"  {pair[0].name} + {pair[1].name}: {', '.join(sorted(told)) or 'nothing'}", flush=True)
    print(f"pairs: {done}; both named {both / done:.1%}, one of them {one / done:.1%}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    correct_decoders()
    single_mistakes()
    black_box()
    unlisted_faults()
    two_mistakes(given.pairs, given.seed)
