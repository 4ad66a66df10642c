"""``python -m contrasts``: prints the tables of the pages, or writes them there."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from contrasts.initialisation import write_plot
from contrasts.pages import BLOCKS


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0, or 2 with one line when something cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m contrasts", description="The tables of docs/, made anew.")
    parser.add_argument("--write", action="store_true", help="write them into the pages")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the residual stream at initialisation")
    options = parser.parse_args(arguments)
    try:
        for block in BLOCKS:
            if not block.available():
                print(f"{block.page}, {block.name}: needs `uv run --group reference python -m contrasts`; left alone")
            elif options.write:
                block.path.write_text(block.written(), encoding="utf-8")
            else:
                print(f"{block.page}, {block.name}\n\n{block.make()}\n")
        if options.plot is not None:
            write_plot(options.plot)
    except (ValueError, OSError) as error:
        print(f"contrasts: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
