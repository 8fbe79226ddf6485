"""Small files that stand for gigabytes, each read by its command with RINGFENCE_MEMORY=500MB."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import torch

from faults.commands import TINY, made_inputs
from faults.kills import note
from faults.trials import Child, removed, spread

LIMIT, SPARE, SECONDS = 500, 100, 30
"""MB allowed, MB for everything else, and how long a refusal may take."""
SIZE = 1200 * 10**6
"""Bytes of most of them, once unpacked; a smaller limit makes smaller bombs."""
Bomb = Callable[[Path, Path], list[str]]
"""Writes its files into a folder, given the inputs; the command that reads them."""


def _zeros(count: int) -> bytes:
    """So many zeros, compressed by zlib."""
    packer = zlib.compressobj(9)
    chunk = bytes(10**6)
    return b"".join(packer.compress(chunk) for _ in range(count // 10**6)) + packer.flush()


def _metaimage(size: str, data: bytes, folder: Path, *, length: int | None = None) -> list[str]:
    lines = [
        "ObjectType = Image",
        "NDims = 3",
        f"DimSize = {size}",
        "ElementType = MET_UCHAR",
        "ElementSpacing = 1 1 2",
        "CompressedData = True",
        f"CompressedDataSize = {length or len(data)}",
        "ElementDataFile = x.zraw",
    ]
    (folder / "x.mhd").write_text("\n".join(lines) + "\n")
    (folder / "x.zraw").write_bytes(data)
    return ["evaluate", str(folder / "x.mhd"), str(folder / "x.mhd")]


def zraw_promised(folder: Path, inputs: Path) -> list[str]:
    """1.2 GB, as the header says."""
    return _metaimage(f"1000 1000 {SIZE // 10**6}", _zeros(SIZE), folder)


def zraw_hidden(folder: Path, inputs: Path) -> list[str]:
    """1.2 GB, and the header says 120 bytes."""
    return _metaimage("4 5 6", _zeros(SIZE), folder)


def nifti_promised(folder: Path, inputs: Path) -> list[str]:
    """1.2 GB, as the header says."""
    header = nibabel.Nifti1Header()
    header.set_data_shape((1000, 1000, SIZE // 10**6))
    header.set_data_dtype(np.uint8)
    header["vox_offset"], header["magic"] = 352, b"n+1"
    return _gz(folder, header.binaryblock + bytes(4), SIZE)


def nifti_hidden(folder: Path, inputs: Path) -> list[str]:
    """1.2 GB behind the voxels."""
    image = nibabel.Nifti1Image(np.zeros((4, 5, 6), np.uint8), np.eye(4))
    return _gz(folder, image.to_bytes(), SIZE)


def _gz(folder: Path, begin: bytes, zeros: int) -> list[str]:
    file, chunk = io.BytesIO(), bytes(10**7)
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=9) as packer:
        packer.write(begin)
        for _ in range(zeros // 10**7):
            packer.write(chunk)
    (folder / "x.nii.gz").write_bytes(file.getvalue())
    return ["evaluate", str(folder / "x.nii.gz"), str(folder / "x.nii.gz")]


def _big_member(archive: zipfile.ZipFile, name: str, begin: bytes, zeros: int) -> None:
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    with archive.open(info, "w", force_zip64=True) as member:
        member.write(begin)
        for _ in range(zeros // 10**7):
            member.write(bytes(10**7))


def npz(folder: Path, inputs: Path) -> list[str]:
    """A case of 1.2 GB in a set whose manifest knows its checksum, and promises as much."""
    return _npz(folder, inputs, (SIZE // 10**6, 1, 1000, 1000), promised=True)


def npz_hidden(folder: Path, inputs: Path) -> list[str]:
    """A case of 1.2 GB, and the manifest promises three slices."""
    return _npz(folder, inputs, (SIZE // 10**6, 1, 1000, 1000), promised=False)


def _npz(folder: Path, inputs: Path, shape: tuple[int, ...], *, promised: bool) -> list[str]:
    facts = json.loads((inputs / "set" / "manifest.json").read_text())
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(folder / "case0.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.compresslevel = 9
        _big_member(archive, "image.npy", header.getvalue(), int(np.prod(shape)))
        _big_member(archive, "mask.npy", header.getvalue(), 0)
    for case in facts["cases"]:
        if case["file"] != "case0.npz":
            (folder / case["file"]).write_bytes((inputs / "set" / case["file"]).read_bytes())
    facts["cases"][0]["sha256"] = hashlib.sha256((folder / "case0.npz").read_bytes()).hexdigest()
    if promised:
        facts["cases"][0]["shape"] = [shape[0], 1000, 1000]
        facts["preprocessing"]["size"] = [1000, 1000]
    (folder / "manifest.json").write_text(json.dumps(facts))
    return ["train", "boxes-small", "--data.prepared", str(folder), "--out", str(folder / "run"), *TINY]


def archive_member(folder: Path, inputs: Path) -> list[str]:
    """PROMISE12's zip with a data file of 1.2 GB."""
    with (
        zipfile.ZipFile(inputs / "promise12.zip") as source,
        zipfile.ZipFile(folder / "p.zip", "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in source.namelist():
            if name.endswith("Case00.zraw"):
                _big_member(archive, name, b"", SIZE)
            else:
                archive.writestr(name, source.read(name))
    return ["prepare", "promise12", str(folder / "p.zip"), str(folder / "out"), "--size", "16", "16"]


def archive_promised(folder: Path, inputs: Path) -> list[str]:
    """PROMISE12's zip with a volume of 1.2 GB, as its header says."""
    with (
        zipfile.ZipFile(inputs / "promise12.zip") as source,
        zipfile.ZipFile(folder / "p.zip", "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in source.namelist():
            if name.endswith("Case00.mhd"):
                lines = [
                    "ObjectType = Image",
                    "NDims = 3",
                    f"DimSize = 1000 1000 {SIZE // 10**6}",
                    "ElementType = MET_UCHAR",
                    "ElementSpacing = 1 1 2",
                    "ElementDataFile = Case00.raw",
                ]
                archive.writestr(name, "\n".join(lines) + "\n")
                _big_member(archive, name.replace(".mhd", ".raw"), b"", SIZE)
            elif not name.endswith("Case00.zraw"):
                archive.writestr(name, source.read(name))
    return ["prepare", "promise12", str(folder / "p.zip"), str(folder / "out"), "--size", "16", "16"]


def archive_names(folder: Path, inputs: Path) -> list[str]:
    """A zip whose directory lists one member half a million times."""
    name = b"Case00.mhd"
    local = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0) + name
    entry = (
        struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0, 0, 0, 0, 0, 0) + name
    )
    count = 500_000
    end = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, count * len(entry), len(local))
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, len(local) + count * len(entry), 1)
    last = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    (folder / "p.zip").write_bytes(local + entry * count + end + locator + last)
    return ["prepare", "promise12", str(folder / "p.zip"), str(folder / "out"), "--size", "16", "16"]


