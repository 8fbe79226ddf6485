"""Other ways to read volumes, written from the formats' descriptions: strict, and by NumPy alone."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import SimpleITK as sitk  # noqa: N813

from faults.reader import expect

METAIMAGE_TYPES = {
    "MET_CHAR": "i1",
    "MET_UCHAR": "u1",
    "MET_SHORT": "i2",
    "MET_USHORT": "u2",
    "MET_INT": "i4",
    "MET_UINT": "u4",
    "MET_LONG_LONG": "i8",
    "MET_ULONG_LONG": "u8",
    "MET_FLOAT": "f4",
    "MET_DOUBLE": "f8",
}
MEANT = ("ndims", "dimsize", "elementtype", "elementspacing", "elementsize", "offset", "transformmatrix", "binarydata", "binarydatabyteordermsb", "compresseddata", "compresseddatasize", "headersize", "elementnumberofchannels", "elementdatafile")  # fmt: skip
"""Fields that say what the voxels are, or where."""
SAME = {
    "position": "offset",
    "origin": "offset",
    "rotation": "transformmatrix",
    "orientation": "transformmatrix",
    "elementbyteordermsb": "binarydatabyteordermsb",
}
NIFTI_TYPES = {
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

PNG_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


class Read(NamedTuple):
    """What a volume is."""

    voxels: np.ndarray
    spacing: tuple[float, ...]


def metaimage(path: Path) -> Read:
    """Of a MetaImage in which every field that matters is there at most once; others are refused."""
    header, rest = _metaimage_header(path.read_bytes())
    flags = {name: header.get(name, "False").lower() for name in ("compresseddata", "binarydatabyteordermsb")}
    for name, value in flags.items():
        expect(value in ("true", "false", "t", "f", "1", "0", "yes", "no", "y", "n"), f"{name} is {value}")
    size = [int(one) for one in header["dimsize"].split()]
    expect(len(size) == int(header["ndims"]) and min(size) > 0, f"sizes {size}")
    expect(header.get("elementnumberofchannels", "1") == "1", "channels")
    kind = np.dtype(METAIMAGE_TYPES[header["elementtype"]])
    big = flags["binarydatabyteordermsb"] in ("true", "t", "1")
    promised = math.prod(size) * kind.itemsize
    where = header["elementdatafile"]
    data = rest if where.upper() == "LOCAL" else (path.parent / where).read_bytes()
    if flags["compresseddata"] in ("true", "t", "1"):
        if "compresseddatasize" in header:
            expect(
                int(header["compresseddatasize"]) == len(data),
                f"CompressedDataSize {header['compresseddatasize']} of {len(data)}",
            )
        data = zlib.decompress(data, wbits=47)
    else:
        skipped = int(header.get("headersize", "0"))
        data = (
            data[len(data) - promised :]
            if skipped == -1
            else data[max(skipped, 0) if where.upper() != "LOCAL" else 0 :]
        )
    expect(len(data) == promised, f"{len(data)} bytes, and {promised} promised")
    voxels = np.frombuffer(data, kind.newbyteorder(">" if big else "<")).reshape(size[::-1])
    steps = header.get("elementspacing", header.get("elementsize"))
    spacing = [float(one) for one in steps.split()] if steps is not None else [1.0] * len(size)
    expect(
        len(spacing) == len(size) and all(math.isfinite(one) and one != 0 for one in spacing), f"spacing {spacing}"
    )
    return Read(voxels.astype(kind), tuple(spacing[::-1]))


def _metaimage_header(content: bytes) -> tuple[dict[str, str], bytes]:
    header: dict[str, str] = {}
    keys: set[str] = set()
    at = 0
    while "elementdatafile" not in header:
        end = content.find(b"\n", at) if b"\n" in content[at:] else len(content)
        expect(at < len(content), "the header has no ElementDataFile")
        line = content[at:end].decode("latin-1")
        at = end + 1
        if not line.strip():
            continue
        key, equals, value = line.partition(min("=:", key=lambda one: line.find(one) % (len(line) + 1)))
        name = SAME.get(key.strip().lower(), key.strip().lower())
        if name in MEANT:
            expect(equals, f"a line without =: {key[:50]}")
            alike = key.strip().lower() not in keys and header.get(name, value.strip()) == value.strip()
            expect(alike, f"{name} is there twice")
            keys.add(key.strip().lower())
        header[name] = value.strip()
    return header, content[at:]


def by_itk(path: Path) -> Read | None:
    """As SimpleITK reads it, which is asked only about what the strict reading above has accepted.

    Nor about long lines: a Name of some hundred letters overruns its memory, and later answers are then wrong.
    """
    if any(len(line) > 200 for line in path.read_bytes()[:1_000_000].split(b"ElementDataFile")[0].splitlines()):
        return None
    try:
        image = sitk.ReadImage(str(path), imageIO="MetaImageIO")
    except RuntimeError:
        return None
    return Read(sitk.GetArrayFromImage(image), image.GetSpacing()[::-1])


def nifti(path: Path) -> Read:
    """Of a NIfTI-1 or -2 file, by its fields' offsets."""
    data = path.read_bytes()
    data = gzip.decompress(data) if path.name.endswith(".gz") else data
    for order in "<>":
        length = int(np.frombuffer(data[:4], f"{order}i4")[0])
        if length in (348, 540):
            break
    expect(length in (348, 540), f"a header of {length} bytes")

    def field(kind: str, first: int, second: int, count: int = 1) -> Any:
        at = first if length == 348 else second
        found = np.frombuffer(data, f"{order}{kind}", count, at)
        return found if count > 1 else found[0]

    one = length == 348
    dim = field("i2" if one else "i8", 40, 16, 8)
    axes = int(dim[0])
    expect(1 <= axes <= 7 and all(dim[1 : 1 + axes] > 0), f"dim {dim}")
    shape = [int(side) for side in dim[1 : 1 + axes]]
    kind = np.dtype(NIFTI_TYPES[int(field("i2", 70, 12))])
    expect(int(field("i2", 72, 14)) in (0, 8 * kind.itemsize), "bitpix is of another datatype")
    offset = int(field("f4" if one else "i8", 108, 168))
    slope, inter = (float(field("f4" if one else "f8", *at)) for at in ((112, 176), (116, 184)))
    expect(len(data) == offset + math.prod(shape) * kind.itemsize, f"{len(data)} bytes of {shape} from {offset}")
    steps = field("f4" if one else "f8", 76, 104, 8)[1 : 1 + axes]
    voxels = np.frombuffer(data, kind.newbyteorder(order), math.prod(shape), offset).reshape(shape[::-1])
    if math.isfinite(slope) and slope != 0 and (slope, inter) != (1.0, 0.0):
        voxels = voxels.astype(np.float64) * slope + (inter if math.isfinite(inter) else 0.0)
    steps = [abs(float(step)) for step in steps[:3]]
    expect(all(math.isfinite(step) and step > 0 for step in steps), f"pixdim {steps}")
    return Read(voxels, tuple(steps[::-1]))


