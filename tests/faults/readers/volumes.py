"""Volumes: MetaImage in one file or two, NIfTI, compressed or not, PNG."""

from __future__ import annotations

import gzip
import random
import zlib
from pathlib import Path
from typing import Any, ClassVar

import nibabel
import numpy as np
import SimpleITK as sitk  # noqa: N813

from faults import oracles
from faults.mutations.metaimage import MetaImage, mutate_metaimage
from faults.mutations.nifti import mutate_nifti
from faults.mutations.png import made as made_png
from faults.mutations.png import mutate_png
from faults.mutations.raw import mutate_bytes
from faults.reader import Reader
from ringfence.weak.volumes import read_channels, read_volume

SHAPE = (4, 5, 6)


def voxels(kind: str) -> np.ndarray:
    """Numbers that fill the type."""
    return np.random.default_rng(1).integers(0, 100, SHAPE).astype(kind)


def image(kind: str) -> Any:
    """With a place of its own."""
    made = sitk.GetImageFromArray(voxels(kind))
    made.SetSpacing((0.5, 0.75, 3.0))
    made.SetOrigin((-10.0, 20.0, 5.5))
    made.SetDirection((1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0))
    return made


class _MetaImages(Reader):
    inputs: list[tuple[MetaImage, str]]

    @property
    def valid(self) -> int:
        return len(self.inputs)

    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        one, ending = self.inputs[number] if number < self.valid else rng.choice(self.inputs)
        path = folder / f"image{ending}"
        equals, end = " = ", "\n"
        damaged = number >= self.valid and rng.random() >= 0.1
        if damaged:
            one = mutate_metaimage(rng, one)
            if rng.random() < 0.1:
                equals, end = rng.choice(("=", " =", "= ", " : ", "\t=\t")), rng.choice(("\n", "\r\n", "\r"))
        header, data = one.text(equals, end), one.data
        if number >= self.valid and not damaged:
            header = mutate_bytes(rng, header, [other.text() for other, _ in self.inputs])
        if one.beside is None:
            path.write_bytes(header + data)
        else:
            path.write_bytes(header)
            (folder / one.beside).write_bytes(data)
        return path

    def read(self, path: Path) -> Any:
        return read_volume(path)

    def check(self, path: Path, found: Any) -> str | None:
        wrong = oracles.same_volume(found, oracles.metaimage(path))
        other = oracles.by_itk(path) if wrong is None else None
        return wrong or (oracles.same_volume(found, other) if other is not None else None)


class MetaImageFile(_MetaImages):
    """.mha."""

    name: ClassVar[str] = "metaimage"

    def prepare(self, folder: Path) -> None:
        self.inputs = []
        for kind in ("int16", "uint8", "float32", "float64"):
            for packed in (False, True):
                sitk.WriteImage(image(kind), str(folder / "x.mha"), packed)
                self.inputs.append((MetaImage.parsed((folder / "x.mha").read_bytes()), ".mha"))


class MetaImagePair(_MetaImages):
    """.mhd with .raw or .zraw beside it."""

    name: ClassVar[str] = "metaimage-pair"

    def prepare(self, folder: Path) -> None:
        self.inputs = []
        for kind in ("int16", "uint8", "uint16", "int32"):
            for packed, ending in ((False, ".raw"), (True, ".zraw")):
                sitk.WriteImage(image(kind), str(folder / "x.mhd"), packed)
                parsed = MetaImage.parsed((folder / "x.mhd").read_bytes(), (folder / f"x{ending}").read_bytes())
                self.inputs.append((parsed, ".mhd"))


