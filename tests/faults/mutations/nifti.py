"""NIfTI: the header's fields by name, in either byte order; extensions, and the bytes behind."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from nibabel.nifti1 import header_dtype as first
from nibabel.nifti2 import header_dtype as second

from faults.mutations.raw import ODD, mutate_bytes

NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    4,
    7,
    8,
    16,
    64,
    128,
    255,
    256,
    348,
    352,
    540,
    768,
    32767,
    -32768,
    2**31 - 1,
    -(2**31),
    2**62,
)
FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    float("nan"),
    float("inf"),
    -float("inf"),
    1e30,
    1e-30,
    352.0,
    351.5,
    1e38,
    -352.0,
    4e9,
)
OFTEN = (
    "dim",
    "dim",
    "datatype",
    "bitpix",
    "pixdim",
    "pixdim",
    "vox_offset",
    "scl_slope",
    "scl_inter",
    "sizeof_hdr",
    "magic",
    "sform_code",
    "qform_code",
    "srow_x",
    "quatern_b",
    "qoffset_x",
    "xyzt_units",
)


def mutate_nifti(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Another header, or other bytes."""
    kind = rng.random()
    if kind < 0.2:
        return mutate_bytes(rng, data, others)
    dtype = first if data[0] == 92 else second  # 348 or 540
    header = np.frombuffer(data[: dtype.itemsize], dtype.newbyteorder("<")).copy()
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        name = rng.choice(OFTEN) if rng.random() < 0.7 else rng.choice(dtype.names)
        _change(rng, header, name)
    behind = data[dtype.itemsize :]
    if rng.random() < 0.1:
        header = header.byteswap().view(dtype.newbyteorder(">"))
    if rng.random() < 0.1:
        behind = rng.choice(
            (
                behind[: rng.randrange(len(behind))],
                behind + bytes(16),
                b"\x01" + behind[1:],
                b"\x01\0\0\0" + _extension(rng) + behind[4:],
            )
        )
    return header.tobytes() + behind


def _change(rng: random.Random, header: np.ndarray, name: str) -> None:
    field = header[name]
    kind = field.dtype.kind
    with np.errstate(all="ignore"):
        if kind == "S":
            header[name] = rng.choice((b"", b"n+1", b"ni1", b"n+2", b"\xff" * 8, b"\x00" * 8))
            return
        if kind == "f":
            value = rng.choice((*FLOATS, float(header[name].flat[0]) * 2))
        else:
            value = rng.choice((*NUMBERS, *ODD, int(header[name].flat[0]) + rng.choice((-1, 1))))
            bits = np.iinfo(field.dtype)
            value = (value - bits.min) % (bits.max - bits.min + 1) + bits.min
        if field.ndim > 1:
            header[name][0, rng.randrange(min(field.size, 5))] = value
        else:
            header[name] = value


def _extension(rng: random.Random) -> bytes:
    size = rng.choice((0, 8, 16, 17, 2**31 - 1, -1, 1024))
    return np.array([size, rng.choice((0, 2, 4, 6, 999))], "<i4").tobytes() + b"x" * 8
