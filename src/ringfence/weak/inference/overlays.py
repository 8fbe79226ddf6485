"""A volume's slices on one sheet, with the mask tinted and outlined, and where the model was unsure below."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ringfence.extras import require
from ringfence.files import write_figure
from ringfence.hints import one_line

COLOURS: Final = (
    (0.15, 0.8, 0.25),
    (1.0, 0.7, 0.1),
    (0.25, 0.6, 1.0),
    (0.95, 0.35, 0.6),
    (0.2, 0.85, 0.85),
    (0.7, 0.5, 1.0),
)
"""Of the classes, in their order; then from the first again."""
TINT: Final = 0.25
"""How much of a pixel is its class's colour: what is below stays visible."""
HEAT: Final = ((0.0, 0.0, 0.0), (0.55, 0.0, 0.35), (1.0, 0.35, 0.1), (1.0, 0.9, 0.35), (1.0, 1.0, 1.0))
"""Of doubts, evenly spaced from none to a coin toss."""
SHADE: Final = 0.35
"""How bright the image is below its doubts: enough to see where they are."""
COLUMNS: Final = 6
MOST: Final = 36
"""Slices on a sheet: of a longer volume, as many, evenly spaced."""
TILE, GAP, HEADER, DPI = 200, 4, 34, 128
"""Pixels: a slice's width, between slices, above them; and pixels an inch, a power of two
so that matplotlib arrives at whole pixels again."""


def overlay_sheet(
    path: Path,
    image: NDArray[np.uint8],
    mask: NDArray[np.uint8],
    classes: Sequence[str],
    *,
    title: str,
    aspect: float = 1.0,
    doubts: NDArray[np.uint8] | None = None,
) -> None:
    """Draw slices of a volume into ``path``, numbered from 0.

    Args:
        path: the PNG.
        image: grey, ``[slices, height, width]``.
        mask: labels 0..K of the same shape.
        classes: names of the labels 1..K.
        title: stands above.
        aspect: how high a pixel is when its width is 1.
        doubts: of each voxel, from 0 to 255: as a row of heat maps under each row of slices.
    """
    require("matplotlib", "drawing overlays", "plot")
    from matplotlib.figure import Figure

    slices = np.unique(np.linspace(0, len(image) - 1, min(len(image), MOST)).round().astype(int))
    tiles = tinted(image[slices], mask[slices], aspect)
    columns = min(COLUMNS, len(tiles))
    if doubts is not None:
        tiles = np.concatenate([tiles, heated(image[slices], doubts[slices], aspect)], axis=1)
    canvas, corners = _arranged(tiles, columns)
    height, width = canvas.shape[:2]
    figure = Figure(figsize=(width / DPI, (height + HEADER) / DPI), dpi=DPI, facecolor="black")
    axes = figure.add_axes((0.0, 0.0, 1.0, height / (height + HEADER)))
    axes.imshow(canvas, interpolation="nearest", aspect="auto")
    axes.axis("off")
    for number, (top, left) in zip(slices, corners, strict=True):  # from 0, as in files of boxes
        shade = {"facecolor": "black", "alpha": 0.5, "linewidth": 0, "pad": 1.5}
        axes.text(left + 5, top + 5, str(number), color="white", fontsize=6.5, va="top", bbox=shade)
    if len(slices) < len(image):
        title += f", {len(slices)} of them here"
    where = 1.0 - HEADER / (2 * (height + HEADER))
    words = one_line(title)  # names of files and classes: neither formulas nor what no font has
    figure.text(6 / width, where, words, fontsize=7, va="center", color="white", parse_math=False)
    if columns > 2:  # otherwise there is no room beside the title
        room = _legend(figure, classes, width, where)
        if doubts is not None:
            _heat_scale(figure, room, width, where)
    write_figure(path, figure, dpi=DPI, facecolor="black")


def tinted(image: NDArray[np.uint8], mask: NDArray[np.uint8], aspect: float = 1.0) -> NDArray[np.float32]:
    """Slices as RGB in 0..1 of the sheet's width: each class tinted in its colour, and outlined."""
    size = _size(image, aspect)
    grey = _scaled(image, size, mode="bilinear", antialias=True).clamp_(0, 255) / 255.0
    labels = _scaled(mask, size, mode="nearest-exact").long()
    highest = int(labels.max()) if len(image) else 0
    colours = torch.tensor([(0.0, 0.0, 0.0), *(COLOURS[k % len(COLOURS)] for k in range(highest))])
    colour, opacity = colours[labels], torch.where(labels > 0, TINT, 0.0)
    opacity[_edges(labels)] = 1.0
    picture: NDArray[np.float32] = torch.lerp(grey.unsqueeze(-1), colour, opacity.unsqueeze(-1)).numpy()
    return picture


