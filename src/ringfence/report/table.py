"""The comparison's table beside the paper's numbers: in the terminal, as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING, Final

from ringfence.hints import one_line, spreadsheet
from ringfence.report.comparison import Comparison, Row
from ringfence.weak.training.measures import MEASURES

if TYPE_CHECKING:
    from rich.table import Table

DICE: Final = "dice"
BASE: Final = "full_supervision"
"""What epoch times are multiples of."""


def table_csv(comparison: Comparison) -> str:
    """All numbers, in full."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            *("method", "seeds", "dice", "dice_sd_last_epochs", "dice_sd_between_seeds"),
            *(name for name in comparison.measured if name != DICE),
            *("seconds_per_epoch", "paper_dice", "paper_dice_sd"),
        ]
    )
    for row in comparison.rows():
        others = [value for name, value in row.measures.items() if name != DICE]
        measured = (row.dice, row.spread, row.between_seeds, *others, row.seconds)
        paper = comparison.paper.get(row.method, (math.nan, math.nan))
        numbers = [("" if math.isnan(value) else f"{value:.6g}") for value in (*measured, *paper)]
        writer.writerow([spreadsheet(row.method), row.seeds, *numbers])
    return text.getvalue()


def table_markdown(comparison: Comparison) -> str:
    """The table for a README, with what the numbers are below it."""
    headings = _headings(comparison)
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    lines += [f"| {' | '.join(map(_in_markdown, cells))} |" for cells in _cells(comparison)]
    return "\n".join(lines) + f"\n\n{caption(comparison)}\n"


def table_terminal(comparison: Comparison) -> Table:
    """The table for a terminal."""
    from rich.table import Table

    synthetic = comparison.task == "synthetic"
    title = "Two discs, from sizes and centroids alone" if synthetic else f"{comparison.task}, from boxes alone"
    table = Table(title=_shown(title), caption=caption(comparison))
    for place, heading in enumerate(_headings(comparison)):
        table.add_column(heading, justify="left" if place == 0 else "right", no_wrap=place > 0)
    for cells, row in zip(_cells(comparison), comparison.rows(), strict=True):
        table.add_row(*map(_shown, cells), style="bold" if row.method == "log_barrier" else None)
    return table


def caption(comparison: Comparison) -> str:
    """What the numbers are."""
    seeds = comparison.seeds
    fewer = "up to " if any(row.seeds < len(seeds) for row in comparison.rows()) else ""
    over = f"over {fewer}{len(seeds)} seeds, ± between them" if len(seeds) > 1 else f"seed {seeds[0]}"
    epochs = (
        f"the last {comparison.last} of {comparison.length} epochs" if comparison.last > 1 else "the last epoch"
    )
    which = "2D, per validation image" if comparison.task == "synthetic" else "3D, per validation patient"
    others = " The paper's network, images and batch size differ." if comparison.paper else ""
    return (
        f"DSC: {which}; mean (sd) of {epochs}, {over}. Satisfaction: validation constraints "
        "that hold; stability: of those that held an epoch before, the fraction that still do. Epoch time: "
        f"training with the dual update, as a multiple of full supervision's.{others}"
    )


def _shown(cell: str) -> str:
    """A cell for a terminal: what was compared, and by which methods, is named by other people's files."""
    from rich.markup import escape

    return escape(one_line(cell))


def _in_markdown(cell: str) -> str:
    return one_line(cell).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _headings(comparison: Comparison) -> list[str]:
    others = [MEASURES[name].title for name in comparison.measured if name != DICE]
    return ["Method", MEASURES[DICE].title, "paper's DSC", *others, "epoch time"]


def _cells(comparison: Comparison) -> list[list[str]]:
    rows = comparison.rows()
    base = next((row.seconds for row in rows if row.method == BASE), math.nan)
    return [
        [
            _title(row, comparison),
            _dice(row),
            "{:.3f} ({:.3f})".format(*comparison.paper[row.method]) if row.method in comparison.paper else "–",
            *(MEASURES[name].text(value) for name, value in row.measures.items() if name != DICE),
            "–" if math.isnan(base) else f"{row.seconds / base:.2f} ×",
        ]
        for row in rows
    ]


def _title(row: Row, comparison: Comparison) -> str:
    """The method's name, and what its row lacks."""
    seeds = len(comparison.seeds)
    lacks = [f"{row.seeds} of {seeds} seeds"] * (row.seeds < seeds)
    lacks += [f"epoch {row.epochs} of {comparison.length}"] * (row.epochs < comparison.length)
    return f"{row.title} ({', '.join(lacks)})" if lacks else row.title


def _dice(row: Row) -> str:
    if math.isnan(row.dice):
        return "–"
    between = "" if math.isnan(row.between_seeds) else f" ± {row.between_seeds:.3f}"
    return f"{row.dice:.3f}{between} ({row.spread:.3f})"
