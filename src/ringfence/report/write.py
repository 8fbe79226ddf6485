"""Tables and figures of a comparison, beside its runs."""

from __future__ import annotations

from pathlib import Path

from ringfence.report.barrier import barrier_figure
from ringfence.report.comparison import Comparison
from ringfence.report.curves import curves_figure
from ringfence.report.pictures import pictures_figure
from ringfence.report.table import table_csv, table_markdown


def write_report(comparison: Comparison, out: str | Path | None = None) -> list[Path]:
    """Write ``table.csv``, ``table.md``, ``curves.png``, ``pictures.png`` and ``barrier.png``; returns their paths.

    Args:
        comparison: what ``read_comparison`` found.
        out: another folder than the comparison's own.
    """
    folder = Path(out) if out is not None else comparison.path
    folder.mkdir(parents=True, exist_ok=True)
    names = ("table.csv", "table.md", "curves.png", "pictures.png", "barrier.png")
    files = [folder / name for name in names]
    files[0].write_text(table_csv(comparison), encoding="utf-8")
    files[1].write_text(table_markdown(comparison), encoding="utf-8")
    curves_figure(comparison, files[2])
    pictures_figure(comparison, files[3])
    barrier_figure(files[4])
    return files
