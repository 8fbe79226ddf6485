"""Tables and figures of a comparison, beside its runs or in a folder to keep."""

from __future__ import annotations

import os
from pathlib import Path

from ringfence.documents import read_json
from ringfence.files import TEXT, read_bytes, remove, write_bytes, write_text
from ringfence.folders import locked
from ringfence.report.barrier import barrier_figure
from ringfence.report.comparison import Comparison
from ringfence.report.curves import curves_figure
from ringfence.report.pictures import has_pictures, pictures_figure
from ringfence.report.table import table_csv, table_markdown
from ringfence.weak.training.run_folder import CHECKPOINT, CONFIG, ENVIRONMENT, METRICS, RESULT


def write_report(
    comparison: Comparison, out: str | Path | None = None, *, pictures: int | None = None
) -> list[Path]:
    """Write ``table.csv``, ``table.md``, ``curves.png``, ``pictures.png`` and ``barrier.png``; returns their paths.

    While nothing has finished training there are no pictures.

    Args:
        comparison: what ``read_comparison`` found.
        out: another folder than the comparison's own; it also gets the run's config, environment and metrics, so
            that the numbers stay beside what is made of them.
        pictures: how many images to draw at most; default: all that were kept.
    """
    folder = Path(out) if out is not None else comparison.path
    apart = os.path.realpath(folder) != os.path.realpath(comparison.path)
    # in the run's own folder, a training may be going on: it writes other files
    with locked(folder, "written to", None if apart else "report"):
        if apart:
            _keep_numbers(comparison.path, folder)
        return _write(comparison, folder, pictures)


def _write(comparison: Comparison, folder: Path, pictures: int | None) -> list[Path]:
    files = [folder / "table.csv", folder / "table.md", folder / "curves.png", folder / "barrier.png"]
    write_text(files[0], table_csv(comparison))
    write_text(files[1], table_markdown(comparison))
    curves_figure(comparison, files[2])
    barrier_figure(files[3])
    if has_pictures(comparison):
        files.insert(3, folder / "pictures.png")
        pictures_figure(comparison, files[3], pictures)
    return files


def _keep_numbers(run: Path, folder: Path) -> None:
    _check_same_run(run, folder)
    kept = [file for file in (run / ENVIRONMENT, *run.glob(f"seed-*/*/{METRICS}"), run / CONFIG) if file.exists()]
    copies = [folder / file.relative_to(run) for file in kept]
    for file, copy in zip(kept, copies, strict=True):
        write_bytes(copy, read_bytes(file, TEXT))
    remove(old for old in folder.glob(f"seed-*/*/{METRICS}") if old not in copies)


def _check_same_run(run: Path, folder: Path) -> None:
    """Refuse a folder that another run lives in, or that holds what was kept of another."""
    ours, theirs = run / CONFIG, folder / CONFIG
    lives = any(folder.glob(f"seed-*/*/{RESULT}")) or any(folder.glob(f"seed-*/*/{CHECKPOINT}"))
    # an empty one was left by an older version on a full disk
    held = theirs.exists() and theirs.stat().st_size > 0
    other = held and (not ours.exists() or read_bytes(ours, TEXT) != read_bytes(theirs, TEXT))
    if lives or (other and not _grown(run, folder)):
        raise FileExistsError(f"{folder} holds another run: name a new folder with --out. Nothing was changed")


def _grown(run: Path, folder: Path) -> bool:
    """Whether it is the same run, with methods or seeds added since: it began then, by the same command."""
    begun = []
    for place in (run, folder):
        try:
            facts = read_json(place / ENVIRONMENT)
            begun.append((facts["started"], facts["command"]))
        except (OSError, ValueError, KeyError, TypeError):
            return False
    return begun[0] == begun[1]
