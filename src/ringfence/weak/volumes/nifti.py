"""NIfTI, by nibabel's headers: their bytes are checked first, then no more is read than they promise.

nibabel opens no file: what was checked is what is used.
"""

from __future__ import annotations

import gzip
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringfence import memory
from ringfence.extras import require
from ringfence.files import write_bytes
from ringfence.weak.volumes.arrays import HANDLED, read_array
from ringfence.weak.volumes.content import Content, Inflated, Readable, in_a_line
from ringfence.weak.volumes.geometry import check_affine, check_spacing
from ringfence.weak.volumes.places import Place, naming

KINDS: Final = {
    2: "u1",
    4: "i2",
    8: "i4",
    16: "f4",
    64: "f8",
    256: "i1",
    512: "u2",
    768: "u4",
    1024: "i8",
    1280: "u8",
}
"""The codes of plain numbers; not of colours, complex ones or those of 16 bytes."""
MAGIC: Final = {348: b"n+1\0", 540: b"n+2\0\r\n\032\n"}
MAGIC_AT: Final = {348: 344, 540: 4}
AXES: Final = 7
CODES: Final = 5
"""Ways of saying where voxels are, as qform_code and sform_code count them."""
QFORM: Final = {"quatern": "bcd", "qoffset": "xyz"}
EXTENSIONS: Final = 64_000_000
"""Bytes between a header and its voxels, at most."""
APART: Final = 0.01
"""What pixdim and the affine may disagree by: headers are rounded."""
LEVEL: Final = 1
"""Of compression: nibabel's choice."""


@dataclass(frozen=True, eq=False)
class NiftiGeometry:
    """Where a NIfTI file's voxels are: nibabel's header, and the affine that it gives."""

    header: Any
    affine: NDArray[np.float64]

    @property
    def placed(self) -> bool:
        """Whether the header says where the voxels are, and not only how large."""
        return bool(self.header["sform_code"] or self.header["qform_code"])


@dataclass(frozen=True)
class Promise:
    """What a header says, once checked.

    Attributes:
        header: nibabel's.
        sizes: voxels along x, y, z, ...
        kind: of each number as it is stored, with the order of its bytes.
        begin: where the first voxel is.
        scale: slope and intercept, which make stored numbers what they mean.
    """

    header: Any
    sizes: tuple[int, ...]
    kind: np.dtype[np.generic]
    begin: int
    scale: tuple[float, float]

    @property
    def spacing(self) -> tuple[float, ...]:
        """Along x, y, z."""
        return (*(float(step) for step in self.header["pixdim"][1 : 1 + len(self.sizes)]), 1.0, 1.0)[:3]

    @property
    def bytes(self) -> int:
        """Of the voxels as they are stored."""
        return math.prod(self.sizes) * self.kind.itemsize

    @property
    def scaled(self) -> bool:
        """Whether the voxels mean something else than what is stored."""
        return self.scale != (1.0, 0.0)

    @property
    def memory(self) -> int:
        """Bytes that the voxels take until they are dealt with: as they are stored, or as they are meant."""
        meant = math.prod(self.sizes) * np.dtype(np.float64).itemsize if self.scaled else self.bytes
        return HANDLED * max(self.bytes, meant)


def read_nifti(place: Place) -> tuple[NDArray[Any], tuple[float, float, float], NiftiGeometry]:
    """Voxels ``[(channels,) z, y, x]``, spacing along z, y, x, and where they are; a damaged file is refused."""
    with place.reading() as content:
        source = _source(place, content)
        with naming(place):
            promise = _checked(_header(source))
            geometry = _geometry(promise.header)
        voxels = _voxels(place, promise, source)
    if voxels.ndim == 4 and voxels.shape[3] == 1:
        voxels = voxels[..., 0]
    x, y, z = promise.spacing
    return voxels.transpose(), (z, y, x), geometry


