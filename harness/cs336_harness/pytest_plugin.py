"""The same checks as pytest tests: options, failure sections, outcomes of their own, and a summary.

A judging test module is a list of :func:`judged_by` and :func:`judged_by_each`; neither holds any logic of its own. The
outcomes of :mod:`cs336_harness.verdict.suite` become pytest's: a failed check fails; a blank entry point fails, in one
line; a blocked, skipped or advisory check does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cs336_harness.places import HOME
from cs336_harness.subject.environment import loading_torch
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.subject.time_limit import CHECK_SECONDS, TOTAL_SECONDS

SETTINGS = None if HOME is None else HOME / "pyproject.toml"

JUDGING = "cs336_harness.judging"
"""The tests that judge where there are no others: ``pytest --pyargs cs336_harness.judging``."""

STAND_ASIDE = ("tests/basics", "tests/harness", "tests/pages", "tests/references")
"""Folders whose tests are not about the subject: they stand aside when a subject is given by ``--adapters``."""

WORDS = {
    "blank": ("blank", "b", ("BLANK", {"yellow": True})),
    "blocked": ("blocked", "-", ("BLOCKED", {"yellow": True})),
    "advisory": ("advisory", "!", ("ADVISORY", {"cyan": True})),
}
"""Category, letter and word of the outcomes that pytest does not know."""

TRIAL = pytest.StashKey[Any]()
ANSWER = pytest.StashKey[Callable[[], str]]()
WRITTEN = pytest.StashKey[list[str]]()


def judged_by(check_id: str) -> Callable[..., None]:
    """A pytest test that runs one check on the subject."""
    from cs336_harness.checks import all_checks

    check = all_checks()[check_id]

    def test(judge: Callable[[str], None]) -> None:
        judge(check.id)

    for mark in _marks(check):
        mark(test)
    return test


def judged_by_each(prefix: str) -> Callable[..., None]:
    """One parametrised pytest test for the checks whose id is ``prefix`` or begins with it."""
    from cs336_harness.checks import find

    return _judged_by_each(find(prefix))


def judged_by_the_rest_of(prefix: str, module: dict[str, Any]) -> Callable[..., None]:
    """Like :func:`judged_by_each`, without the checks that ``module`` already has a test of its own for."""
    from cs336_harness.checks import find

    marks = [mark for test in module.values() for mark in getattr(test, "pytestmark", ()) if mark.name == "check"]
    named = {mark.args[0] for mark in marks}
    return _judged_by_each([item for item in find(prefix) if item.id not in named])


def _judged_by_each(checks: list[Any]) -> Callable[..., None]:
    if not checks:
        raise ValueError("no check of that name")

    def test(judge: Callable[[str], None], check_id: str) -> None:
        judge(check_id)

    parameters = [pytest.param(item.id, id=item.id.partition(".")[2], marks=_marks(item)) for item in checks]
    return pytest.mark.parametrize("check_id", parameters)(test)


def _marks(check: Any) -> list[pytest.MarkDecorator]:
    names = {check.group, check.task} | ({"attention"} if "attention" in check.task else set())
    marks = [getattr(pytest.mark, name) for name in sorted(names)]
    return [*marks, pytest.mark.check(check.id)]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cs336", "judging a decoder")
    group.addoption("--adapters", type=Path, metavar="PATH", help="judge this adapters file or repository")
    group.addoption(
        "--snapshot-update", action="store_true", help="write again the public snapshots of the tests that run"
    )
    group.addoption("--no-diagnosis", action="store_true", help="do not say which known mistake a failure is")
    group.addoption(
        "--check-timeout",
        type=float,
        default=CHECK_SECONDS,
        metavar="SECONDS",
        help="how long the decoder may compute in one check",
    )
    group.addoption(
        "--total-timeout",
        type=float,
        default=TOTAL_SECONDS,
        metavar="SECONDS",
        help="how long all judging may take together",
    )
    group.addoption("--check-device", default="cpu", metavar="DEVICE", help="judge on cuda, cuda:1 or mps, not the CPU")
    group.addoption("--check-dtype", default="float32", metavar="DTYPE", help="judge in bfloat16 or float64")
    group.addoption("--check-compile", action="store_true", help="judge what torch.compile makes of the decoder")
    group.addoption("--check-backend", default="inductor", metavar="NAME", help="the backend of torch.compile")
    group.addoption("--hint", action="store_true", help="say more on each named mistake, step by step")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Starts again from this repository when ``--adapters PATH`` has moved pytest's root to PATH.

    pytest looks for its settings beside the paths on its command line, before it knows which belong to an option.
    """
    path, invocation = config.getoption("adapters"), config.invocation_params
    if path is None or not path.exists() or _at_home(config) or config.option.inifilename is not None:
        return None
    if HOME is None or not invocation.dir.is_relative_to(HOME) or _judges_from_the_package(config):
        return None
    others, arguments = [], iter(invocation.args)
    for argument in arguments:
        if argument == "--adapters":
            next(arguments)
        elif not str(argument).startswith("--adapters="):
            others.append(argument)
    return pytest.main(["-c", str(SETTINGS), "--rootdir", str(HOME), f"--adapters={path.resolve()}", *others])