def heated(image: NDArray[np.uint8], doubts: NDArray[np.uint8], aspect: float = 1.0) -> NDArray[np.float32]:
    """Slices as RGB in 0..1 of the sheet's width: the image in the dark, and doubts glowing over it."""
    size = _size(image, aspect)
    grey = _scaled(image, size, mode="bilinear", antialias=True).clamp_(0, 255) / 255.0
    doubt = _scaled(doubts, size, mode="bilinear", antialias=True).clamp_(0, 255) / 255.0
    place = doubt * (len(HEAT) - 1)
    below = place.long().clamp_(max=len(HEAT) - 2)
    colours = torch.tensor(HEAT)
    colour = torch.lerp(colours[below], colours[below + 1], (place - below).unsqueeze(-1))
    opacity = doubt.sqrt().unsqueeze(-1)  # what is little can be seen, too
    picture: NDArray[np.float32] = torch.lerp(SHADE * grey.unsqueeze(-1), colour, opacity).numpy()
    return picture


def _size(image: NDArray[np.uint8], aspect: float) -> tuple[int, int]:
    """Of a slice on the sheet."""
    height, width = image.shape[1:]
    return max(1, round(TILE * aspect * height / width)), TILE


def _scaled(slices: NDArray[np.uint8], size: tuple[int, int], **how: Any) -> Tensor:
    floats = torch.from_numpy(np.ascontiguousarray(slices)).float()
    return F.interpolate(floats.unsqueeze(1), size, **how).squeeze(1)


def _edges(labels: Tensor) -> Tensor:
    """Foreground pixels beside another label."""
    around = F.pad(labels.float().unsqueeze(1), (1, 1, 1, 1), mode="replicate").squeeze(1)
    middle = labels.float()
    beside = (around[:, :-2, 1:-1], around[:, 2:, 1:-1], around[:, 1:-1, :-2], around[:, 1:-1, 2:])
    return (labels > 0) & torch.stack([one != middle for one in beside]).any(dim=0)


def _arranged(tiles: NDArray[np.float32], columns: int) -> tuple[NDArray[np.float32], list[tuple[int, int]]]:
    """The sheet, and where on it each tile's corner is."""
    count, height, width = tiles.shape[:3]
    rows = -(-count // columns)
    sheet = np.zeros((rows * (height + GAP) - GAP, columns * (width + GAP) - GAP, 3), dtype=np.float32)
    corners = [((n // columns) * (height + GAP), (n % columns) * (width + GAP)) for n in range(count)]
    for tile, (top, left) in zip(tiles, corners, strict=True):
        sheet[top : top + height, left : left + width] = tile
    return sheet, corners


def _legend(figure: Any, classes: Sequence[str], width: int, where: float) -> float:
    """Classes in their colours, from the right; how far to the left they come."""
    right = width - 6.0
    for number in reversed(range(len(classes))):
        name, look = one_line(classes[number]), {"fontsize": 7, "va": "center", "ha": "right"}
        text = figure.text(right / width, where, name, parse_math=False, **look)
        text.set_color(COLOURS[number % len(COLOURS)])
        right -= 7.0 * len(name) + 16.0
    return right


def _heat_scale(figure: Any, right: float, width: int, where: float) -> None:
    """What the colours of doubts mean, to the left of the classes."""
    look = {"fontsize": 7, "va": "center", "ha": "right", "color": "white"}
    figure.text(right / width, where, "coin toss", **look)
    right -= 62.0
    height = figure.get_figheight() * DPI
    axes = figure.add_axes(((right - 60.0) / width, where - 5.0 / height, 60.0 / width, 10.0 / height))
    steps = np.linspace(0, 255, 60).astype(np.uint8)[None, None]
    axes.imshow(heated(np.zeros_like(steps), steps)[0, :1], aspect="auto")
    axes.axis("off")
    figure.text((right - 66.0) / width, where, "rows below: sure", **look)
