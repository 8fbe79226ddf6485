"""`ringfence evaluate PRED TRUTH`: how good masks are."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringfence.extras import require
from ringfence.folders import locked
from ringfence.hints import one_line

if TYPE_CHECKING:
    from rich.table import Table

    from ringfence.weak.evaluation import Summary
    from ringfence.weak.ranks.cases import Crew

WIDTH: Final = 100
CSV: Final = "evaluation.csv"

DESCRIPTION = """Score masks against the truth, in 3D, case by case: Dice, and the 95th percentile of the Hausdorff
distance (HD95), in millimetres where the files say what a voxel measures, and in voxels where their
headers say 1 1 1."""

EPILOG = """examples:
  ringfence evaluate masks/ promise12/ --out scores.csv
  ringfence evaluate masks/ labelsTr/ --classes 2
  ringfence evaluate masks/Case13.mhd promise12/Case13_segmentation.mhd

Files are matched by case: CASE.nii.gz, CASE.mhd or CASE.png with one of these or CASE_segmentation.mhd.
Labels are compared by their numbers: 255, which is white, is not 1. If masks and truth have none in
common, they are refused. A case that is in one folder only, cannot be read or has another shape is
named at the end, and the exit status is 2. Two empty masks have Dice 1; where only one is empty HD95 is
inf, and not in the mean.
Under torchrun or srun each process takes its part of the cases; the scores are the same."""


def run(arguments: Sequence[str]) -> str:
    """Score; the summary, and where the CSV is."""
    options = _parser().parse_args(arguments)
    predicted, labels = Path(options.pred), labels_asked(options)
    if options.spacing and not all(math.isfinite(step) and step > 0 for step in options.spacing):
        raise ValueError(f"--spacing: {options.spacing} must be three lengths above 0")
    for package in ("rich", "monai", "scipy"):
        require(package, "ringfence evaluate", "train")
    from ringfence.weak.ranks.cases import crew_of

    out = Path(options.out) if options.out else (predicted / CSV if predicted.is_dir() else None)
    with crew_of(options.workers) as crew:
        if out is None or not crew.world.first:
            return _evaluated(options, labels, None, crew)
        check_out(out, options.overwrite)
        with locked(out.parent, "written", only=out.name):
            check_out(out, options.overwrite)  # another process may have written it since
            return _evaluated(options, labels, out, crew)


def _evaluated(options: argparse.Namespace, labels: list[int] | None, out: Path | None, crew: Crew) -> str:
    from rich.console import Console
    from rich.progress import Progress

    from ringfence.files import write_text
    from ringfence.weak.evaluation import evaluate, scores_csv

    predicted, truth = Path(options.pred), Path(options.truth)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not (console.is_terminal and crew.world.first)) as bar:
        task = bar.add_task("evaluating", total=None)
        found = evaluate(
            predicted,
            truth,
            labels=labels,
            spacing=tuple(options.spacing) if options.spacing else None,
            each=lambda total: bar.update(task, total=total, advance=1),
            crew=crew,
        )
    scores = found.scores
    lines = [_table(found.summaries, predicted)] if scores else []
    if found.ignored:
        which = ", ".join(map(str, found.ignored))
        why = "no truth has them" if labels is None else "by --classes or --labels"
        lines.append(f"Labels not evaluated ({why}): {which}")
    lines += found.remarks
    if out is not None and scores:
        write_text(out, scores_csv(scores))
        lines.append(f"  {out}")
    if found.failed:
        if lines and crew.world.first:
            print("\n".join(lines), flush=True)
        total = len({score.case for score in scores}) + len(found.failed)
        failures = [one_line(f"{one.name}: {one.reason}") for one in found.failed]
        raise ValueError("\n  ".join([f"{len(found.failed)} of {total} cases are not in these scores:", *failures]))
    return "\n".join(lines) if crew.world.first else ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ringfence evaluate",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pred", metavar="PRED", help="a mask, or a folder of masks, as `ringfence predict` writes")
    parser.add_argument("truth", metavar="TRUTH", help="the true mask, or a folder of them")
    parser.add_argument(
        "--out",
        metavar="FILE",
        help=f"the CSV, a line for each case and label (default: {CSV} in PRED; none for two files)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a CSV that is there")
    parser.add_argument(
        "--classes", type=int, metavar="N", help="evaluate the labels 1 to N (default: those in any truth)"
    )
    parser.add_argument("--labels", type=int, nargs="+", metavar="L", help="evaluate these labels")
    parser.add_argument(
        "--spacing",
        type=float,
        nargs=3,
        metavar=("Z", "Y", "X"),
        help="millimetres between voxels, for files whose headers say 1 1 1",
    )
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="processes that do the cases (default: 1, on all cores)"
    )
    return parser


def labels_asked(options: argparse.Namespace) -> list[int] | None:
    """The labels asked for, if any."""
    if options.classes is not None and options.labels is not None:
        raise ValueError("--classes and --labels each say which labels: give one of them")
    if options.classes is not None and not 1 <= options.classes <= 255:
        raise ValueError(f"--classes: {options.classes} must be from 1 to 255")
    if options.labels is None:
        return None if options.classes is None else list(range(1, options.classes + 1))
    if not all(1 <= label <= 255 for label in options.labels):
        raise ValueError(f"--labels: {' '.join(map(str, options.labels))} must be from 1 to 255")
    return sorted(set(options.labels))


def check_out(out: Path, overwrite: bool) -> None:
    """Refuse a CSV that could not be written, before the work."""
    if out.is_dir():
        raise ValueError(f"--out: {out} is a folder; name a file in it")
    if out.exists() and not overwrite:
        raise FileExistsError(f"{out} is there already: choose another with --out, or replace it with --overwrite")
    parent = next(folder for folder in out.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise PermissionError(f"{out} cannot be written: choose another with --out")


def _table(summaries: Sequence[Summary], predicted: Path) -> str:
    """The summary for a terminal, and below it what the numbers leave out."""
    from rich.console import Console

    console = Console(width=max(Console().width, WIDTH))
    with console.capture() as text:
        console.print(_rich_table(summaries, predicted))
    notes = []
    for one in summaries:
        if one.lost:
            notes.append(
                f"Label {one.label}: in {_cases(one.lost)} one mask is empty and HD95 infinite; not in its mean"
            )
        if one.other_unit:
            notes.append(f"Label {one.label}: HD95 of {_cases(one.other_unit)} is in voxels; not in its mean")
    if any(one.unit == "voxels" for one in summaries):
        notes.append("HD95 in voxels: the headers say 1 1 1, so nobody knows millimetres (--spacing Z Y X says)")
    return "\n".join([text.get().rstrip(), *notes])


def _rich_table(summaries: Sequence[Summary], predicted: Path) -> Table:
    from rich.markup import escape
    from rich.table import Table

    from ringfence.weak.evaluation import mean_sd

    unit = summaries[0].unit
    table = Table(title=escape(one_line(str(predicted))))
    for heading in ("label", "cases", "Dice", "sd", "min", "worst case", f"HD95 ({unit})", "sd", "max"):
        table.add_column(heading, justify="left" if heading == "worst case" else "right")
    for one in summaries:
        dice, hd95 = mean_sd(one.dice), mean_sd(one.hd95)
        table.add_row(
            str(one.label),
            str(len(one.dice)),
            *(_number(value, 3) for value in (*dice, min(one.dice))),
            escape(one_line(one.worst)),
            *(_number(value, 2) for value in (*hd95, max(one.hd95, default=math.nan))),
        )
    return table


def _cases(count: int) -> str:
    return f"{count} case{'s' * (count != 1)}"


def _number(value: float, digits: int) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}"
