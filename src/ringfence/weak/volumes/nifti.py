"""NIfTI by nibabel, with a check that it lacks: whether there are as many bytes as the header promises."""

from __future__ import annotations

import gzip
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence.extras import require


def load_nifti(path: Path) -> Any:
    """nibabel's image, whose voxels are read when they are used, without its remarks about the header."""
    nibabel = require("nibabel", "reading NIfTI", "train")
    logger, level = nibabel.imageglobals.logger, nibabel.imageglobals.logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        return nibabel.load(str(path))
    finally:
        logger.setLevel(level)


def read_nifti(path: Path) -> tuple[NDArray[Any], tuple[float, float, float], Any]:
    """Voxels ``[(channels,) z, y, x]``, spacing along z, y, x, and nibabel's image.

    A damaged file is refused with what is wrong.
    """
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
    return voxels.transpose(), (rest[0] if rest else 1.0, y, x), image


def write_nifti(path: Path, voxels: NDArray[Any], like: Any) -> None:
    """Write voxels ``[z, y, x]`` with the header and the affine of nibabel's image ``like``."""
    nibabel = require("nibabel", "writing NIfTI", "train")
    header = like.header.copy()
    header.set_data_dtype(voxels.dtype)
    header.set_slope_inter(1.0, 0.0)
    header["cal_min"] = header["cal_max"] = 0  # else a viewer shows a mask as dark as the image's 1
    nibabel.save(type(like)(voxels.transpose(2, 1, 0), like.affine, header), str(path))


def _length(path: Path) -> int:
    """How many bytes a file holds, once decompressed."""
    if not path.name.lower().endswith(".gz"):
        return path.stat().st_size
    length = 0
    with gzip.open(path) as file:
        while chunk := file.read(1 << 20):
            length += len(chunk)
    return length
