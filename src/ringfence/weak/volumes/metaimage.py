"""MetaImage by SimpleITK, with a check that it lacks: whether there are as many bytes as the header promises.

It reads a compressed volume whose header lies about its size as if nothing were wrong (the rest is garbage), and
one that is too long in part. So the bytes are counted before it is asked.
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from ringfence.extras import require

_BYTES: Final = {
    **dict.fromkeys(("MET_CHAR", "MET_UCHAR"), 1),
    **dict.fromkeys(("MET_SHORT", "MET_USHORT"), 2),
    **dict.fromkeys(("MET_INT", "MET_UINT", "MET_FLOAT"), 4),
    **dict.fromkeys(("MET_LONG_LONG", "MET_ULONG_LONG", "MET_DOUBLE"), 8),
}


IO: Final = "MetaImageIO"
"""Named, since SimpleITK by itself does not know .MHD."""


def read_metaimage(path: Path) -> tuple[NDArray[Any], tuple[float, float, float], Any]:
    """Voxels ``[z, y, x]``, spacing along z, y, x, and SimpleITK's image; a damaged file is refused."""
    sitk = require("SimpleITK", "reading MetaImage", "train")
    try:
        check_bytes(path)
        image = sitk.ReadImage(str(path), imageIO=IO)
    except PermissionError as error:
        raise PermissionError(f"{error.filename} may not be read: permission denied") from None
    except RuntimeError as error:
        raise ValueError(f"{path} cannot be read: {_reason(error)}") from None
    x, y, *rest = image.GetSpacing()
    return sitk.GetArrayFromImage(image), (float(rest[0]) if rest else 1.0, float(y), float(x)), image


def metaimage_sizes(path: Path) -> tuple[int, ...]:
    """Width, height, ... as the header says, without reading a voxel."""
    _checked_header(path)
    reader = require("SimpleITK", "reading MetaImage", "train").ImageFileReader()
    reader.SetImageIO(IO)
    reader.SetFileName(str(path))
    try:
        reader.ReadImageInformation()
    except RuntimeError as error:
        raise ValueError(_reason(error)) from None
    return tuple(int(size) for size in reader.GetSize())


def write_metaimage(path: Path, voxels: NDArray[Any], like: Any) -> None:
    """Write voxels ``[z, y, x]``, compressed, with the geometry of SimpleITK's image ``like``."""
    sitk = require("SimpleITK", f"writing {path.suffix}", "train")
    image = sitk.GetImageFromArray(voxels)
    image.CopyInformation(like)
    sitk.WriteImage(image, str(path), True)


def check_bytes(path: Path) -> None:
    """Refuse a MetaImage whose header and data do not agree."""
    header, shape, end = _checked_header(path)
    channels, skipped = int(header.get("elementnumberofchannels", 1)), int(header.get("headersize", 0))
    wanted = math.prod(shape) * _BYTES[header["elementtype"]] * channels
    source = header["elementdatafile"]
    if source.upper().startswith("LIST") or "%" in source:
        raise ValueError(f"{path}: its data are in several files ({source}): save it as one")
    if source.upper() == "LOCAL":
        data, begin = path, end
    elif Path(source).name != source:
        raise ValueError(f"{path}: its data file should be beside it; the header names {source}")
    else:
        data, begin = path.parent / source, max(skipped, 0)
    if not data.exists():
        raise ValueError(f"{path}: its data file {source} is missing")
    data.open("rb").close()  # SimpleITK would say of one that may not be read that it is not there
    compressed = header.get("compresseddata", "False").lower() == "true"
    found, whole = _unpacked(data, begin) if compressed else (data.stat().st_size - begin, True)
    if skipped == -1 and not compressed:  # whatever there is of it, the data are at the file's end
        found = min(found, wanted)
    if found != wanted or not whole:
        promised = f"{' × '.join(map(str, shape))} voxels, {wanted} bytes"
        raise ValueError(
            f"{path}: the header promises {promised}, and {data.name} holds {found}"
            f"{'' if whole else ' and then ends too early'}: the file is cut off, or the header is wrong"
        )


def _checked_header(path: Path) -> tuple[dict[str, str], list[int], int]:
    """The header's values, the numbers of voxels along x, y, ..., and where it ends; an unusable one is refused.

    SimpleITK would write its complaints to the terminal, whoever catches its errors.
    """
    header, end = _read_header(path)
    unusable = f"{path} cannot be read: its header has"
    for key in ("NDims", "DimSize", "ElementType", "ElementDataFile"):
        if key.lower() not in header:
            raise ValueError(f"{unusable} no {key}")
    if header["elementtype"] not in _BYTES:
        raise ValueError(f"{unusable} ElementType {header['elementtype']}; {', '.join(_BYTES)} are read")
    try:
        shape = [int(size) for size in header["dimsize"].split()]
        for key in ("elementnumberofchannels", "headersize"):
            int(header.get(key, 0))
    except ValueError as error:
        raise ValueError(f"{unusable} a value that is not a number: {error}") from None
    if min(shape, default=0) < 1 or header["ndims"] != str(len(shape)):
        raise ValueError(f"{unusable} NDims {header['ndims']}, DimSize {header['dimsize']}")
    return header, shape, end


def _read_header(path: Path) -> tuple[dict[str, str], int]:
    """The lines ``Key = value``, keys in lower case, to the one that says where the data are; and where it ends."""
    header: dict[str, str] = {}
    with path.open("rb") as file:
        while line := file.readline(1 << 16):
            key, equals, value = line.decode("latin-1").partition("=")
            if not equals:
                break
            header[key.strip().lower()] = value.strip()
            if key.strip().lower() == "elementdatafile":
                break
        return header, file.tell()


def _unpacked(data: Path, begin: int) -> tuple[int, bool]:
    """How many bytes a file holds after ``begin``, once decompressed; and whether their end is there."""
    unpacker, length = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS), 0  # zlib or gzip, as its header says
    try:
        with data.open("rb") as file:
            file.seek(begin)
            while chunk := file.read(1 << 20):
                length += len(unpacker.decompress(chunk))
            length += len(unpacker.flush())
    except zlib.error as error:
        raise ValueError(f"{data} is damaged: {error}") from None
    return length, unpacker.eof


def _reason(error: RuntimeError) -> str:
    """The last line of what SimpleITK says; those before it name its own source files."""
    return str(error).strip().splitlines()[-1]
