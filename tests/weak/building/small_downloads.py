"""Tiny downloads in several layouts, with voxels in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import SimpleITK as sitk  # noqa: N813 - everyone's habit
from numpy.typing import NDArray

SIZE = (16, 16)


def write(
    path: Path, voxels: NDArray[Any], spacing: tuple[float, ...] = (0.5, 0.5, 3.0), packed: bool = False
) -> None:
    image = sitk.GetImageFromArray(voxels)
    image.SetSpacing(spacing)
    path.parent.mkdir(parents=True, exist_ok=True)
    sitk.WriteImage(image, str(path), packed)


def volume(seed: int, side: int = 16) -> NDArray[np.int16]:
    return np.random.default_rng(seed).integers(-50, 900, (3, side, side)).astype(np.int16)


def case(folder: Path, number: int, side: int = 16, packed: bool = False) -> None:
    mask = np.zeros((3, side, side), np.int8)
    mask[1, 4:10, 5:12] = 1
    write(folder / f"Case{number:02}.mhd", volume(number, side), packed=packed)
    write(folder / f"Case{number:02}_segmentation.mhd", mask, packed=packed)


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def nifti(path: Path, voxels: NDArray[Any]) -> None:
    """Voxels are z, y, x (and channel); the file's are x, y, z."""
    path.parent.mkdir(parents=True, exist_ok=True)
    axes = (2, 1, 0, 3) if voxels.ndim == 4 else (2, 1, 0)
    nibabel.save(nibabel.Nifti1Image(voxels.transpose(axes), np.diag([0.5, 0.75, 4.0, 1.0])), path)


def labelled(seed: int, values: tuple[int, ...], shape: tuple[int, ...] = (2, 20, 30)) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).choice(np.array(values, np.uint8), shape)
