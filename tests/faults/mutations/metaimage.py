"""MetaImage: lines ``Key = value`` and the bytes they promise; mutated by lines, by values and by bytes."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, replace

from faults.mutations.raw import mutate_bytes

NUMBERS = (
    "0",
    "-1",
    "1",
    "2",
    "3",
    "6",
    "7",
    "999999999",
    "4294967297",
    "9223372036854775807",
    "1e3",
    "nan",
    "inf",
    "-inf",
    "0x10",
    "1.5",
    "",
    " ",
    "9" * 400,
    "1e-320",
    "1e308",
    "３",
    "1_0",
    "+3",
    "03",
    "3,",
    "3;",
)
WORDS = ("True", "False", "true", "TRUE", "1", "0", "yes", "T", "F", "None", "")
TYPES = (
    "MET_CHAR",
    "MET_UCHAR",
    "MET_SHORT",
    "MET_USHORT",
    "MET_INT",
    "MET_UINT",
    "MET_LONG",
    "MET_ULONG",
    "MET_LONG_LONG",
    "MET_ULONG_LONG",
    "MET_FLOAT",
    "MET_DOUBLE",
    "MET_STRING",
    "MET_OTHER",
    "MET_FLOAT_ARRAY",
    "MET_ASCII_CHAR",
    "MET_NONE",
    "met_short",
    "MET_SHORT ",
)
FILES = (
    "LOCAL",
    "local",
    "LIST",
    "LIST 2",
    "x.raw",
    "x.zraw",
    "%03d.raw 1 2 1",
    "../../secret-canary.txt",
    "/etc/passwd",
    "",
    "missing.raw",
    "image.mhd",
    "x.raw\x00",
    "./x.raw",
    "LOCAL ",
    ".",
    "..",
    "/dev/zero",
)
FIELDS = ("ObjectType", "NDims", "DimSize", "ElementType", "ElementSpacing", "ElementSize", "Offset", "Position", "Origin", "TransformMatrix", "Rotation", "Orientation", "CenterOfRotation", "AnatomicalOrientation", "BinaryData", "BinaryDataByteOrderMSB", "ElementByteOrderMSB", "CompressedData", "CompressedDataSize", "CompressionLevel", "HeaderSize", "ElementNumberOfChannels", "ElementMin", "ElementMax", "Modality", "SequenceID", "ElementDataFile", "Comment", "Name", "ID", "ParentID", "Color", "DistanceUnits", "AcquisitionDate", "ITK_InputFilterName", "ElementToIntensityFunctionSlope", "ElementToIntensityFunctionOffset")  # fmt: skip


@dataclass(frozen=True)
class MetaImage:
    """Its lines and its data; the data are in ``beside``, or follow the header."""

    lines: tuple[tuple[str, str], ...]
    data: bytes
    beside: str | None = None

    @classmethod
    def parsed(cls, header: bytes, data: bytes | None = None) -> MetaImage:
        """Of a valid file."""
        lines: list[tuple[str, str]] = []
        at = 0
        while not lines or lines[-1][0] != "ElementDataFile":
            end = header.index(b"\n", at)
            key, _, value = header[at:end].decode().partition("=")
            lines.append((key.strip(), value.strip()))
            at = end + 1
        return cls(tuple(lines), header[at:] if data is None else data, None if data is None else lines[-1][1])

    def text(self, equals: str = " = ", end: str = "\n") -> bytes:
        """The header."""
        return "".join(f"{key}{equals}{value}{end}" for key, value in self.lines).encode("utf-8", "surrogatepass")


def mutate_metaimage(rng: random.Random, image: MetaImage) -> MetaImage:
    """Another header, or other data."""
    kind = rng.random()
    if kind < 0.2:
        return _other_data(rng, image)
    lines = list(image.lines)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at, what = rng.randrange(len(lines)), rng.random()
        if what < 0.5:
            lines[at] = (lines[at][0], _value(rng, *lines[at]))
        elif what < 0.6:
            del lines[at]
        elif what < 0.75:
            lines.insert(
                rng.randrange(len(lines) + 1),
                (lines[at][0], _value(rng, *lines[at]) if rng.random() < 0.7 else lines[at][1]),
            )
        elif what < 0.85:
            key = rng.choice(FIELDS)
            lines.insert(rng.randrange(len(lines) + 1), (key, _value(rng, key, "1 1 1")))
        elif what < 0.9:
            rng.shuffle(lines)
        elif what < 0.95:
            lines[at] = (
                rng.choice(
                    (
                        lines[at][0].lower(),
                        lines[at][0].upper(),
                        f" {lines[at][0]}",
                        f"{lines[at][0]}x",
                        "",
                        "a" * 5000,
                    )
                ),
                lines[at][1],
            )
        else:
            lines[at] = (
                lines[at][0],
                lines[at][1]
                + rng.choice(
                    ("\nNDims = 2", "\r", "\x00", " # no", "=", "\n\n", "\x1b[2J", "é", " 1", "\nDimSize = 1 1 1")
                ),
            )
        if not lines:
            break
    return replace(image, lines=tuple(lines))


def _value(rng: random.Random, key: str, before: str) -> str:
    numbers = before.split()
    if key == "ElementType":
        return rng.choice(TYPES)
    if key == "ElementDataFile":
        return rng.choice(FILES)
    if before in ("True", "False"):
        return rng.choice(WORDS)
    if not numbers:
        return rng.choice(NUMBERS)
    kind = rng.random()
    if kind < 0.5:
        numbers[rng.randrange(len(numbers))] = rng.choice(NUMBERS)
    elif kind < 0.6:
        del numbers[rng.randrange(len(numbers))]
    elif kind < 0.7:
        numbers.append(rng.choice(NUMBERS))
    elif kind < 0.8:
        rng.shuffle(numbers)
    elif kind < 0.9:
        at = rng.randrange(len(numbers))
        if numbers[at].lstrip("-").isdigit():
            numbers[at] = str(int(numbers[at]) + rng.choice((-1, 1, 2, -2)))
        else:
            numbers[at] = rng.choice(NUMBERS)
    else:
        return rng.choice(
            ("", before * 2, before.replace(" ", ","), before.replace(" ", "\t"), before + " " + before, *WORDS)
        )
    return " ".join(numbers)


def _other_data(rng: random.Random, image: MetaImage) -> MetaImage:
    kind = rng.random()
    if kind < 0.4:
        return replace(image, data=mutate_bytes(rng, image.data))
    if kind < 0.5:
        return replace(image, data=zlib.compress(image.data))
    if kind < 0.6:
        return replace(image, data=zlib.compress(rng.randbytes(rng.choice((0, 1, 239, 240, 241, 480)))))
    if kind < 0.7:
        return replace(image, data=image.data * 2)
    if kind < 0.8:
        return replace(image, data=zlib.compress(bytes(10**6)))
    if kind < 0.9:
        return replace(image, data=image.data[: rng.randrange(len(image.data) + 1)])
    return replace(image, data=image.data + rng.randbytes(rng.choice((1, 2, 16, 240))))
