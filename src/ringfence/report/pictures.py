"""Validation images with what each method found in them: foreground green, background red, as in the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from ringfence.extras import require
from ringfence.files import write_figure
from ringfence.hints import first_line, one_line
from ringfence.report.comparison import Comparison
from ringfence.weak.networks.tensor_file import read_tensors
from ringfence.weak.networks.torch_file import Refused, is_torch, read_torch
from ringfence.weak.training.methods import title_of
from ringfence.weak.training.run_folder import PICTURES_FILE

GREEN: Final = (0.15, 0.8, 0.25)
RED: Final = (0.85, 0.15, 0.15)
OPACITY: Final = 0.35
PARTS: Final = ("image", "truth", "predicted")
NAMES: Final = ("pictures.pt", PICTURES_FILE)
"""Of earlier versions, and of this one."""


def pictures_figure(comparison: Comparison, path: str | Path, most: int | None = None) -> None:
    """Draw the first validation images of a seed into ``path``: the truth, then a row for each method.

    The white line is the truth's outline; without masks there is neither.

    Args:
        comparison: what ``read_comparison`` found.
        path: the picture's file.
        most: how many images at most; default: all that were kept.
    """
    require("matplotlib", "drawing", "plot")
    from matplotlib.figure import Figure

    rows, images, truth = _rows(comparison)
    count = len(images[:most])
    figure = Figure(figsize=(1.5 * count + 1.7, 1.5 * (len(rows) + 1)), layout="constrained")
    cells = figure.subplots(len(rows) + 1, count, squeeze=False)
    for column in range(count):
        cells[0][column].imshow(images[column].numpy(), cmap="gray", vmin=0, vmax=255)
        for row, (_, masks) in enumerate(rows, start=1):
            cells[row][column].imshow(overlay(images[column], masks[column]).numpy())
            if bool(truth[column].any()):
                cells[row][column].contour(truth[column].float().numpy(), [0.5], colors="white", linewidths=0.8)
    titles = ["Image", *(one_line(title).replace("$", r"\$") for title, _ in rows)]
    for row, title in enumerate(titles):
        first = cells[row][0]
        first.set_ylabel(title.replace(" ", "\n"), rotation=0, ha="right", va="center", fontsize=9)
        for axes in cells[row]:
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
    write_figure(path, figure, dpi=80)


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
        places = {method: comparison.path / f"seed-{seed}" / method for method in comparison.epochs}
        files = {m: place / name for m, place in places.items() for name in NAMES if (place / name).exists()}
        most = files if len(files) > len(most) else most
    return most


def _rows(comparison: Comparison) -> tuple[list[tuple[str, Tensor]], Tensor, Tensor]:
    """Title and masks of each row, the images, and the truth, which has a row if there was a mask to judge by."""
    kept = {method: _load(file) for method, file in _files(comparison).items()}
    if not kept:
        raise FileNotFoundError(f"{comparison.path}: no training has finished, so there are no pictures")
    first = next(iter(kept.values()))
    for method, one in kept.items():
        if not all(one[name].shape == first["image"].shape and one[name].ndim == 3 for name in PARTS):
            raise ValueError(
                f"{_files(comparison)[method]} is damaged (its pictures differ in shape): remove it to leave that "
                "method out"
            )
    rows = [(title_of(method), one["predicted"]) for method, one in kept.items()]
    truth = [("Truth", first["truth"])] if comparison.judged else []
    return [*truth, *rows], first["image"], first["truth"]


def _load(file: Path) -> dict[str, Tensor]:
    try:
        kept = read_torch(file) if is_torch(file) else read_tensors(file)[0]
        return _checked(kept)
    except Refused as error:
        raise ValueError(f"{file} is damaged ({first_line(error)}): remove it to leave that method out") from None


def _checked(kept: Any) -> dict[str, Tensor]:
    """Images and masks, of bytes."""
    found: dict[str, Any] = {name: kept.get(name) for name in PARTS} if isinstance(kept, dict) else {}
    for name in PARTS:
        one = found.get(name)
        if not isinstance(one, Tensor) or one.dtype not in (torch.uint8, torch.bool) or not one.numel():
            raise Refused(f"it has no pictures by the name of {name}")
    return found
