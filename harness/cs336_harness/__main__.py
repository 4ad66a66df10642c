"""``python -m cs336_harness``: the ``cs336`` command where its script is not on the path."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the folder one stands in: nothing of one repository may be judged in another's place

from cs336_harness.cli import run

run()
