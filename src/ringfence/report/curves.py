"""Satisfaction, stability and Dice over the epochs, a line a method: the paper's learning curves."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringfence.extras import require
from ringfence.files import write_figure
from ringfence.hints import one_line
from ringfence.report.comparison import Comparison, Epoch
from ringfence.weak.training.methods import colour_of, title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS: Final[tuple[tuple[str, str], ...]] = (
    ("satisfaction", "Satisfied constraints"),
    ("stability", "Satisfied constraints that stay so"),
    ("dice", "Validation DSC"),
)


def curves_figure(comparison: Comparison, path: str | Path) -> Figure:
    """Draw the curves into ``path``: means over seeds, the range between them shaded; Dice if there is any."""
    require("matplotlib", "drawing", "plot")
    from matplotlib.figure import Figure

    shown = [panel for panel in PANELS if panel[0] != "dice" or comparison.judged]
    figure = Figure(figsize=(4.0 * len(shown), 4.1), layout="constrained")
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for axes, (measure, title) in zip(panels, shown, strict=True):
        for method, seeds in comparison.epochs.items():
            epochs, low, mean, high = _over_seeds(list(seeds.values()), measure)
            marker = "o" if len(epochs) == 1 else None  # a line of one point is nothing
            axes.plot(epochs, mean, color=colour_of(method), label=_label(method), linewidth=1.8, marker=marker)
            if len(seeds) > 1:
                axes.fill_between(epochs, low, high, color=colour_of(method), alpha=0.18, linewidth=0)
        axes.set(title=title, xlabel="epoch", ylim=(-0.02, 1.02), xlim=(1, max(comparison.length, 2)))
        axes.grid(color="0.9")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    lines, titles = panels[0].get_legend_handles_labels()
    columns = min(len(titles), 2 * len(shown))
    figure.legend(lines, titles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    write_figure(path, figure, dpi=140)
    return figure


def _label(method: str) -> str:
    """A method's title, which may be a folder's name: none of it is hidden, or taken for a formula."""
    return one_line(title_of(method)).lstrip("_").replace("$", r"\$") or "?"


def _over_seeds(
    seeds: list[list[Epoch]], measure: str
) -> tuple[list[float], list[float], list[float], list[float]]:
    """Epochs, and the lowest, mean and highest value over seeds; where it is undefined everywhere, nothing."""
    epochs, low, mean, high = [], [], [], []
    for rows in zip(*seeds, strict=False):  # the epochs that all seeds have
        values = [row[measure] for row in rows if math.isfinite(row.get(measure, math.nan))]
        if values:
            epochs.append(rows[0]["epoch"])
            low.append(min(values))
            mean.append(statistics.fmean(values))
            high.append(max(values))
    return epochs, low, mean, high
