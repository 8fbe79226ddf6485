"""The text that begins a MetaImage, read strictly: each field once, in its own spelling, and only what it can be.

Where two readings of a header are possible it is refused, since other programs may choose the other one. Fields
that say nothing about the voxels or their place are passed over.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Final

import numpy as np

from ringfence.hints import nearest
from ringfence.weak.volumes.content import Content
from ringfence.weak.volumes.geometry import check_spacing

LONGEST, LINE = 1_000_000, 1 << 16
"""Bytes of a header and of one of its lines, at most."""
AXES: Final = 10
NAME: Final = 255
"""Letters of a file's name, at most."""
LOCAL: Final = "LOCAL"
KINDS: Final = {
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
SYNONYMS: Final = {
    "Position": "Offset",
    "Origin": "Offset",
    "Rotation": "TransformMatrix",
    "Orientation": "TransformMatrix",
    "ElementByteOrderMSB": "BinaryDataByteOrderMSB",
}
LISTS: Final = (
    *("DimSize", "Offset", "TransformMatrix", "ElementSpacing", "ElementSize", "CenterOfRotation", "SequenceID"),
)
"""Fields of as many numbers as there are axes, or more: ITK refuses those that come before NDims."""
UNUSED: Final = {"ID": 1, "ParentID": 1, "ElementMin": 1, "ElementMax": 1, "Color": 4, "SequenceID": 0}
"""Fields that do not matter here, and how many numbers they have (0: one an axis). Of too few, ITK takes the next
line's."""
REQUIRED: Final = ("NDims", "DimSize", "ElementType", "ElementDataFile")
KNOWN: Final = {
    *REQUIRED,
    *LISTS,
    *SYNONYMS,
    "BinaryDataByteOrderMSB",
    "ObjectType",
    "BinaryData",
    "CompressedData",
    "CompressedDataSize",
    "HeaderSize",
    "ElementNumberOfChannels",
    "DistanceUnits",
    "ElementToIntensityFunctionSlope",
    "ElementToIntensityFunctionOffset",
    *UNUSED,
}
OTHERS: Final = {"AnatomicalOrientation", "CompressionLevel", "HeaderSizePerSlice", "ElementNBits", "ObjectSubType"}
"""More fields of MetaImage, which say nothing here."""
ALIKE: Final = 0.85
"""From there on, a name is taken for a misspelling of a field's."""
_SPELLED: Final = {key.lower(): key for key in KNOWN}
_SEPARATOR: Final = re.compile("[=:]")
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_WORDS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
UNIT: Final = 0.01
"""What an axis may be longer or shorter than 1: headers are rounded."""


@dataclass(frozen=True)
class Header:
    """What it says.

    Attributes:
        sizes: voxels along x, y, ...
        channels: numbers of each voxel.
        kind: of each number, with the order of its bytes.
        spacing: millimetres along x, y, ...
        origin: of the first voxel, in millimetres.
        axes: the direction of x, of y, ...; each a unit vector.
        data: the file of the voxels, or LOCAL.
        skipped: bytes before them; -1: as many as there are.
        packed: bytes that the voxels take, compressed; None if they are not.
    """

    sizes: tuple[int, ...]
    channels: int
    kind: np.dtype[np.generic]
    spacing: tuple[float, ...]
    origin: tuple[float, ...]
    axes: tuple[tuple[float, ...], ...]
    data: str
    skipped: int
    packed: int | None

    @property
    def bytes(self) -> int:
        """Of the voxels, not compressed."""
        return math.prod(self.sizes) * self.channels * self.kind.itemsize


def read_header(content: Content) -> Header:
    """Read it from the beginning; what cannot be used is refused with the field."""
    fields = _fields(content)
    for key in REQUIRED:
        if key not in fields:
            raise ValueError(f"its header has no {key}")
    count = _whole(fields, "NDims", 1, AXES)
    sizes = _wholes(fields, "DimSize", count)
    kind = fields["ElementType"]
    if kind not in KINDS:
        raise ValueError(f"its header has ElementType {kind}; {', '.join(KINDS)} are read")
    order = ">" if _yes(fields, "BinaryDataByteOrderMSB", False) else "<"
    step = "ElementSpacing" if "ElementSpacing" in fields else "ElementSize"
    spacing = _numbers(fields, step, (1.0,) * count)
    check_spacing(spacing, step)
    for unused, wanted in {"ElementSize": 0, "CenterOfRotation": 0, **UNUSED}.items():
        _numbers(fields, unused, (0.0,) * (wanted or count))
    _check_meaning(fields)
    packed = None
    if _yes(fields, "CompressedData", False):
        if "CompressedDataSize" not in fields:
            raise ValueError("its header has CompressedData True, and no CompressedDataSize: save it again")
        packed = _whole(fields, "CompressedDataSize", 1, 10**18)
    return Header(
        sizes=sizes,
        channels=_whole(fields, "ElementNumberOfChannels", 1, 10**6, default=1),
        kind=np.dtype(order + KINDS[kind]),
        spacing=spacing,
        origin=_numbers(fields, "Offset", (0.0,) * count),
        axes=_axes(fields, count),
        data=data_name(fields["ElementDataFile"]),
        skipped=_whole(fields, "HeaderSize", -1, 10**18, default=0),
        packed=packed,
    )


def data_name(name: str) -> str:
    """The name of a data file, or LOCAL; one elsewhere, or one that stands for several, is refused."""
    if name.upper() == LOCAL:
        return LOCAL
    if name.startswith("LIST") or "%" in name:
        raise ValueError(f"its data are in several files ({name[:40]}): save it as one")
    text = name.isprintable() and "\ufffd" not in name and name == name.strip()
    if not text or len(name) > NAME or name in ("", ".", ".."):
        raise ValueError(f"its data file has a name that cannot be used ({name[:40]!a}): rename it")
    if PureWindowsPath(name).name != name:  # it knows both kinds of slash
        raise ValueError(f"its data file should be beside it; the header names {name[:80]}")
    return name


def _fields(content: Content) -> dict[str, str]:
    """The known fields to the one that says where the data are, by the names that this module uses."""
    fields: dict[str, str] = {}
    found: set[str] = set()
    while "ElementDataFile" not in fields and (line := content.line(LINE)):
        if content.position > LONGEST or (len(line) == LINE and not line.endswith(b"\n")):
            raise ValueError(f"its header has more than {LONGEST:,} bytes, or {LINE:,} in a line: it is none")
        key, value = _field(line.decode("utf-8", "replace").strip(" \t\r\n"))
        if key not in KNOWN:
            continue
        name = SYNONYMS.get(key, key)
        if key in found:
            raise ValueError(f"its header has {key} twice")
        if fields.get(name, value) != value:
            raise ValueError(f"its header has {key} {value[:80]}, and by another name {fields[name][:80]}")
        if not value:
            raise ValueError(f"its header has {key} without a value")
        if name in LISTS and "NDims" not in fields:
            raise ValueError(f"its header has {key} before NDims, or no NDims")
        found.add(key)
        fields[name] = value
    if fields.get("ElementDataFile", LOCAL).upper() != LOCAL and content.read(LONGEST).strip():
        raise ValueError("its header has lines after ElementDataFile, which should be the last")
    return fields


def _field(text: str) -> tuple[str, str]:
    """The name and the value of a line, which may be empty; ITK takes a colon as well."""
    if any(ord(one) < ord(" ") and one != "\t" for one in text):
        raise ValueError(f"its header is not text: {text[:40]!a}")
    parts = _SEPARATOR.split(text, maxsplit=1)
    if text and len(parts) < 2:
        raise ValueError(f"its header has the line {text[:40]!a}, which is not 'Field = value'")
    key, value = parts[0].strip(), parts[-1].strip()
    if key not in KNOWN and key.lower() in _SPELLED:
        raise ValueError(f"its header has {key}, which should be spelled {_SPELLED[key.lower()]}")
    if key not in KNOWN | OTHERS and (near := nearest(key, KNOWN, ALIKE)):  # a damaged letter would lose the field
        raise ValueError(f"its header has {key[:80]!a}: is {near} meant?")
    return key, value


def _check_meaning(fields: Mapping[str, str]) -> None:
    """Refuse what would make the numbers something else than voxels in millimetres."""
    for key, wanted in (
        ("ObjectType", ("Image",)),
        ("DistanceUnits", ("mm", "?")),
    ):
        if fields.get(key, wanted[0]) not in wanted:
            raise ValueError(f"its header has {key} {fields[key]}; only {wanted[0]} is read")
    if not _yes(fields, "BinaryData", True):
        raise ValueError("its header has BinaryData False: voxels written as text are not read, save it as binary")
    for key, same in (("ElementToIntensityFunctionSlope", 1.0), ("ElementToIntensityFunctionOffset", 0.0)):
        if _numbers(fields, key, (same,)) != (same,):
            raise ValueError(f"its header has {key} {fields[key]}: save it with its values as they are meant")


def _axes(fields: Mapping[str, str], count: int) -> tuple[tuple[float, ...], ...]:
    matrix = np.reshape(_numbers(fields, "TransformMatrix", tuple(np.eye(count).ravel())), (count, count))
    lengths = np.sqrt((matrix**2).sum(axis=1)) if np.abs(matrix).max() < 2 else np.zeros(1)
    if np.abs(lengths - 1).max() > UNIT or abs(np.linalg.det(matrix)) < UNIT:
        raise ValueError(
            f"its header has TransformMatrix {fields['TransformMatrix']}; it should be {count} axes of length 1 "
            "that do not lie in one plane"
        )
    return tuple(tuple(float(value) for value in axis) for axis in matrix)


def _whole(fields: Mapping[str, str], key: str, least: int, most: int, default: int | None = None) -> int:
    text = fields.get(key, str(default))
    if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
        raise ValueError(f"its header has {key} {text[:40]}; it should be a whole number from {least} to {most}")
    return int(text)


def _wholes(fields: Mapping[str, str], key: str, count: int) -> tuple[int, ...]:
    parts = fields[key].split()
    if len(parts) != count or not all(_WHOLE.fullmatch(part) and int(part) > 0 for part in parts):
        raise ValueError(f"its header has NDims {count}, {key} {fields[key][:80]}")
    return tuple(map(int, parts))


def _numbers(fields: Mapping[str, str], key: str, default: tuple[float, ...]) -> tuple[float, ...]:
    if key not in fields:
        return default
    parts = fields[key].split()
    if len(parts) != len(default) or not all(_NUMBER.fullmatch(part) for part in parts):
        raise ValueError(f"its header has {key} {fields[key][:80]}; it should be {len(default)} numbers")
    numbers = tuple(map(float, parts))
    if not np.isfinite(numbers).all():
        raise ValueError(f"its header has {key} {fields[key][:80]}, which is not finite")
    return numbers


def _yes(fields: Mapping[str, str], key: str, default: bool) -> bool:
    word = fields.get(key, str(default)).lower()
    if word not in _WORDS:
        raise ValueError(f"its header has {key} {fields[key][:40]}; it should be True or False")
    return _WORDS[word]
