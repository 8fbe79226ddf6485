"""Medical volumes in and out: MetaImage by SimpleITK, NIfTI by nibabel, with the geometry they came with."""

from __future__ import annotations

import gzip
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringfence.extras import require
from ringfence.weak.volumes.metaimage import check_bytes, read_header

METAIMAGE: Final = (".mhd", ".mha")
NIFTI: Final = (".nii", ".nii.gz")
APART: Final = 0.4
"""Of a voxel: what headers may disagree by. NIfTI's rotations are rounded by up to a quarter of one, and half of
one is no rounding, but another idea of where a voxel's middle is."""
RESAMPLE: Final = "resample one to the other's grid or, if they do belong together, correct a header"
UNKNOWN_SPACING: Final = (1.0, 1.0, 1.0)
"""What a header says that was written without knowing: no millimetres can be reported from it."""


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
        """Whether the header says more than 1 1 1."""
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


def volume_name(path: Path) -> str | None:
    """The file's name without its ending, or None if it is no volume."""
    for ending in (*METAIMAGE, *reversed(NIFTI)):
        if path.name.lower().endswith(ending):
            return path.name[: -len(ending)]
    return None


def read_volume(path: Path) -> Volume:
    """Read a three-dimensional volume; a damaged or incomplete one is refused with what is wrong."""
    return _three_axes(_read(path))


def read_channels(paths: Sequence[Path]) -> list[Volume]:
    """Read the channels of one image, all of one shape: a file each, or a NIfTI whose fourth axis they are."""
    if not paths:
        raise ValueError("an image has at least one channel: no file was named")
    first, *others = (_read(path) for path in paths)
    if not others and first.voxels.ndim == 4 and first.path.name.lower().endswith(NIFTI):
        return [replace(first, voxels=voxels) for voxels in first.voxels]
    for volume in (first, *others):
        check_same_grid(_three_axes(first), _three_axes(volume))
    return [first, *others]


def check_same_shape(one: Volume, other: Volume) -> None:
    """Refuse two volumes of one case that have different shapes."""
    if one.voxels.shape != other.voxels.shape:
        shapes = [" × ".join(map(str, volume.voxels.shape)) for volume in (one, other)]
        raise ValueError(f"{one.path} has {shapes[0]} voxels, but {other.path} has {shapes[1]} (z, y, x)")


def check_same_steps(one: Volume, other: Volume) -> None:
    """Refuse two volumes of one case whose voxels have different sizes, or whose axes run another way, if known."""
    if not (one.spacing_known and other.spacing_known):
        return
    if not np.allclose(one.spacing, other.spacing, rtol=1e-3, atol=0.0):
        steps = [" × ".join(f"{step:g}" for step in volume.spacing) for volume in (one, other)]
        raise ValueError(
            f"{one.path} has voxels of {steps[0]} mm, but {other.path} of {steps[1]} (z, y, x): {RESAMPLE}"
        )
    if one.placed and other.placed and axes(one) != axes(other):
        raise ValueError(
            f"the axes of {one.path} run to {axes(one)}, those of {other.path} to {axes(other)}: {RESAMPLE}"
        )


def check_same_grid(one: Volume, other: Volume) -> None:
    """Refuse two volumes of one case that have different shapes, or whose voxels are not in the same places.

    A header of 1 1 1 beside one that says more, or beside any if it begins at 0 0 0, was written without knowing.
    """
    check_same_shape(one, other)
    check_same_steps(one, other)
    if one.spacing_known != other.spacing_known or not (one.placed and other.placed):
        return
    apart = _apart(one, other)
    if apart > APART:
        begins = [" ".join(f"{value:g}" for value in volume.affine[:3, 3]) for volume in (one, other)]
        raise ValueError(
            f"{one.path} and {other.path} lie up to {apart:.2g} voxels apart (they begin at {begins[0]} and at "
            f"{begins[1]} mm): {RESAMPLE}"
        )


def axes(volume: Volume) -> str:
    """Where columns, rows and slices run to: "LPS" is the patient's left, back and head."""
    nibabel = require("nibabel", "a volume's orientation", "train")
    return "".join(code or "?" for code in nibabel.aff2axcodes(volume.affine))


def _apart(one: Volume, other: Volume) -> float:
    """How far the corners of two volumes of one shape are from each other, in voxels."""
    depth, height, width = one.voxels.shape
    corners = np.array([(x, y, z, 1) for x in (0, width - 1) for y in (0, height - 1) for z in (0, depth - 1)]).T
    return float(np.abs(np.linalg.solve(one.affine, other.affine @ corners) - corners).max())


