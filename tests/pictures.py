"""Folders of PNGs with boxes, and masks of all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

HEADER = "case,slice,class,row_low,row_high,column_low,column_high\n"
NAMES = tuple(f"im_{number:04}" for number in range(5))
COLOURS = ("red", "green", "blue")


def truth(number: int) -> NDArray[np.uint8]:
    mask = np.zeros((16, 32), np.uint8)
    mask[3 : 9 + number, 4:20] = 1
    return mask


def picture(number: int, channels: int) -> NDArray[np.uint8]:
    """Black, with what is looked for in white; the last channel is noise."""
    shown = np.repeat(255 * truth(number)[..., None], channels, axis=-1)
    if channels > 1:
        shown[..., -1] = np.random.default_rng(number).integers(0, 256, shown.shape[:2])
    return shown.squeeze()


def save(path: Path, pixels: NDArray[np.uint8]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def pictures(folder: Path, channels: int) -> Path:
    for number, name in enumerate(NAMES):
        save(folder / f"{name}.png", picture(number, channels))
        save(folder / f"masks/{name}.png", truth(number))
    rows = (f"{name},0,cell,3,{9 + number},4,20\n" for number, name in enumerate(NAMES))
    (folder / "boxes.csv").write_text(HEADER + "".join(rows))
    return folder
