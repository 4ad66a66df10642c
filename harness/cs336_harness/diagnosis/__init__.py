"""Diagnosis: where a fault is, and which known mistake it is. Runs only on failure; a name it gives is right.

A subject is a black box behind its entry points, so whatever is said of it was seen in calls. Three things are done
with calls, each in a module of its own:

**Experiment** (:mod:`observing`, :mod:`rungs`, :mod:`ladders`, :mod:`component_ladders`, :mod:`facts`). An experiment
is one call with small tensors, or a few lines of code, and the words for what it looks at. The experiments on one entry
point make a *program*, from the simplest (all sublayers zero, one token, equal scores) to the whole: each adds one
thing, so the first one to differ from the oracle says what was added last. A program is data; nothing in it knows of a
defect. :class:`matching.Probe` makes each experiment once for a subject and keeps what it showed.

**Match** (:mod:`matching`, :mod:`programs`). A known mistake is an oracle with that mistake built in, so it can be
put through the same experiments. It matches when it gives *everything* that the subject gives, within rounding: where
the subject is wrong, wrong in the same way, and where it is right, right. Of several that match, those that also
explain the other entry points stay. Two mistakes at once are searched for only where no single one matches.

**Locate** (:mod:`localising`, :mod:`zeroed_sublayers`, :mod:`questions`). Where nothing matches, the first experiment
that differs gives a place, and a few questions there narrow it: the same call with a weight zeroed, one token changed,
one head only. :mod:`reproducing` finds the smallest call that shows the fault, and :mod:`wording` says it all.

What a newcomer must keep:

- A correct decoder differs in no experiment: every new experiment is tried on the correct variations.
- Never claim more than was seen. A mistake that explains half of the numbers is no match, and a match is named only if
  the mistake makes the failing check fail as well (:mod:`diagnosing`).
- An experiment that cannot be made (an entry point is absent, or blank) decides nothing either way.
- The first rung must be the simplest: a rung that needs something which an earlier one does not show misplaces faults.
- The diagnosis never raises for a person who wants a verdict; under the harness's own tests it does
  (``CS336_HARNESS_RAISES``), so that a bug in here is seen.
- What is printed was run: a snippet is compiled from the very text that is shown.
"""

from cs336_harness.diagnosis.diagnosing import diagnose_blocked, diagnose_check, probe_of
from cs336_harness.diagnosis.matching import Probe
from cs336_harness.diagnosis.replaying import reproduced
from cs336_harness.diagnosis.wording import Diagnosis

__all__ = ["Diagnosis", "Probe", "diagnose_blocked", "diagnose_check", "probe_of", "reproduced"]