def nifti_steps(place: Place) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Width, height, ... and spacing along the same axes, as the header says, without reading a voxel.

    Not of more voxels than would be read.
    """
    with place.reading() as content, naming(place):
        promise = _checked(_header(_source(place, content)))
    memory.check(promise.memory, str(place))
    return promise.sizes, promise.spacing


def unplaced(affine: NDArray[np.float64]) -> NiftiGeometry:
    """A geometry for voxels that came without one."""
    nibabel = require("nibabel", "writing NIfTI", "train")
    return NiftiGeometry(nibabel.Nifti1Header(), affine)


def write_nifti(path: Path, voxels: NDArray[Any], geometry: NiftiGeometry) -> None:
    """Write voxels ``[z, y, x]`` in the place of others, with their header.

    Raises:
        WriteFailed: with the reason; a file that was there is as it was.
    """
    nibabel = require("nibabel", "writing NIfTI", "train")
    header = geometry.header.copy()
    header.set_data_dtype(voxels.dtype)
    header.set_slope_inter(1.0, 0.0)
    header["vox_offset"] = 0  # what was between the image's header and its voxels is not the mask's
    header["cal_min"] = header["cal_max"] = 0  # else a viewer shows a mask as dark as the image's 1
    image = nibabel.Nifti2Image if int(header["sizeof_hdr"]) == 540 else nibabel.Nifti1Image
    content = image(voxels.transpose(2, 1, 0), geometry.affine, header).to_bytes()
    packed = path.name.lower().endswith(".gz")
    write_bytes(path, gzip.compress(content, LEVEL, mtime=0) if packed else content)


def _source(place: Place, content: Content) -> Readable:
    return Inflated(content, members=True) if place.path.name.lower().endswith(".gz") else content


def _header(source: Readable) -> Any:
    """nibabel's header, of bytes that have the length and the mark of one."""
    nibabel = require("nibabel", "reading NIfTI", "train")
    first = _exactly(source, 4)
    for order, letter in (("little", "<"), ("big", ">")):
        length = int.from_bytes(first, order)  # type: ignore[arg-type]
        if length in MAGIC:
            block = first + _exactly(source, length - 4)
            begin, magic = MAGIC_AT[length], MAGIC[length]
            if block[begin : begin + len(magic)] != magic:
                raise ValueError(f"its header has magic {block[begin : begin + len(magic)]!r}, not {magic!r}")
            kind = nibabel.Nifti1Header if length == 348 else nibabel.Nifti2Header
            return kind(block, letter, check=False)
    raise ValueError("it is not NIfTI: its header has neither 348 nor 540 bytes (sizeof_hdr)")


def _exactly(source: Readable, count: int) -> bytes:
    block = b""
    while len(block) < count and (piece := source.read(count - len(block))):
        block += piece
    if len(block) < count:
        raise ValueError("it ends within its header: the file is cut off, or it is not NIfTI")
    return block


def _checked(header: Any) -> Promise:
    axes, *sizes = (int(size) for size in header["dim"])
    sizes = sizes[:axes]
    if not 1 <= axes <= AXES or min(sizes) < 1:
        raise ValueError(
            f"its header has dim {' '.join(map(str, header['dim'].tolist()))}; sizes should be above 0"
        )
    code, bits = int(header["datatype"]), int(header["bitpix"])
    if code not in KINDS:
        raise ValueError(f"its voxels are not plain numbers: the header has datatype {code}")
    kind = np.dtype(header.endianness + KINDS[code])
    if bits not in (0, 8 * kind.itemsize):
        raise ValueError(f"its header has datatype {code} and bitpix {bits}, which do not agree")
    least = 4 + int(header["sizeof_hdr"])
    offset = float(header["vox_offset"])
    if not (offset.is_integer() and least <= offset <= least + EXTENSIONS):
        raise ValueError(f"its header has vox_offset {offset:g}; it should be a whole number from {least}")
    check_spacing([float(step) for step in header["pixdim"][1 : 1 + min(axes, 3)]], "pixdim")
    if int(header["xyzt_units"]) & 7 in (1, 3):
        raise ValueError(f"its header has xyzt_units {int(header['xyzt_units'])}, which are not millimetres")
    return Promise(header, tuple(sizes), kind, int(offset), _scale(header))


