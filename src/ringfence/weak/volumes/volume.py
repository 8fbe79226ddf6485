"""Medical volumes in and out: MetaImage by SimpleITK, NIfTI by nibabel, with the geometry they came with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringfence.weak.volumes.formats import METAIMAGE, NIFTI, is_metaimage, is_nifti
from ringfence.weak.volumes.grid import check_same_grid
from ringfence.weak.volumes.metaimage import metaimage_sizes, read_metaimage, write_metaimage
from ringfence.weak.volumes.nifti import load_nifti, read_nifti, write_nifti

UNKNOWN_SPACING: Final = (1.0, 1.0, 1.0)
"""The usual placeholder in a header for unknown spacing: no millimetres can be reported from it."""


@dataclass(frozen=True)
class Volume:
    """Voxels and where they are.

    Attributes:
        path: the file it was read from.
        voxels: ``[depth, height, width]`` (z, y, x).
        spacing: millimetres between voxels along z, y, x.
        geometry: what the file format needs to write another volume in the same place.
    """

    path: Path
    voxels: NDArray[Any]
    spacing: tuple[float, float, float]
    geometry: Any

    @property
    def spacing_known(self) -> bool:
        """Whether the header says more than the placeholder 1 1 1."""
        return self.spacing != UNKNOWN_SPACING

    @property
    def placed(self) -> bool:
        """Whether the header says where the voxels are, and not only how large."""
        if not self.spacing_known and not self.affine[:3, 3].any():
            return False
        if hasattr(self.geometry, "GetDirection"):
            return True
        return bool(self.geometry.header["sform_code"] or self.geometry.header["qform_code"])

    @property
    def affine(self) -> NDArray[np.float64]:
        """From x, y, z in voxels to millimetres towards the patient's right, front and head, ``[4, 4]``."""
        if not hasattr(self.geometry, "GetDirection"):
            return np.asarray(self.geometry.affine, dtype=np.float64)
        affine = np.eye(4)
        affine[:3, :3] = np.reshape(self.geometry.GetDirection(), (3, 3)) * self.geometry.GetSpacing()
        affine[:3, 3] = self.geometry.GetOrigin()
        affine[:2] *= -1.0  # MetaImage counts towards left and back
        return affine


def read_volume(path: Path) -> Volume:
    """Read a three-dimensional volume; a damaged or incomplete one is refused with what is wrong."""
    return _three_axes(_read(path))


def read_channels(paths: Sequence[Path]) -> list[Volume]:
    """Read the channels of one image, all of one shape: a file each, or a NIfTI whose fourth axis they are."""
    if not paths:
        raise ValueError("an image has at least one channel: no file was named")
    first, *others = (_read(path) for path in paths)
    if not others and first.voxels.ndim == 4 and is_nifti(first.path):
        return [replace(first, voxels=voxels) for voxels in first.voxels]
    for volume in (first, *others):
        check_same_grid(_three_axes(first), _three_axes(volume))
    return [first, *others]


def read_shape(path: Path) -> tuple[int, int, int]:
    """Depth, height and width as the header says, without reading a voxel."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    try:
        sizes = load_nifti(path).shape if is_nifti(path) else metaimage_sizes(path)
        width, height, depth = (int(size) for size in sizes[:3])
    except Exception as error:  # nibabel raises its own, OSError, ValueError
        reason = str(error).strip().removeprefix(f"{path} cannot be read: ") or type(error).__name__
        raise ValueError(f"{path} cannot be read: {reason}") from None
    return depth, height, width


def write_volume(path: Path, voxels: NDArray[Any], like: Volume) -> None:
    """Write voxels ``[depth, height, width]`` with exactly the geometry of ``like``, in the format of ``path``."""
    if voxels.shape != like.voxels.shape:
        raise ValueError(f"{path}: voxels of shape {voxels.shape} do not fit the geometry of {like.path}")
    if is_metaimage(path) and is_metaimage(like.path):
        write_metaimage(path, voxels, like.geometry)
    elif is_nifti(path) and is_nifti(like.path):
        write_nifti(path, voxels, like.geometry)
    else:
        raise ValueError(f"{path}: what belongs to {like.path.name} is written in the same format")


def _read(path: Path) -> Volume:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if is_metaimage(path):
        volume = Volume(path, *read_metaimage(path))
    elif is_nifti(path):
        volume = Volume(path, *read_nifti(path))
    else:
        raise ValueError(f"{path} is not a volume: its name should end in {', '.join((*METAIMAGE, *NIFTI))}")
    if volume.voxels.dtype.kind not in "iuf":
        raise ValueError(f"{path}: its voxels are not plain numbers but {volume.voxels.dtype}")
    if np.issubdtype(volume.voxels.dtype, np.floating) and not np.isfinite(volume.voxels).all():
        count = int((~np.isfinite(volume.voxels)).sum())
        raise ValueError(f"{path}: {count} of {volume.voxels.size} voxels are NaN or infinite")
    return volume


def _three_axes(volume: Volume) -> Volume:
    if volume.voxels.ndim != 3:
        shape = list(volume.voxels.shape)
        single = "; save a single slice as one with a third axis of 1" if volume.voxels.ndim == 2 else ""
        raise ValueError(f"{volume.path} has {volume.voxels.ndim} axes {shape}; a volume has three{single}")
    return volume