def read_shape(path: Path) -> tuple[int, int, int]:
    """Depth, height and width as the header says, without reading a voxel."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    try:
        if path.name.lower().endswith(NIFTI):
            sizes = load_nifti(path).shape
        else:
            sizes = read_header(path)[0]["dimsize"].split()
        width, height, depth = (int(size) for size in sizes[:3])
    except Exception as error:  # nibabel raises its own, OSError, ValueError
        raise ValueError(f"{path} cannot be read: {str(error).strip() or type(error).__name__}") from None
    return depth, height, width


def _three_axes(volume: Volume) -> Volume:
    if volume.voxels.ndim != 3:
        shape = list(volume.voxels.shape)
        single = "; save a single slice as one with a third axis of 1" if volume.voxels.ndim == 2 else ""
        raise ValueError(f"{volume.path} has {volume.voxels.ndim} axes {shape}; a volume has three{single}")
    return volume


def _read(path: Path) -> Volume:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if path.name.lower().endswith(METAIMAGE):
        try:
            volume = _read_metaimage(path)
        except PermissionError as error:
            raise PermissionError(f"{error.filename} may not be read: permission denied") from None
    elif path.name.lower().endswith(NIFTI):
        volume = _read_nifti(path)
    else:
        raise ValueError(f"{path} is no volume: it should end in {', '.join((*METAIMAGE, *NIFTI))}")
    if volume.voxels.dtype.kind not in "iuf":
        raise ValueError(f"{path}: its voxels are no plain numbers but {volume.voxels.dtype}")
    if np.issubdtype(volume.voxels.dtype, np.floating) and not np.isfinite(volume.voxels).all():
        count = int((~np.isfinite(volume.voxels)).sum())
        raise ValueError(f"{path}: {count} of {volume.voxels.size} voxels are NaN or infinite")
    return volume


def write_volume(path: Path, voxels: NDArray[Any], like: Volume) -> None:
    """Write voxels ``[depth, height, width]`` with exactly the geometry of ``like``, in the format of ``path``."""
    if voxels.shape != like.voxels.shape:
        raise ValueError(f"{path}: voxels of shape {voxels.shape} do not fit the geometry of {like.path}")
    if path.name.lower().endswith(METAIMAGE) and like.path.name.lower().endswith(METAIMAGE):
        sitk = require("SimpleITK", f"writing {path.suffix}", "train")
        image = sitk.GetImageFromArray(voxels)
        image.CopyInformation(like.geometry)
        sitk.WriteImage(image, str(path), True)
    elif path.name.lower().endswith(NIFTI) and like.path.name.lower().endswith(NIFTI):
        nibabel = require("nibabel", "writing NIfTI", "train")
        header = like.geometry.header.copy()
        header.set_data_dtype(voxels.dtype)
        header.set_slope_inter(1.0, 0.0)
        header["cal_min"] = header["cal_max"] = 0  # else a viewer shows a mask as dark as the image's 1
        image = type(like.geometry)(voxels.transpose(2, 1, 0), like.geometry.affine, header)
        nibabel.save(image, str(path))
    else:
        raise ValueError(f"{path}: an answer to {like.path.name} is written in the same format")


def _read_metaimage(path: Path) -> Volume:
    sitk = require("SimpleITK", "reading MetaImage", "train")
    check_bytes(path)
    try:
        image = sitk.ReadImage(str(path), imageIO="MetaImageIO")  # by itself it does not know .MHD
    except RuntimeError as error:
        raise ValueError(f"{path} cannot be read: {str(error).strip().splitlines()[-1]}") from None
    x, y, *rest = image.GetSpacing()
    return Volume(path, sitk.GetArrayFromImage(image), (float(rest[0]) if rest else 1.0, float(y), float(x)), image)


def load_nifti(path: Path) -> Any:
    """nibabel's image, whose voxels are read when they are used, without its remarks about the header."""
    nibabel = require("nibabel", "reading NIfTI", "train")
    logger, level = nibabel.imageglobals.logger, nibabel.imageglobals.logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        return nibabel.load(str(path))
    finally:
        logger.setLevel(level)


def _read_nifti(path: Path) -> Volume:
    try:
        found = _length(path)
        image = load_nifti(path)
        stored = image.dataobj
        promised = int(stored.offset) + math.prod(map(int, stored.shape)) * stored.dtype.itemsize
        if found != promised:  # nibabel would read as much as the header says, if there is
            shape = " × ".join(map(str, stored.shape))
            raise ValueError(
                f"the header promises {shape} voxels, {promised} bytes in all, and there are {found}: the file is "
                "cut off, or the header is wrong"
            )
        if not np.isfinite(image.affine).all() or np.linalg.matrix_rank(image.affine) < 4:
            raise ValueError(f"the header does not say where the voxels are: its affine is {image.affine.tolist()}")
        voxels = np.asanyarray(stored)
    except Exception as error:  # nibabel raises its own, zlib's, EOFError, OSError, ValueError
        raise ValueError(f"{path} cannot be read: {str(error).strip() or type(error).__name__}") from None
    if voxels.ndim == 4 and voxels.shape[3] == 1:
        voxels = voxels[..., 0]
    x, y, *rest = (float(zoom) for zoom in image.header.get_zooms()[:3])
    return Volume(path, voxels.transpose(), (rest[0] if rest else 1.0, y, x), image)


def _length(path: Path) -> int:
    """How many bytes a file holds, once decompressed."""
    if not path.name.lower().endswith(".gz"):
        return path.stat().st_size
    length = 0
    with gzip.open(path) as file:
        while chunk := file.read(1 << 20):
            length += len(chunk)
    return length