def _at_home(config: pytest.Config) -> bool:
    return SETTINGS is not None and config.inipath == SETTINGS


def _judges_from_the_package(config: pytest.Config) -> bool:
    return any(str(argument).startswith(JUDGING) for argument in config.invocation_params.args)


def _idle(config: pytest.Config) -> bool:
    """Whether this run has nothing to do with judging: another project's tests in the same environment."""
    return config.getoption("adapters") is None and not _at_home(config) and not _judges_from_the_package(config)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[WRITTEN] = []
    if _idle(config):
        return
    path = config.getoption("adapters")
    if path is not None and not path.exists():
        raise pytest.UsageError(f"--adapters: no such file or directory: {path}")
    with loading_torch():
        from cs336_harness.checks.registry import GROUPS, TASKS

    for name in sorted({*GROUPS, *TASKS, "attention"}):
        config.addinivalue_line("markers", f"{name}: checks of this group or handout task")
    config.addinivalue_line("markers", "check(id): the check that a test runs")
    if HOME is None and config.getoption("snapshot_update"):
        raise pytest.UsageError(
            "--snapshot-update: snapshots are written in a clone of the harness, not where it is installed"
        )


def pytest_report_header(config: pytest.Config) -> str | None:
    if _idle(config):
        return None
    path = config.getoption("adapters")
    return f"cs336: judging {path if path is not None else 'this repository'}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.getoption("adapters") is None or not _at_home(config):
        return None
    folders = [config.rootpath / folder for folder in STAND_ASIDE]
    return True if any(collection_path.is_relative_to(folder) for folder in folders) else None


