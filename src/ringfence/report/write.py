"""Tables and figures of a comparison, beside its runs or in a folder to keep."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from ringfence.report.barrier import barrier_figure
from ringfence.report.comparison import Comparison
from ringfence.report.curves import curves_figure
from ringfence.report.pictures import has_pictures, pictures_figure
from ringfence.report.table import table_csv, table_markdown


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
    folder.mkdir(parents=True, exist_ok=True)
    if folder.resolve() != comparison.path.resolve():
        _keep_numbers(comparison.path, folder)
    files = [folder / "table.csv", folder / "table.md", folder / "curves.png", folder / "barrier.png"]
    files[0].write_text(table_csv(comparison), encoding="utf-8")
    files[1].write_text(table_markdown(comparison), encoding="utf-8")
    curves_figure(comparison, files[2])
    barrier_figure(files[3])
    if has_pictures(comparison):
        files.insert(3, folder / "pictures.png")
        pictures_figure(comparison, files[3], pictures)
    return files


def _keep_numbers(run: Path, folder: Path) -> None:
    _check_same_run(run, folder)
    for old in folder.glob("seed-*/*/metrics.csv"):
        old.unlink()
    for file in (run / "config.yaml", run / "environment.json", *run.glob("seed-*/*/metrics.csv")):
        if file.exists():
            copy = folder / file.relative_to(run)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def _check_same_run(run: Path, folder: Path) -> None:
    """Refuse a folder that another run lives in, or that holds what was kept of another."""
    ours, theirs = run / "config.yaml", folder / "config.yaml"
    lives = any(folder.glob("seed-*/*/result.json")) or any(folder.glob("seed-*/*/last.ckpt"))
    other = theirs.exists() and (not ours.exists() or ours.read_bytes() != theirs.read_bytes())
    if lives or (other and not _grown(run, folder)):
        raise FileExistsError(f"{folder} holds another run: name a new folder with --out. Nothing was changed")


def _grown(run: Path, folder: Path) -> bool:
    """Whether it is the same run, with methods or seeds added since: it began then, by the same command."""
    begun = []
    for place in (run, folder):
        try:
            facts = json.loads((place / "environment.json").read_text(encoding="utf-8"))
            begun.append((facts["started"], facts["command"]))
        except (OSError, ValueError, KeyError, TypeError):
            return False
    return begun[0] == begun[1]
