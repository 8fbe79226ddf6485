"""Zips: the fields of their records by name, their members' names, methods and bytes."""

from __future__ import annotations

import io
import random
import struct
import warnings
import zipfile
from collections.abc import Mapping

from faults.mutations.raw import ODD, mutate_bytes

LOCAL = (
    "version",
    "H",
    "flags",
    "H",
    "method",
    "H",
    "time",
    "H",
    "date",
    "H",
    "crc",
    "I",
    "packed",
    "I",
    "size",
    "I",
    "name",
    "H",
    "extra",
    "H",
)
CENTRAL = ("made", "H", "version", "H", "flags", "H", "method", "H", "time", "H", "date", "H", "crc", "I", "packed", "I", "size", "I", "name", "H", "extra", "H", "comment", "H", "disk", "H", "internal", "H", "external", "I", "offset", "I")  # fmt: skip
END = ("disk", "H", "start", "H", "here", "H", "all", "H", "length", "I", "offset", "I", "comment", "H")
RECORDS = {b"PK\x03\x04": LOCAL, b"PK\x01\x02": CENTRAL, b"PK\x05\x06": END}
NAMES = (
    "../x",
    "/etc/x",
    "..\\x",
    "C:\\x",
    "",
    ".",
    "a\x00b",
    "x" * 300,
    "é.mhd",
    "a/../../b",
    "Case00.mhd/",
    "\x1b[2J.mhd",
    "CON",
    "Case99.mhd",
    "Case00.mhd",
)


def packed(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A valid zip."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), data, method)
    return file.getvalue()


def mutate_zip(rng: random.Random, members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Other members, or a damaged archive of the same ones."""
    if rng.random() < 0.35:
        return _odd_members(rng, members, method)
    data = packed(members, rng.choice((method, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))
    return mutate_records(rng, data)


def mutate_records(rng: random.Random, data: bytes) -> bytes:
    """A few fields of a zip's records, or of its bytes."""
    if rng.random() < 0.25:
        return mutate_bytes(rng, data)
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        kind = rng.choice((b"PK\x03\x04", b"PK\x01\x02", b"PK\x01\x02", b"PK\x05\x06"))
        places = [at for at in range(len(data) - 4) if data[at : at + 4] == kind] if len(data) < 10**6 else []
        if not places:
            continue
        at, fields = rng.choice(places) + 4, RECORDS[kind]
        field = rng.randrange(len(fields) // 2)
        at += struct.calcsize("<" + "".join(fields[1 : 2 * field : 2]))
        form = f"<{fields[2 * field + 1]}"
        if at + struct.calcsize(form) > len(changed):
            continue
        old = struct.unpack_from(form, changed, at)[0]
        new = rng.choice((*ODD, old + 1, old - 1, old ^ 1, old * 2, 8, 9, 12, 14, 20, 45, 63, 99))
        struct.pack_into(form, changed, at, new % 256 ** struct.calcsize(form))
    return bytes(changed)


def _odd_members(rng: random.Random, members: Mapping[str, bytes], method: int) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", method) as archive:
        warnings.simplefilter("ignore")  # names that are there twice are meant
        entries = list(members.items())
        kind = rng.random()
        at = rng.randrange(len(entries))
        if kind < 0.3:
            entries[at] = (rng.choice(NAMES), entries[at][1])
        elif kind < 0.5:
            entries.insert(
                at, (rng.choice((*NAMES, entries[at][0])), rng.choice((b"", b"x", entries[at][1], bytes(10**6))))
            )
        elif kind < 0.6:
            del entries[at]
        elif kind < 0.9:
            entries[at] = (entries[at][0], mutate_bytes(rng, entries[at][1]))
        else:
            rng.shuffle(entries)
        for name, data in entries:
            info = zipfile.ZipInfo("x", (2020, 1, 1, 0, 0, 0))
            info.filename = name
            info.external_attr = rng.choice((0, 0, 0, 0o120777 << 16, 0x10))
            archive.writestr(
                info, data, rng.choice((method, method, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
            )
        if rng.random() < 0.05:
            archive.comment = rng.choice((b"x" * 65535, b"PK\x05\x06" * 10, b"\x00"))
    return file.getvalue()
