"""Every check as a pytest test, in one module: the repository that one stands in is judged, or ``--adapters PATH``."""

from cs336_harness.checks.registry import GROUPS
from cs336_harness.pytest_plugin import judged_by_each

for group in GROUPS:
    globals()[f"test_{group}"] = judged_by_each(group)