def _scale(header: Any) -> tuple[float, float]:
    """Slope and intercept; 0 and NaN are how a header says that there are none."""
    slope, inter = float(header["scl_slope"]), float(header["scl_inter"])
    if slope == 0 or math.isnan(slope):
        return 1.0, 0.0
    if not math.isfinite(slope) or not math.isfinite(inter):
        raise ValueError(f"its header has scl_slope {slope:g}, scl_inter {inter:g}; both should be finite")
    return slope, inter


def _geometry(header: Any) -> NiftiGeometry:
    """Where the voxels are, as nibabel has it: by the sform, else by the qform, else by the steps alone."""
    for field in ("qform_code", "sform_code"):
        if not 0 <= int(header[field]) <= CODES:
            raise ValueError(f"its header has {field} {int(header[field])}; it should be from 0 to {CODES}")
    if header["qform_code"]:
        for field in (f"{kind}_{axis}" for kind in ("quatern", "qoffset") for axis in QFORM[kind]):
            if not np.isfinite(header[field]):
                raise ValueError(f"its header has {field} {float(header[field]):g}; it should be finite")
        if header["pixdim"][0] == 0:
            header["pixdim"][0] = 1  # as the standard has it
    used = "sform" if header["sform_code"] else "qform" if header["qform_code"] else "pixdim"
    try:
        with np.errstate(all="ignore"):
            affine = np.asarray(header.get_best_affine(), dtype=np.float64)
    except Exception as error:  # nibabel raises its own
        raise ValueError(f"its header has a {used} that is none: {in_a_line(error)}") from None
    check_affine(affine, used)
    _check_steps(header, affine, used)
    return NiftiGeometry(header, affine)


def _check_steps(header: Any, affine: NDArray[np.float64], used: str) -> None:
    """Refuse voxels of two sizes: volumes would be measured by one, and masks placed by the other."""
    axes = min(int(header["dim"][0]), 3)
    steps = np.asarray(header["pixdim"][1 : 1 + axes], dtype=np.float64)
    placed = np.linalg.norm(affine[:3, :axes], axis=0)
    if not np.allclose(placed, steps, rtol=APART, atol=0.0):
        said = [" × ".join(f"{step:g}" for step in some) for some in (steps, placed)]
        raise ValueError(f"its header has pixdim {said[0]} mm, and its {used} has steps of {said[1]}: correct one")


def _voxels(place: Place, promise: Promise, source: Readable) -> NDArray[Any]:
    """The voxels ``[x, y, z, ...]``, once it is certain that there are as many bytes as the header promises."""
    memory.check(promise.memory, str(place))
    left = promise.begin - int(promise.header["sizeof_hdr"])
    while left > 0 and (piece := source.read(min(left, 1 << 20))):
        left -= len(piece)
    voxels, found = read_array(source, math.prod(promise.sizes), promise.kind)
    found += promise.begin - left
    if found != promise.begin + promise.bytes:
        shape = " × ".join(map(str, promise.sizes))
        there = f"there are {found}" if found < promise.begin + promise.bytes else "there are more"
        raise ValueError(
            f"{place} cannot be read: the header promises {shape} voxels, {promise.begin + promise.bytes} bytes in "
            f"all, and {there}: the file is cut off, or the header is wrong"
        )
    voxels = voxels.reshape(promise.sizes, order="F")
    if not promise.scaled:
        return voxels
    slope, inter = promise.scale
    meant: NDArray[np.float64] = voxels.astype(np.float64)
    with np.errstate(all="ignore"):  # what overflows is seen as infinite
        meant *= slope
        meant += inter
    return meant