def yaml_aliases(folder: Path, inputs: Path) -> list[str]:
    """A few lines that stand for a billion values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"] + [
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)
    ]
    (folder / "x.yaml").write_text("\n".join([*lines, "constraints: *a8"]) + "\n")
    return ["train", str(folder / "x.yaml"), "--data.prepared", str(inputs / "set"), "--out", str(folder / "run")]


def deep_json(folder: Path, inputs: Path) -> list[str]:
    """A million lists within lists."""
    (folder / "boxes.json").write_text("[" * 10**6 + "]" * 10**6)
    return [
        "train",
        "boxes-small",
        "--data.prepared",
        str(inputs / "set"),
        "--data.boxes",
        str(folder / "boxes.json"),
        "--out",
        str(folder / "run"),
        *TINY,
    ]


def deep_yaml(folder: Path, inputs: Path) -> list[str]:
    """A hundred thousand lists within lists."""
    (folder / "x.yaml").write_text("methods: " + "[" * 10**5 + "]" * 10**5)
    return ["train", str(folder / "x.yaml"), "--data.prepared", str(inputs / "set"), "--out", str(folder / "run")]


def _model(
    folder: Path, inputs: Path, change: Callable[[dict[str, Any]], None], header: Callable[[bytes], bytes] = bytes
) -> list[str]:
    """The model with another card."""
    file = next(one for one in (inputs / "model").iterdir() if one.name.startswith("model."))
    if file.suffix == ".pt":
        kept = torch.load(file, weights_only=True)
        change(kept["card"])
        torch.save(kept, folder / file.name)
    else:
        data = file.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        facts = json.loads(data[8 : 8 + length])
        card = json.loads(facts["__metadata__"]["card"])
        change(card)
        facts["__metadata__"]["card"] = json.dumps(card)
        text = header(json.dumps(facts).encode())
        (folder / file.name).write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
    return ["predict", str(folder / file.name), str(inputs / "metaimage"), str(folder / "masks")]


def card_size(folder: Path, inputs: Path) -> list[str]:
    """A model that resizes slices to 30,000 × 30,000."""
    return _model(folder, inputs, lambda card: card["preprocessing"].update(size=[30000, 30000]))


def card_network(folder: Path, inputs: Path) -> list[str]:
    """A model whose network has billions of weights."""
    return _model(
        folder,
        inputs,
        lambda card: card.update(
            class_path="monai.networks.nets.BasicUNet",
            init_args={"spatial_dims": 2, "in_channels": 1, "out_channels": 2, "features": [30000] * 6},
        ),
    )


def card_patch(folder: Path, inputs: Path) -> list[str]:
    """A model of patches of a terabyte."""
    return _model(folder, inputs, lambda card: card.update(patch=[10000, 10000, 10000]))


def wide_header(folder: Path, inputs: Path) -> list[str]:
    """A model whose header is mostly blanks."""
    return _model(folder, inputs, lambda card: None, lambda text: text + b" " * (SIZE // 2))


BOMBS: dict[str, Bomb] = {
    ".zraw as promised": zraw_promised,
    ".zraw, hidden": zraw_hidden,
    ".nii.gz as promised": nifti_promised,
    ".nii.gz, hidden": nifti_hidden,
    ".npz as promised": npz,
    ".npz, hidden": npz_hidden,
    "zip: a member": archive_member,
    "zip: a member as promised": archive_promised,
    "zip: half a million names": archive_names,
    "YAML: aliases": yaml_aliases,
    "YAML: depth": deep_yaml,
    "JSON: depth": deep_json,
    "model: size of slices": card_size,
    "model: network": card_network,
    "model: patch": card_patch,
    "model: header": wide_header,
}


def run(
    names: Sequence[str], folder: Path, kept: Path, *, seed: int, count: int | None, jobs: int
) -> Iterator[tuple[str, dict[str, Any], float]]:
    """Each bomb's counts, and the seconds they took; ``count`` is the limit in MB, if it is another."""
    global LIMIT, SIZE
    LIMIT = count or LIMIT
    SIZE = LIMIT * 24 // 10 * 10**6
    inputs = made_inputs(folder.parent / "inputs")
    for name in names or BOMBS:
        began = time.monotonic()
        counts, faults = dropped(name, folder, inputs)
        note(kept, "bombs", name, faults)
        yield name, counts, time.monotonic() - began


