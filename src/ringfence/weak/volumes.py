"""Medical volumes in and out: MetaImage by SimpleITK, NIfTI by nibabel, with the geometry they came with.

SimpleITK reads a compressed volume whose header lies about its size as if nothing were wrong (the rest is garbage),
and one that is too long in part. So the bytes are counted before it is asked.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringfence.extras import require

METAIMAGE: Final = (".mhd", ".mha")
NIFTI: Final = (".nii", ".nii.gz")
_BYTES: Final = {
    **dict.fromkeys(("MET_CHAR", "MET_UCHAR"), 1),
    **dict.fromkeys(("MET_SHORT", "MET_USHORT"), 2),
    **dict.fromkeys(("MET_INT", "MET_UINT", "MET_FLOAT"), 4),
    **dict.fromkeys(("MET_LONG_LONG", "MET_ULONG_LONG", "MET_DOUBLE"), 8),
}
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
        check_same_shape(_three_axes(first), _three_axes(volume))
    return [first, *others]


def check_same_shape(one: Volume, other: Volume) -> None:
    """Refuse two volumes of one case that have different shapes."""
    if one.voxels.shape != other.voxels.shape:
        shapes = [" × ".join(map(str, volume.voxels.shape)) for volume in (one, other)]
        raise ValueError(f"{one.path} has {shapes[0]} voxels, but {other.path} has {shapes[1]} (z, y, x)")


def read_shape(path: Path) -> tuple[int, int, int]:
    """Depth, height and width as the header says, without reading a voxel."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    try:
        if path.name.lower().endswith(NIFTI):
            sizes = require("nibabel", "reading NIfTI", "train").load(str(path)).shape
        else:
            sizes = _header(path)["dimsize"].split()
        width, height, depth = (int(size) for size in sizes[:3])
    except Exception as error:  # nibabel raises its own, OSError, ValueError
        raise ValueError(f"{path} cannot be read: {str(error).strip() or type(error).__name__}") from None
    return depth, height, width


def _three_axes(volume: Volume) -> Volume:
    if volume.voxels.ndim != 3:
        shape = list(volume.voxels.shape)
        raise ValueError(f"{volume.path} has {volume.voxels.ndim} axes {shape}; a volume has three")
    return volume


def _read(path: Path) -> Volume:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if path.name.lower().endswith(METAIMAGE):
        volume = _read_metaimage(path)
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
        image = nibabel.Nifti1Image(voxels.transpose(2, 1, 0), like.geometry.affine, header)
        nibabel.save(image, str(path))
    else:
        raise ValueError(f"{path}: an answer to {like.path.name} is written in the same format")


def _read_metaimage(path: Path) -> Volume:
    sitk = require("SimpleITK", "reading MetaImage", "train")
    _count_bytes(path)
    try:
        image = sitk.ReadImage(str(path))
    except RuntimeError as error:
        raise ValueError(f"{path} cannot be read: {str(error).strip().splitlines()[-1]}") from None
    x, y, *rest = image.GetSpacing()
    return Volume(path, sitk.GetArrayFromImage(image), (float(rest[0]) if rest else 1.0, float(y), float(x)), image)


def _count_bytes(path: Path) -> None:
    """Refuse a MetaImage whose header and data do not agree."""
    header = _header(path)
    try:
        shape = [int(size) for size in header["dimsize"].split()]
        wanted = math.prod(shape) * _BYTES[header["elementtype"]] * int(header.get("elementnumberofchannels", 1))
        source = header["elementdatafile"]
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path} is no MetaImage header that can be used: {error}") from None
    if source.upper() in ("LOCAL", "LIST") or "%" in source:
        return  # not the challenge's form: SimpleITK reads it, or says why not
    if Path(source).name != source:
        raise ValueError(f"{path}: its data file should be beside it; the header names {source}")
    data = path.parent / source
    if not data.exists():
        raise ValueError(f"{path}: its data file {source} is missing")
    found = _length(data, compressed=header.get("compresseddata", "False").lower() == "true")
    if found != wanted:
        raise ValueError(
            f"{path}: the header promises {' × '.join(map(str, shape))} voxels, {wanted} bytes, and {source} holds "
            f"{found}: the file is cut off, or the header is wrong"
        )


def _header(path: Path) -> dict[str, str]:
    """The lines ``Key = value``, keys in lower case, up to the one that says where the data are."""
    header: dict[str, str] = {}
    with path.open("rb") as file:
        for line in file:
            key, equals, value = line.decode("latin-1").partition("=")
            if not equals:
                break
            header[key.strip().lower()] = value.strip()
            if key.strip().lower() == "elementdatafile":
                break
    return header


def _length(data: Path, *, compressed: bool) -> int:
    if not compressed:
        return data.stat().st_size
    unpacker, length = zlib.decompressobj(), 0
    try:
        with data.open("rb") as file:
            while chunk := file.read(1 << 20):
                length += len(unpacker.decompress(chunk))
            length += len(unpacker.flush())
    except zlib.error as error:
        raise ValueError(f"{data} is damaged: {error}") from None
    return length


def _read_nifti(path: Path) -> Volume:
    nibabel = require("nibabel", "reading NIfTI", "train")
    try:
        image = nibabel.load(str(path))
        voxels = np.asanyarray(image.dataobj)
    except Exception as error:  # nibabel raises its own, zlib's, EOFError, OSError, ValueError
        raise ValueError(f"{path} cannot be read: {str(error).strip() or type(error).__name__}") from None
    x, y, *rest = (float(zoom) for zoom in image.header.get_zooms()[:3])
    return Volume(path, voxels.transpose(), (rest[0] if rest else 1.0, y, x), image)