def png(path: Path) -> tuple[np.ndarray, bytes]:
    """Of a PNG, what is stored of each pixel, ``[height, width, samples]``, and the palette."""
    data, at, chunks = path.read_bytes(), 8, []
    expect(data[:8] == b"\x89PNG\r\n\x1a\n", "not PNG")
    while not chunks or chunks[-1][0] != b"IEND":
        length, name = struct.unpack(">I4s", data[at : at + 8])
        body, after = data[at + 8 : at + 8 + length], at + 12 + length
        expect(data[after - 4 : after] == struct.pack(">I", zlib.crc32(name + body)), f"checksum of {name!r}")
        chunks.append((name, body))
        at = after
    width, height, depth, kind, *methods = struct.unpack(">IIBBBBB", chunks[0][1])
    expect(chunks[0][0] == b"IHDR" and methods[:2] == [0, 0] and width * height > 0, "the header")
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]
    raw = zlib.decompress(b"".join(body for name, body in chunks if name == b"IDAT"))
    pixels, at = np.zeros((height, width, samples), np.int64), 0
    for x, y, dx, dy in PNG_PASSES if methods[2] else ((0, 0, 1, 1),):
        columns = len(range(x, width, dx))
        stride = (columns * samples * depth + 7) // 8
        above = bytes(stride)
        for row in range(y, height, dy) if columns else ():
            above = _unfiltered(raw[at], raw[at + 1 : at + 1 + stride], above, max(1, samples * depth // 8))
            at += 1 + stride
            bits = np.unpackbits(np.frombuffer(above, np.uint8))[: columns * samples * depth].reshape(-1, depth)
            pixels[row, x::dx] = (bits @ (1 << np.arange(depth)[::-1])).reshape(columns, samples)
    expect(at == len(raw), f"{len(raw)} bytes of pixels, and {at} are needed")
    return pixels, dict(chunks).get(b"PLTE", b"")


def _unfiltered(how: int, row: bytes, above: bytes, step: int) -> bytes:
    found = bytearray(row)
    for k in range(len(above)):
        left, corner = (found[k - step], above[k - step]) if k >= step else (0, 0)
        guess = left + above[k] - corner
        nearest = min((left, above[k], corner), key=lambda one, guess=guess: abs(guess - one))
        found[k] = (row[k] + (0, left, above[k], (left + above[k]) // 2, nearest)[how]) % 256
    return bytes(found)


def same_volume(found: Any, read: Read) -> str | None:
    """What differs between what the program read and an oracle's reading."""
    voxels = read.voxels
    while voxels.ndim > 3 and voxels.shape[0] == 1:
        voxels = voxels[0]
    if found.voxels.shape != voxels.shape:
        return f"shape {found.voxels.shape}, and it is {voxels.shape}"
    if found.voxels.dtype.kind != voxels.dtype.kind and not np.issubdtype(voxels.dtype, np.floating):
        return f"dtype {found.voxels.dtype}, and it is {voxels.dtype}"
    exact = found.voxels.dtype.newbyteorder("=") == voxels.dtype.newbyteorder("=") and voxels.dtype.kind in "iu"
    if not (
        np.array_equal(found.voxels, voxels) if exact else np.allclose(found.voxels, voxels, rtol=1e-5, atol=1e-30)
    ):
        return f"{int((found.voxels != voxels).sum())} of {voxels.size} voxels differ"
    if not np.allclose(found.spacing, read.spacing[-3:], rtol=1e-5, atol=0):
        return f"spacing {found.spacing}, and it is {read.spacing}"
    if not np.isfinite(found.affine).all():
        return f"affine {found.affine.tolist()}"
    return None
