"""No check asks anything else than was agreed on."""

from asked import COMMAND, agreed, all_questions


def test_every_check_asks_what_was_agreed_on() -> None:
    found, known = dict(all_questions()), agreed()
    changed = [name for name in {**found, **known} if name not in found or not found[name].same(known.get(name, []))]
    assert not changed, f"{len(changed)} checks ask something else: {', '.join(changed[:8])}; if meant, `{COMMAND}`"
