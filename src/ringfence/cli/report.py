"""`ringfence report RUN`: tables and figures of a comparison, made anew."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ringfence.extras import require

WIDTH: Final = 100
"""Columns the table needs: a narrower terminal wraps lines, which is better than losing numbers."""


def run(arguments: Sequence[str]) -> str:
    """The table, and where the files are."""
    parser = argparse.ArgumentParser(
        prog="ringfence report",
        description="Make table.csv, table.md, curves.png, pictures.png and barrier.png of a folder that "
        "`ringfence compare` wrote, also of one that is still running.",
    )
    parser.add_argument("run", metavar="RUN", help="the comparison's folder")
    parser.add_argument(
        "--out", metavar="FOLDER", help="another folder for them; it gets the run's config and metrics, too"
    )
    parser.add_argument(
        "--pictures",
        type=_positive,
        metavar="N",
        help="how many images to draw at most; default: all that were kept",
    )
    options = parser.parse_args(arguments)
    return written_report(options.run, options.out, options.pictures)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number from 1 on, got '{text}'")
    return int(text)


def written_report(run: str | Path, out: str | None = None, pictures: int | None = None) -> str:
    """Write the report of a comparison; the terminal's table and the files' names."""
    require("rich", "ringfence report", "train")
    from rich.console import Console

    from ringfence.report.comparison import read_comparison
    from ringfence.report.table import table_terminal
    from ringfence.report.write import write_report

    comparison = read_comparison(run)
    files = write_report(comparison, out, pictures=pictures)
    more = 15 * max(0, len(comparison.measured) - 3)  # a column for each further measure
    console = Console(width=max(Console().width, WIDTH + more))
    with console.capture() as text:
        console.print(table_terminal(comparison))
    return "\n".join([text.get().rstrip(), "", *(f"  {file}" for file in files)])
