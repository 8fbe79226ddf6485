"""MetaImage, a text header and raw or compressed voxels, in and out.

It is read here and not by ITK, whose C++ ends the process on some headers and fills in voxels that are not there
on others: foreign bytes reach nothing but Python, zlib and NumPy, and no more of them than the header promises.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ringfence import memory
from ringfence.files import write_bytes
from ringfence.weak.volumes.arrays import HANDLED, read_array
from ringfence.weak.volumes.content import Content, Inflated
from ringfence.weak.volumes.geometry import check_affine
from ringfence.weak.volumes.metaimage_header import KINDS, LOCAL, Header, data_name, read_header
from ringfence.weak.volumes.places import Place, naming

LEVEL: Final = 2
"""Of compression: ITK's choice, half as large as it could be and much faster."""


@dataclass(frozen=True)
class MetaGeometry:
    """Where a MetaImage's voxels are: x, y, ... in millimetres towards the patient's left, back and head.

    Attributes:
        spacing: between voxels along x, y, ...
        origin: of the first voxel.
        axes: the direction of x, of y, ...
    """

    placed: ClassVar[bool] = True
    """A MetaImage's header says where the voxels are, and not only how large."""

    spacing: tuple[float, ...]
    origin: tuple[float, ...]
    axes: tuple[tuple[float, ...], ...]

    @property
    def affine(self) -> NDArray[np.float64]:
        """From x, y, z in voxels to millimetres towards the patient's right, front and head, ``[4, 4]``."""
        affine = np.eye(4)
        affine[:3, :3] = np.transpose(self.axes) * self.spacing
        affine[:3, 3] = self.origin
        affine[:2] *= -1.0
        return affine


def read_metaimage(place: Place) -> tuple[NDArray[Any], tuple[float, float, float], MetaGeometry]:
    """Voxels ``[z, y, x]``, spacing along z, y, x, and where they are; a damaged file is refused."""
    with place.reading() as content:
        with naming(place):
            header = read_header(content)
            geometry = _geometry(header)
        voxels = _voxels(place, header, content) if header.data == LOCAL else None
    if voxels is None:
        try:
            with place.beside(header.data).reading() as content:
                voxels = _voxels(place, header, content)
        except FileNotFoundError:
            raise ValueError(f"{place}: its data file {header.data} is missing") from None
    x, y, z = (*header.spacing, 1.0, 1.0)[:3]
    return voxels, (z, y, x), geometry


def metaimage_steps(place: Place) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Width, height, ... and spacing along the same axes, as the header says, without reading a voxel.

    Not of more voxels than would be read.
    """
    with place.reading() as content, naming(place):
        header = read_header(content)
    memory.check(HANDLED * header.bytes, str(place))
    return header.sizes, (*header.spacing, 1.0, 1.0)[:3]


def write_metaimage(path: Path, voxels: NDArray[Any], geometry: MetaGeometry) -> None:
    """Write voxels ``[z, y, x]``, compressed, in the place of others; the header last, since it names its data.

    Raises:
        WriteFailed: with the reason; a file that was there is as it was.
    """
    kind = next((name for name, code in KINDS.items() if np.dtype(code) == voxels.dtype.newbyteorder("=")), None)
    if kind is None:
        raise ValueError(f"{path}: a MetaImage holds no voxels of the kind {voxels.dtype}")
    packed = zlib.compress(np.ascontiguousarray(voxels, voxels.dtype.newbyteorder("<")).data, LEVEL)
    data = path.with_suffix(".zraw")
    local = path.suffix.lower() == ".mha"
    try:
        data_name(data.name)
    except ValueError:  # a name that cannot stand in a header
        local = True
    text = "\n".join(
        f"{field} = {value}"
        for field, value in (
            ("ObjectType", "Image"),
            ("NDims", voxels.ndim),
            ("BinaryData", True),
            ("BinaryDataByteOrderMSB", False),
            ("CompressedData", True),
            ("CompressedDataSize", len(packed)),
            ("TransformMatrix", " ".join(repr(value) for axis in geometry.axes for value in axis)),
            ("Offset", " ".join(map(repr, geometry.origin))),
            ("CenterOfRotation", " ".join("0" * voxels.ndim)),
            ("ElementSpacing", " ".join(map(repr, geometry.spacing))),
            ("DimSize", " ".join(map(str, reversed(voxels.shape)))),
            ("ElementType", kind),
            ("ElementDataFile", LOCAL if local else data.name),
        )
    )
    if not local:
        write_bytes(data, packed)
    write_bytes(path, f"{text}\n".encode() + (packed if local else b""))


def _geometry(header: Header) -> MetaGeometry:
    geometry = MetaGeometry(header.spacing, header.origin, header.axes)
    if len(header.sizes) == 3:
        check_affine(geometry.affine, "Offset")
    return geometry


def _voxels(place: Place, header: Header, content: Content) -> NDArray[Any]:
    """The voxels, once it is certain that there are as many bytes as the header promises."""
    wanted = header.bytes
    packed = wanted if header.packed is None else header.packed
    begin = _begin(place, header, content, packed)
    memory.check(begin + HANDLED * wanted, str(place))
    promised = f"{place}: the header promises {' × '.join(map(str, header.sizes))} voxels, {wanted} bytes, and"
    damaged = "the file is cut off, or the header is wrong"
    there, name = content.size - begin, Path(content.name).name
    if there != packed:
        if header.packed is not None:
            promised = f"{place}: the header promises CompressedDataSize {packed}, and"
        raise ValueError(f"{promised} {name} holds {max(there, 0)}: {damaged}")
    content.skip(begin - content.position)
    source = content if header.packed is None else Inflated(content)
    voxels, found = read_array(source, wanted // header.kind.itemsize, header.kind)
    if found != wanted:
        holds = f"{found}" if found < wanted else "more"
        raise ValueError(f"{promised} {name} holds {holds}: {damaged}")
    shape = (*reversed(header.sizes), *([header.channels] if header.channels > 1 else []))
    return voxels.reshape(shape)


def _begin(place: Place, header: Header, content: Content, packed: int) -> int:
    """Where in its file the first voxel is."""
    if header.skipped == -1:
        if header.packed is not None:
            raise ValueError(f"{place} cannot be read: its header has HeaderSize -1, and CompressedData True")
        return max(content.size - packed, content.position)
    if header.data == LOCAL and header.skipped not in (0, content.position):
        raise ValueError(
            f"{place} cannot be read: its header has HeaderSize {header.skipped}, and ends at {content.position}"
        )
    return content.position if header.data == LOCAL else header.skipped
