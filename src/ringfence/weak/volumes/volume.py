"""Volumes in and out, MetaImage, NIfTI and PNG, with the geometry they came with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringfence.weak.volumes.formats import ENDINGS, is_metaimage, is_nifti, is_png, volume_name
from ringfence.weak.volumes.grid import check_same_grid
from ringfence.weak.volumes.metaimage import MetaGeometry, metaimage_steps, read_metaimage, write_metaimage
from ringfence.weak.volumes.nifti import NiftiGeometry, nifti_steps, read_nifti, unplaced, write_nifti
from ringfence.weak.volumes.places import Place
from ringfence.weak.volumes.png import PngGeometry, png_steps, read_png, write_png

UNKNOWN_SPACING: Final = (1.0, 1.0, 1.0)
"""The usual placeholder in a header for unknown spacing: no millimetres can be reported from it."""


@dataclass(frozen=True)
class Volume:
    """Voxels and where they are.

    Attributes:
        path: the file it was read from; of a zip's member, the zip and its name in there.
        voxels: ``[depth, height, width]`` (z, y, x).
        spacing: millimetres between voxels along z, y, x.
        geometry: what the file format needs to write another volume in the same place.
    """

    path: Path
    voxels: NDArray[Any]
    spacing: tuple[float, float, float]
    geometry: MetaGeometry | NiftiGeometry | PngGeometry

    @property
    def spacing_known(self) -> bool:
        """Whether the header says more than the placeholder 1 1 1."""
        return self.spacing != UNKNOWN_SPACING

    @property
    def placed(self) -> bool:
        """Whether the header says where the voxels are, and not only how large."""
        if not self.spacing_known and not self.affine[:3, 3].any():
            return False
        return self.geometry.placed

    @property
    def affine(self) -> NDArray[np.float64]:
        """From x, y, z in voxels to millimetres towards the patient's right, front and head, ``[4, 4]``."""
        return self.geometry.affine


def read_volume(path: Path | Place) -> Volume:
    """Read a three-dimensional volume, such as a mask; a damaged or incomplete one is refused with what is wrong.

    Of a PNG with a palette, voxels are the palette's numbers.
    """
    return _three_axes(_read(path, labels=True))


def read_channels(paths: Sequence[Path | Place]) -> list[Volume]:
    """Read the channels of one image, all of one shape: a file each, a NIfTI's fourth axis, or a PNG's colours."""
    if not paths:
        raise ValueError("an image has at least one channel: no file was named")
    first, *others = (_read(path) for path in paths)
    if not others and first.voxels.ndim == 4 and not is_metaimage(first.path):
        return [replace(first, voxels=voxels) for voxels in first.voxels]
    for volume in (first, *others):
        check_same_grid(_three_axes(first), _three_axes(volume))
    return [first, *others]


def header_sizes(path: Path | Place) -> tuple[int, ...]:
    """Width, height, depth, and other axes if there are, as the header says, without reading a voxel."""
    return _header(path)[0]


def channel_count(path: Path | Place) -> int:
    """How many channels a file holds, as its header says: a NIfTI's fourth axis, or a PNG's colours."""
    place = _place(path)
    if is_metaimage(place.path):  # has one, or is refused when it is read
        return 1
    sizes = header_sizes(place)
    return sizes[3] if len(sizes) > 3 else 1


def read_shape(path: Path | Place) -> tuple[int, int, int]:
    """Depth, height and width as the header says, without reading a voxel."""
    sizes = header_sizes(path)
    if len(sizes) < 3:
        raise ValueError(f"{path} cannot be read: it has {len(sizes)} axes; a volume has three")
    width, height, depth = sizes[:3]
    return depth, height, width


def read_spacing(path: Path | Place) -> tuple[float, float, float] | None:
    """Millimetres along z, y, x as the header says, without reading a voxel; None where it does not know."""
    x, y, z = _header(path)[1]
    return None if (z, y, x) == UNKNOWN_SPACING else (z, y, x)


def _header(path: Path | Place) -> tuple[tuple[int, ...], tuple[float, ...]]:
    place = _place(path)
    if is_png(place.path):
        return png_steps(place)
    return nifti_steps(place) if is_nifti(place.path) else metaimage_steps(place)


def write_volume(path: Path, voxels: NDArray[Any], like: Volume) -> None:
    """Write voxels ``[depth, height, width]`` with exactly the geometry of ``like``, in the format of ``path``.

    That is the format of ``like``; of a PNG, which holds no fractions, also NIfTI, without a place.
    """
    if voxels.shape != like.voxels.shape:
        raise ValueError(f"{path}: voxels of shape {voxels.shape} do not fit the geometry of {like.path}")
    if is_metaimage(path) and isinstance(like.geometry, MetaGeometry):
        write_metaimage(path, voxels, like.geometry)
    elif is_nifti(path) and isinstance(like.geometry, NiftiGeometry):
        write_nifti(path, voxels, like.geometry)
    elif is_png(path) and isinstance(like.geometry, PngGeometry):
        write_png(path, voxels)
    elif is_nifti(path) and isinstance(like.geometry, PngGeometry):
        write_nifti(path, voxels, unplaced(like.affine))
    else:
        raise ValueError(f"{path}: what belongs to {like.path.name} is written in the same format")


def _place(path: Path | Place) -> Place:
    """Where it is; what is not named as a volume is refused."""
    place = path if isinstance(path, Place) else Place(path)
    if volume_name(place.path) is None:
        raise ValueError(f"{path} is not a volume: its name should end in {', '.join(ENDINGS)}")
    return place


def _read(path: Path | Place, labels: bool = False) -> Volume:
    place = _place(path)
    try:
        if is_png(place.path):
            volume = Volume(Path(str(place)), *read_png(place, labels))
        else:
            volume = Volume(Path(str(place)), *(read_nifti if is_nifti(place.path) else read_metaimage)(place))
        _check_finite(volume)
    except MemoryError:
        raise ValueError(f"{place} needs more memory than there is") from None
    return volume


def _check_finite(volume: Volume) -> None:
    """Refuse NaN and infinities; slice by slice, since the question takes memory, too."""
    if not np.issubdtype(volume.voxels.dtype, np.floating):
        return
    count = sum(int(np.size(part) - np.isfinite(part).sum()) for part in volume.voxels)
    if count:
        raise ValueError(f"{volume.path}: {count} of {volume.voxels.size} voxels are NaN or infinite")


def _three_axes(volume: Volume) -> Volume:
    if volume.voxels.ndim == 4 and is_png(volume.path):
        raise ValueError(f"{volume.path} is in colour, and grey is needed here: of a mask, its labels")
    if volume.voxels.ndim != 3:
        shape = list(volume.voxels.shape)
        single = "; save a single slice as one with a third axis of 1" if volume.voxels.ndim == 2 else ""
        raise ValueError(f"{volume.path} has {volume.voxels.ndim} axes {shape}; a volume has three{single}")
    return volume
