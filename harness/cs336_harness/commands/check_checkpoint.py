"""``cs336 check --huggingface``: a checkpoint folder instead of an adapters module."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console


def check_checkpoint(console: Console, folder: Path, json: Path | None) -> bool:
    """Prints the verdict, writes it where ``json`` says, and returns whether nothing is wrong."""
    from cs336_harness.checkpoint.judging import judge_checkpoint
    from cs336_harness.commands.writable import write_json
    from cs336_harness.verdict.report import MARKS, STYLES

    verdict = judge_checkpoint(folder)
    console.print(f"judging {verdict.subject} ({verdict.part})", markup=False, highlight=False, style="bold")
    for finding in verdict.findings:
        outcome = "passed" if finding.passed else "failed"
        line = f"{MARKS[outcome]} {finding.id}  {finding.message}"
        console.print(line, markup=False, highlight=False, style=STYLES[outcome])
        for detail in finding.details:
            console.print(f"    {detail}", markup=False, highlight=False)
    if json is not None:
        outcomes = ["passed" if finding.passed else "failed" for finding in verdict.findings]
        checks = [
            {
                "id": finding.id,
                "outcome": outcome,
                "message": finding.message,
                "details": list(finding.details),
                "error_in_noise": finding.error_in_noise,
            }
            for finding, outcome in zip(verdict.findings, outcomes, strict=True)
        ]
        summary = {outcome: outcomes.count(outcome) for outcome in ("passed", "failed")}
        write_json({"subject": verdict.subject, "summary": summary, "checks": checks}, json)
    return verdict.passed
