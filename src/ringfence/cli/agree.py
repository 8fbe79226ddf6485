"""`ringfence agree MASKS MASKS ...`: where models differ, without the truth."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringfence.cli.evaluate import WIDTH, check_out, labels_asked
from ringfence.extras import require
from ringfence.folders import locked
from ringfence.hints import listed, one_line

if TYPE_CHECKING:
    from ringfence.weak.evaluation import Agreed, Agreement
    from ringfence.weak.ranks.cases import Crew

MOST: Final = 20
"""Lines of the table in a terminal."""

DESCRIPTION = """Compare the masks that two models or more made of the same images, without the truth: Dice between
them, the worst cases first. Where models differ at least one of them is wrong; where they agree, both
may be. Train twice with other seeds (ringfence train ... --seed 1) to see how far a case depends on chance."""

EPILOG = """examples:
  ringfence agree masks-seed-0/ masks-seed-1/
  ringfence agree masks-a/ masks-b/ masks-c/ --out agreement.csv

Files are matched by case, as by `ringfence evaluate`. Of three folders or more, the mean of all pairs is shown, and
the two that differ most. A case that is not in all folders, cannot be read or has another shape is named at
the end, and the exit status is 2."""


def run(arguments: Sequence[str]) -> str:
    """Compare; the worst cases, and where the CSV is."""
    options = _parser().parse_args(arguments)
    labels = labels_asked(options)
    for package in ("rich", "monai", "scipy"):
        require(package, "ringfence agree", "train")
    from ringfence.weak.ranks.cases import crew_of

    out = Path(options.out) if options.out else None
    with crew_of(options.workers) as crew:
        if out is None or not crew.world.first:
            return _agreed(options, labels, None, crew)
        check_out(out, options.overwrite)
        with locked(out.parent, "written", only=out.name):
            check_out(out, options.overwrite)  # another process may have written it since
            return _agreed(options, labels, out, crew)


def _agreed(options: argparse.Namespace, labels: list[int] | None, out: Path | None, crew: Crew) -> str:
    from rich.console import Console
    from rich.progress import Progress

    from ringfence.files import write_text
    from ringfence.weak.evaluation import agreement_between

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not (console.is_terminal and crew.world.first)) as bar:
        task = bar.add_task("comparing", total=None)
        found = agreement_between(
            *options.masks,
            labels=labels,
            each=lambda total: bar.update(task, total=total, advance=1),
            crew=crew,
        )
    lines = [_table(found)] if found.cases else []
    if out is not None and found.cases:
        write_text(out, found.csv)
        lines.append(f"  {out}")
    if found.failed:
        if lines and crew.world.first:
            print("\n".join(lines), flush=True)
        total = len({one.case for one in found.cases}) + len(found.failed)
        failures = [one_line(f"{one.name}: {one.reason}") for one in found.failed]
        raise ValueError("\n  ".join([f"{len(found.failed)} of {total} cases were not compared:", *failures]))
    return "\n".join(lines) if crew.world.first else ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ringfence agree",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "masks",
        metavar="MASKS",
        nargs="+",
        help="folders of masks (or single masks), as `ringfence predict` writes",
    )
    parser.add_argument(
        "--out", metavar="FILE", help="a CSV of all cases and labels, the worst first (default: none)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a CSV that is there")
    parser.add_argument(
        "--classes", type=int, metavar="N", help="compare the labels 1 to N (default: those in any mask)"
    )
    parser.add_argument("--labels", type=int, nargs="+", metavar="L", help="compare these labels")
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="processes that do the cases (default: 1, on all cores)"
    )
    return parser


def _table(found: Agreement) -> str:
    """The worst cases for a terminal, and the means of all."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    worst = found.cases[:MOST]
    several = len({one.label for one in found.cases}) > 1
    table = Table(title="where the models differ most")
    for heading in ("case", "label", "Dice between them", "least", "HD95", "voxels"):
        table.add_column(heading, justify="left" if heading == "case" else "right")
    for one in worst:
        table.add_row(escape(one_line(one.case)), str(one.label), *_cells(one))
    console = Console(width=max(Console().width, WIDTH))
    with console.capture() as text:
        console.print(table)
    rest = len(found.cases) - len(worst)
    means = [
        f"Dice between the models, mean{f' of label {label}' if several else ''}: {mean:.3f}"
        for label, mean in found.dice.items()
    ]
    more = [f"({rest} more; --out FILE has all of them)"] if rest else []
    empty = [
        f"Label {label}: no model finds it in {listed(names)}; Dice is 1 there, even if all are wrong"
        for label, names in found.empty.items()
    ]
    return "\n".join([text.get().rstrip(), *more, *means, *empty])


def _cells(one: Agreed) -> tuple[str, ...]:
    far = "–" if one.hd95 != one.hd95 else f"{one.hd95:.2f} {one.unit}"
    fewest, most = one.voxels
    return f"{one.dice:.3f}", f"{one.least:.3f}", far, f"{fewest:,} to {most:,}" if fewest < most else f"{most:,}"
