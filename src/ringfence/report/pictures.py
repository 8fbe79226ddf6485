"""Validation images with what each method found in them: foreground green, background red, as in the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from ringfence.extras import require
from ringfence.report.comparison import Comparison
from ringfence.weak.training.methods import title_of
from ringfence.weak.training.run_folder import PICTURES_FILE

GREEN: Final = (0.15, 0.8, 0.25)
RED: Final = (0.85, 0.15, 0.15)
OPACITY: Final = 0.35


def pictures_figure(comparison: Comparison, path: str | Path, most: int | None = None) -> None:
    """Draw the first validation images of a seed into ``path``: the truth, then a row for each method.

    The white line is the truth's outline.

    Args:
        comparison: what ``read_comparison`` found.
        path: the picture's file.
        most: how many images at most; default: all that were kept.
    """
    require("matplotlib", "drawing", "plot")
    from matplotlib.figure import Figure

    rows, images = _rows(comparison)
    count, truth = len(images[:most]), rows[0][1]
    figure = Figure(figsize=(1.5 * count + 1.7, 1.5 * (len(rows) + 1)), layout="constrained")
    cells = figure.subplots(len(rows) + 1, count, squeeze=False)
    for column in range(count):
        cells[0][column].imshow(images[column].numpy(), cmap="gray", vmin=0, vmax=255)
        for row, (_, masks) in enumerate(rows, start=1):
            cells[row][column].imshow(overlay(images[column], masks[column]).numpy())
            cells[row][column].contour(truth[column].float().numpy(), [0.5], colors="white", linewidths=0.8)
    titles = ["Image", *(title for title, _ in rows)]
    for row, title in enumerate(titles):
        first = cells[row][0]
        first.set_ylabel(title.replace(" ", "\n"), rotation=0, ha="right", va="center", fontsize=9)
        for axes in cells[row]:
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
    figure.savefig(path, dpi=80)


def overlay(image: Tensor, mask: Tensor) -> Tensor:
    """An RGB picture in 0..1 of a grey uint8 image ``[H, W]``, tinted green within the mask and red outside."""
    grey = (image.float() / 255.0).unsqueeze(-1)
    tint = torch.where(mask.bool().unsqueeze(-1), torch.tensor(GREEN), torch.tensor(RED))
    return (1.0 - OPACITY) * grey + OPACITY * tint


def has_pictures(comparison: Comparison) -> bool:
    """Whether a training has finished, and left what to draw."""
    return bool(_files(comparison))


def _files(comparison: Comparison) -> dict[str, Path]:
    """Predictions by method, of the seed that has most of them, the first of these."""
    most: dict[str, Path] = {}
    for seed in comparison.seeds:
        files = {m: comparison.path / f"seed-{seed}" / m / PICTURES_FILE for m in comparison.epochs}
        found = {method: file for method, file in files.items() if file.exists()}
        most = found if len(found) > len(most) else most
    return most


def _rows(comparison: Comparison) -> tuple[list[tuple[str, Tensor]], Tensor]:
    """Title and masks of each row, and the images."""
    kept = {method: _load(file) for method, file in _files(comparison).items()}
    if not kept:
        raise FileNotFoundError(f"{comparison.path}: no training has finished, so there are no pictures")
    first = next(iter(kept.values()))
    return [
        ("Truth", first["truth"]),
        *((title_of(method), one["predicted"]) for method, one in kept.items()),
    ], first["image"]


def _load(file: Path) -> dict[str, Tensor]:
    try:
        kept: dict[str, Tensor] = torch.load(file, weights_only=True)
        _ = kept["image"], kept["truth"], kept["predicted"]
    except Exception as error:  # zipfile's, pickle's, torch's own
        raise ValueError(
            f"{file} is damaged ({type(error).__name__}): remove it to leave that method out"
        ) from None
    return kept