class NiftiFile(Reader):
    """.nii and .nii.gz."""

    name: ClassVar[str] = "nifti"

    def prepare(self, folder: Path) -> None:
        self.inputs = []
        for kind, made in (
            ("int16", nibabel.Nifti1Image),
            ("uint8", nibabel.Nifti1Image),
            ("float32", nibabel.Nifti1Image),
            ("float64", nibabel.Nifti2Image),
        ):
            affine = np.array([[0.5, 0, 0, -10], [0, 0.75, 0, 20], [0, 0, 3, 5], [0, 0, 0, 1.0]])
            one = made(voxels(kind).transpose(), affine)
            one.set_qform(affine)
            self.inputs.append(one.to_bytes())
        scaled = nibabel.Nifti1Image(voxels("int16").transpose(), np.diag([2.0, 2.0, 2.0, 1.0]))
        scaled.header.set_slope_inter(0.5, 3.0)
        data = bytearray(scaled.to_bytes())
        data[112:120] = np.array([0.5, 3.0], "<f4").tobytes()
        self.inputs.append(bytes(data))

    @property
    def valid(self) -> int:
        return 2 * len(self.inputs)

    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        valid = number < self.valid
        data = self.inputs[number // 2] if valid else mutate_nifti(rng, rng.choice(self.inputs), self.inputs)
        packed = bool(number % 2) if valid else rng.random() < 0.4
        path = folder / ("image.nii.gz" if packed else "image.nii")
        if packed:
            data = gzip.compress(data, 1)
            if not valid and rng.random() < 0.3:
                data = rng.choice(
                    (
                        mutate_bytes(rng, data),
                        data + data,
                        data + b"x" * 9,
                        data[: rng.randrange(len(data))],
                        data + gzip.compress(bytes(10**6)),
                        zlib.compress(data),
                    )
                )
        path.write_bytes(data)
        return path

    def read(self, path: Path) -> Any:
        return read_volume(path)

    def check(self, path: Path, found: Any) -> str | None:
        return oracles.same_volume(found, oracles.nifti(path))


class PngFile(Reader):
    """.png, as an image: of every kind and depth, with every filter."""

    name: ClassVar[str] = "png"

    def prepare(self, folder: Path) -> None:
        self.inputs = []
        rng = np.random.default_rng(1)
        for kind, samples, depths in (
            (0, 1, (1, 2, 4, 8, 16)),
            (2, 3, (8,)),
            (3, 1, (2, 8)),
            (4, 2, (8,)),
            (6, 4, (8,)),
        ):
            for depth in depths:
                row = (7 * samples * depth + 7) // 8
                rows = [bytes([how]) + rng.integers(0, 256, row, np.uint8).tobytes() for how in range(5)]
                palette = rng.integers(0, 256, 3 * min(256, 2**depth), np.uint8).tobytes() if kind == 3 else b""
                self.inputs.append(made_png(b"".join(rows), (7, 5), depth, kind, palette=palette))
        passes = [(len(range(x, 7, dx)), len(range(y, 5, dy))) for x, y, dx, dy in oracles.PNG_PASSES]
        rows = [
            bytes([4]) + rng.integers(0, 256, 3 * wide, np.uint8).tobytes()
            for wide, high in passes
            for _ in range(high)
        ]
        self.inputs.append(made_png(b"".join(rows), (7, 5), 8, 2, interlaced=True))

    @property
    def valid(self) -> int:
        return len(self.inputs)

    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        valid = number < self.valid
        data = self.inputs[number] if valid else mutate_png(rng, rng.choice(self.inputs), self.inputs)
        path = folder / "image.png"
        path.write_bytes(data)
        return path

    def read(self, path: Path) -> Any:
        return read_channels([path])

    def check(self, path: Path, found: Any) -> str | None:
        (stored, palette), kind = oracles.png(path), path.read_bytes()[25]
        if kind == 3:
            stored = np.frombuffer(palette, np.uint8).reshape(-1, 3)[stored[..., 0]]
        channels = 1 if kind in (0, 4) else 3
        voxels = np.stack([one.voxels[0] for one in found], axis=-1)
        return None if np.array_equal(voxels, stored[..., :channels]) else "the pixels are others"