@pytest.fixture(scope="session")
def trial(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The subject of this run, judged in a process of its own by the checks of all tests that were chosen."""
    from cs336_harness.checks import all_checks
    from cs336_harness.isolation.trial import Trial
    from cs336_harness.reference import recipes
    from cs336_harness.subject.locating import repository_here
    from cs336_harness.verdict.progress import written_ahead

    config = request.config
    checks = [all_checks()[name] for name in dict.fromkeys(filter(None, map(_check_of, request.session.items)))]
    if config.getoption("snapshot_update"):
        for name in dict.fromkeys(check.snapshot for check in checks if check.snapshot is not None):
            recipes.update(name)
            config.stash[WRITTEN].append(name)
    try:
        with Trial(
            config.getoption("adapters") or (HOME if _at_home(config) else None) or repository_here(),
            checks,
            diagnose=not config.getoption("no_diagnosis"),
            timeout=config.getoption("check_timeout"),
            total=config.getoption("total_timeout"),
            setting=_setting(config),
        ) as made:
            config.stash[TRIAL] = made
            if len(checks) == len(all_checks()):  # the written answer is judged with them
                config.stash[ANSWER] = written_ahead(made.root)
            yield made
    except CannotJudgeError as error:
        pytest.exit(f"cs336: {error}", returncode=2)


def _setting(config: pytest.Config) -> Any:
    from cs336_harness.subject.setting import Setting

    names = ("device", "dtype", "compile", "backend")
    return Setting(**{name: config.getoption(f"check_{name}") for name in names})


@pytest.fixture
def judge(trial: Any, request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes the result of one check and turns it into pytest's words."""

    def run(check_id: str) -> None:
        result = trial.result(check_id)
        if result is None:
            pytest.fail(f"{check_id} was not run: {trial.cut_short}", pytrace=False)
        _tell(result, request)

    return run


def _check_of(item: pytest.Item) -> str | None:
    """The id of the check that a test judges by."""
    marker = item.get_closest_marker("check")
    return marker.args[0] if marker is not None else None


def _tell(result: Any, request: pytest.FixtureRequest) -> None:
    item = request.node
    item.user_properties += [("check", result.check.id), ("task", result.check.task), ("outcome", result.outcome)]
    if result.diagnosis is not None:
        item.user_properties.append(("diagnosis", result.diagnosis.title))
        hint = request.config.getoption("hint")
        item.add_report_section("call", "diagnosis", "\n".join(result.diagnosis.lines(hint=hint)))
    match result.outcome:
        case "failed":
            pytest.fail(
                "\n".join([result.message, *(f"  {line}" for line in result.failure.evidence.details)]), pytrace=False
            )
        case "blank":
            pytest.fail(result.message, pytrace=False)
        case "blocked" if _will_run(request, result.blocked_by):
            pytest.skip(f"blocked by {result.blocked_by}, which fails")
        case "blocked":
            pytest.fail(f"blocked by {result.blocked_by}, which fails; run that first", pytrace=False)
        case "skipped" | "advisory":
            pytest.skip(result.message)


def _will_run(request: pytest.FixtureRequest, check_id: str) -> bool:
    return any(_check_of(item) == check_id for item in request.session.items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.when == "call":
        report.cs336_outcome = dict(report.user_properties).get("outcome")
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> Any:
    if report.when != "call" or not (report.failed or report.skipped):
        return None
    outcome = getattr(report, "cs336_outcome", None) or ""
    if outcome == "blocked" and report.skipped and _advisory(report):
        return "", *WORDS[outcome][
            1:
        ]  # an advisory that is blocked need not pass: counted nowhere, as in `cs336 check`
    return WORDS.get(outcome)


def _advisory(report: pytest.TestReport) -> bool:
    from cs336_harness.checks import all_checks

    return all_checks()[str(dict(report.user_properties)["check"])].advisory


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if _idle(config):
        return
    from cs336_harness.reference import recipes

    judged = config.stash.get(TRIAL, None)
    write = terminalreporter.write_line
    _summarise(judged, terminalreporter, config.stash.get(ANSWER, None))
    written = sorted(set(config.stash[WRITTEN]))
    if written:
        write(f"snapshots written: {', '.join(written)}", green=True)
    for name in recipes.unused():
        write(f"unused snapshot: nothing makes or reads fixtures/{name}.safetensors; delete it", yellow=True)


def _calls(terminalreporter: Any) -> Iterator[pytest.TestReport]:
    """The reports of the tests that ran."""
    for reports in terminalreporter.stats.values():
        yield from (report for report in reports if getattr(report, "when", None) == "call")


def _summarise(judged: Any, terminalreporter: Any, written: Callable[[], str] | None) -> None:
    from cs336_harness.verdict.progress import progress_lines
    from cs336_harness.verdict.report import blank_lines

    results = judged.results if judged is not None else []
    blank = blank_lines(results)
    answers = [report for report in terminalreporter.getreports("blank") if "check" not in dict(report.user_properties)]
    if answers:
        blank.append(f"WRITEUP.md lacks {len(answers)} answers; `uv run cs336 writeup` lists them")
    advisory = [f"{result.check.id}: {result.message}" for result in results if result.outcome == "advisory"]
    for heading, lines in (("blank, not written yet", blank), ("advisory: reported, never failed", advisory)):
        if lines:
            terminalreporter.section(heading, sep="-")
            for line in lines:
                terminalreporter.write_line(line)
    standing = progress_lines(results, judged.root, written=written) if results else []
    if standing:
        terminalreporter.section("where you stand", sep="-")
        others = sum("check" not in dict(report.user_properties) for report in _calls(terminalreporter))
        if others:
            what = "all others are about the written answer and the drills"
            terminalreporter.write_line(f"{len(results)} of these tests are the checks of `cs336 check`; {what}")
        for line in standing:
            terminalreporter.write_line(line)