def dropped(name: str, folder: Path, inputs: Path) -> tuple[dict[str, Any], list[str]]:
    """One bomb; it is made in a process of its own, too."""
    place = folder / "bomb" / str(list(BOMBS).index(name))
    place.mkdir(parents=True)
    ((arguments),) = (
        one["arguments"] for one in spread([name], lambda one: {"arguments": BOMBS[one](place, inputs)}, 1)
    )
    child = Child(arguments, place, environment={"RINGFENCE_MEMORY": f"{LIMIT}MB"}, memory=4 * 10**9).start()
    began = time.monotonic()
    ended = child.wait(3 * SECONDS)
    took = time.monotonic() - began
    over = ended.peak > LIMIT + SPARE or ended.status == -9
    unclear = ended.status == 0 or ended.fault or took > SECONDS
    what = f"{name}: status {ended.status} in {took:.1f} s, {ended.peak:.0f} MB: {ended.output[-600:]}"
    size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
    counts = {
        "tries": 1,
        "over the limit": int(over),
        "unclear": int(bool(unclear) and ended.status != -9),
        "peak MB": round(ended.peak),
        "file bytes": size,
        "says": _line(ended.output),
    }
    removed(place)
    return counts, [what] if over or unclear else []


def _line(output: str) -> str:
    """What a command said last, without where."""
    return re.sub(r"/\S*/", "", output.strip().splitlines()[-1])[:200] if output.strip() else ""
