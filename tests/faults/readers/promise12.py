"""The challenge's zip, prepared: what comes out of it must be what comes out of the folder that it unpacks to."""

from __future__ import annotations

import random
import tempfile
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import SimpleITK as sitk  # noqa: N813

from faults.mutations.archives import mutate_zip, packed
from faults.reader import Reader, emptied
from ringfence.weak import prepare


class Promise12(Reader):
    """The zip."""

    name: ClassVar[str] = "promise12-zip"

    def prepare(self, folder: Path) -> None:
        random_ = np.random.default_rng(0)
        self.members: dict[str, bytes] = {}
        for number in (1,):
            mask = np.zeros((2, 8, 8), np.int8)
            mask[:, 2:5, 3:6] = 1
            for stem, voxels in (
                (f"Case{number:02}", random_.integers(0, 900, (2, 8, 8)).astype(np.int16)),
                (f"Case{number:02}_segmentation", mask),
            ):
                sitk.WriteImage(sitk.GetImageFromArray(voxels), str(folder / f"{stem}.mhd"), bool(number))
        for file in sorted(folder.iterdir()):
            self.members[f"train/{file.name}"] = file.read_bytes()
        found = prepare("promise12", folder, folder.parent / "valid-set", size=(8, 8)).prepared
        self.arrays = [found.load(case) for case in found.cases]

    @property
    def valid(self) -> int:
        return 1

    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        path = folder / "promise12.zip"
        path.write_bytes(packed(self.members) if number < self.valid else mutate_zip(rng, self.members))
        return path

    def read(self, path: Path) -> Any:
        return prepare("promise12", path, path.parent / "set", size=(8, 8))

    def check(self, path: Path, found: Any) -> str | None:
        with zipfile.ZipFile(path) as archive:
            members = {
                member.filename: archive.read(member) for member in archive.infolist() if _wanted(member.filename)
            }
        if members.items() >= self.members.items() and len(members) == len(self.members):
            return None if _same(found.prepared, self.arrays) else "other voxels than the valid zip's"
        with tempfile.TemporaryDirectory() as temporary:
            place = emptied(Path(temporary) / "files")
            for name, data in members.items():
                file = place / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
            other = prepare("promise12", place, Path(temporary) / "set", size=(8, 8))
            names = [[case.name for case in one.prepared.cases] for one in (found, other)]
            if names[0] != names[1]:
                return f"the cases {names[0]}, and unpacked {names[1]}"
            arrays = [other.prepared.load(case) for case in other.prepared.cases]
            return None if _same(found.prepared, arrays) else "other voxels than unpacked"


def _same(prepared: Any, arrays: list[Any]) -> bool:
    found = [prepared.load(case) for case in prepared.cases]
    return len(found) == len(arrays) and all(
        np.array_equal(a, b)
        for one, other in zip(found, arrays, strict=True)
        for a, b in zip(one, other, strict=True)
    )


def _wanted(name: str) -> bool:
    """Whether a member can be one of a case's files."""
    return "case" in name.lower() and not name.endswith("/") and len(name) < 200
