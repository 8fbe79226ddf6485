"""Satisfaction, stability and Dice over the epochs, a line a method: the paper's learning curves."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringfence.extras import require
from ringfence.report.comparison import Comparison, Epoch
from ringfence.weak.training.methods import colour_of, title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS: Final = (
    ("satisfaction", "Satisfied constraints"),
    ("stability", "Satisfied constraints that stay so"),
    ("dice", "Validation DSC"),
)


def curves_figure(comparison: Comparison, path: str | Path) -> Figure:
    """Draw the curves into ``path``: means over seeds, with the range between them shaded."""
    require("matplotlib", "drawing", "plot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 4.1), layout="constrained")
    panels = figure.subplots(1, len(PANELS))
    for axes, (measure, title) in zip(panels, PANELS, strict=True):
        for method, seeds in comparison.epochs.items():
            epochs, low, mean, high = _over_seeds(list(seeds.values()), measure)
            marker = "o" if len(epochs) == 1 else None  # a line of one point is nothing
            axes.plot(epochs, mean, color=colour_of(method), label=title_of(method), linewidth=1.8, marker=marker)
            if len(seeds) > 1:
                axes.fill_between(epochs, low, high, color=colour_of(method), alpha=0.18, linewidth=0)
        axes.set(title=title, xlabel="epoch", ylim=(-0.02, 1.02), xlim=(1, max(comparison.length, 2)))
        axes.grid(color="0.9")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    lines, titles = panels[0].get_legend_handles_labels()
    figure.legend(lines, titles, loc="outside lower center", ncols=len(titles), frameon=False, fontsize=9)
    figure.savefig(path, dpi=140)
    return figure


def _over_seeds(
    seeds: list[list[Epoch]], measure: str
) -> tuple[list[float], list[float], list[float], list[float]]:
    """Epochs, and the lowest, mean and highest value over seeds; where it is undefined everywhere, nothing."""
    epochs, low, mean, high = [], [], [], []
    for rows in zip(*seeds, strict=False):  # the epochs that all seeds have
        values = [row[measure] for row in rows if not math.isnan(row.get(measure, math.nan))]
        if values:
            epochs.append(rows[0]["epoch"])
            low.append(min(values))
            mean.append(statistics.fmean(values))
            high.append(max(values))
    return epochs, low, mean, high
