"""Prepared sets: manifest.json, a case's arrays, and sources.json of a folder that is being prepared."""

from __future__ import annotations

import hashlib
import io
import json
import math
import random
import shutil
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import nibabel
import numpy as np

from faults.mutations.archives import mutate_zip, packed
from faults.mutations.raw import mutate_bytes
from faults.mutations.trees import hostile, mutate_tree, to_json
from faults.reader import Reader, expect
from prepared_sets import make_prepared
from ringfence.weak import prepare, read_prepared


class Manifest(Reader):
    """manifest.json; what is accepted is what it says, and of the types it should be."""

    name: ClassVar[str] = "manifest"

    def prepare(self, folder: Path) -> None:
        make_prepared(folder, cases=2, shape=(2, 8, 8), channels=2, classes=2)
        self.facts = json.loads((folder / "manifest.json").read_text())

    @property
    def valid(self) -> int:
        return 1

    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        path = folder / "manifest.json"
        path.write_bytes(
            json.dumps(self.facts).encode() if number < self.valid else to_json(rng, mutate_tree(rng, self.facts))
        )
        return path

    def read(self, path: Path) -> Any:
        return read_prepared(path.parent)

    def check(self, path: Path, found: Any) -> str | None:
        said = json.loads(path.read_bytes().decode("utf-8-sig"))
        for name in ("name", "channels", "classes"):
            value = getattr(found, name)
            expect(
                (list(value) if isinstance(value, tuple) else value) == said[name],
                f"{name} {value}, and it says {said[name]}",
            )
        expect(
            list(found.size) == (said["preprocessing"]["size"] if "preprocessing" in said else said["size"]),
            f"size {found.size}",
        )
        expect(all(type(side) is int and 0 < side < 10**6 for side in found.size), f"size {found.size}")
        expect(len(found.cases) == len(said["cases"]), "other cases")
        for case, facts in zip(found.cases, said["cases"], strict=True):
            for name in ("name", "split", "file", "sha256", "masked"):
                expect(
                    getattr(case, name) == facts[name] and type(getattr(case, name)) is type(facts[name]),
                    f"{name} {facts[name]!r} read as {getattr(case, name)!r}",
                )
            expect(
                list(case.shape) == facts["shape"] and all(type(one) is int and one > 0 for one in facts["shape"]),
                f"shape {facts['shape']}",
            )
            expect(
                (case.spacing and list(case.spacing)) == (facts["spacing"] and list(map(float, facts["spacing"]))),
                f"spacing {facts['spacing']}",
            )
            expect(
                case.spacing is None or all(0 < step < math.inf for step in case.spacing), f"spacing {case.spacing}"
            )
            expect(Path(case.file).name == case.file and case.file not in (".", ".."), f"file {case.file}")
        return None


class CaseFile(Reader):
    """A case's .npz, with a manifest whose checksum is right half of the time: a hostile set's would be."""

    name: ClassVar[str] = "case-npz"

    def prepare(self, folder: Path) -> None:
        make_prepared(folder, cases=2, shape=(2, 8, 8))
        self.facts = json.loads((folder / "manifest.json").read_text())
        with np.load(folder / "case0.npz") as arrays:
            self.arrays = {name: arrays[name] for name in ("image", "mask")}
        self.members = {f"{name}.npy": _npy(array) for name, array in self.arrays.items()}

    @property
    def valid(self) -> int:
        return 1

    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        path, facts = folder / "case0.npz", json.loads(json.dumps(self.facts))
        data = packed(self.members) if number < self.valid else self._damaged(rng)
        path.write_bytes(data)
        if number < self.valid or rng.random() < 0.8:
            facts["cases"][0]["sha256"] = hashlib.sha256(data).hexdigest()
        (folder / "manifest.json").write_text(json.dumps(facts))
        return path

    def _damaged(self, rng: random.Random) -> bytes:
        kind = rng.random()
        if kind < 0.4:
            return mutate_zip(rng, self.members)
        name = rng.choice(list(self.members))
        array, member = self.arrays[name.removesuffix(".npy")], self.members[name]
        if kind < 0.6:
            member = _npy_header(rng, member)
        elif kind < 0.7:
            member = mutate_bytes(rng, member)
        else:
            types = (
                "uint16",
                "float32",
                "complex64",
                "bool",
                "int8",
                ">u2",
                "U3",
                "S2",
                "object",
                "M8[s]",
                "float16",
                "u1,u1",
            )
            other = rng.choice(
                (
                    array.astype(rng.choice(types[:6])),
                    array[:1],
                    array[None],
                    array.T,
                    np.zeros(0, np.uint8),
                    np.uint8(3),
                    np.full(array.shape, np.nan),
                    np.full(array.shape, 200, np.uint8),
                    np.asfortranarray(array),
                    np.array(["a"]),
                    np.array([None]),
                    array.astype("M8[s]"),
                )
            )
            member = _npy(other)
        return packed({**self.members, name: member}, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))

    def read(self, path: Path) -> Any:
        prepared = read_prepared(path.parent)
        return prepared.load(prepared.cases[0])

    def check(self, path: Path, found: Any) -> str | None:
        said = json.loads((path.parent / "manifest.json").read_text())["cases"][0]["sha256"]
        expect(hashlib.sha256(path.read_bytes()).hexdigest() == said, "the checksum is another")
        with np.load(path, allow_pickle=False) as arrays:
            for array, name in zip(found, ("image", "mask"), strict=True):
                expect(
                    arrays[name].dtype == np.uint8 and array.dtype == np.uint8, f"{name} is {arrays[name].dtype}"
                )
                expect(np.array_equal(arrays[name], array), f"{name} differs")
        return None


def _npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def _npy_header(rng: random.Random, member: bytes) -> bytes:
    """The dictionary in an array's header changed, as text."""
    length = int.from_bytes(member[8:10], "little")
    text = member[10 : 10 + length].decode()
    tree = {"descr": "|u1", "fortran_order": "True" in text, "shape": eval(text)["shape"]}
    name = rng.choice(list(tree))
    choices = {
        "descr": ("|u2", ">u8", "|O", "|S5", "<M8[s]", "f4", [("a", "|u1")], "", "|u1" * 50, "x"),
        "fortran_order": (True, 1, None, "x"),
        "shape": ((2**40, 2), (2, 8), (-1,), (2, 1, 8, 8, 1), (0,), (10**20,), ("a",), (128,), 5),
    }
    tree[name] = rng.choice((*choices[name], hostile(rng)))
    words = (
        repr(tree)
        if rng.random() < 0.9
        else rng.choice(
            ("{}", "[" * 200, "__import__('os').system('true')", "{" + "'a':1," * 3000 + "}", "1" * 5000)
        )
    )
    header = words.encode("latin-1", "replace") + b"\n"
    return member[:8] + (len(header) % 65536).to_bytes(2, "little") + header[:65535] + member[10 + length :]


class Sources(Reader):
    """sources.json of a set: the same command again must end in the same set, or be refused."""

    name: ClassVar[str] = "sources"
    count: ClassVar[int] = 100_000

    def prepare(self, folder: Path) -> None:
        self.source, self.set = folder / "source", folder / "set"
        random_ = np.random.default_rng(0)
        for place, voxels in (
            ("imagesTr/a_0000", random_.integers(0, 99, (8, 8, 2)).astype(np.int16)),
            ("labelsTr/a", np.ones((8, 8, 2), np.uint8)),
        ):
            (self.source / place).parent.mkdir(parents=True, exist_ok=True)
            nibabel.save(nibabel.Nifti1Image(voxels, np.diag([2.0, 2.0, 2.0, 1.0])), self.source / f"{place}.nii")
        (self.source / "dataset.json").write_text(
            json.dumps(
                {
                    "name": "one",
                    "channel_names": {"0": "T2"},
                    "labels": {"background": 0, "PZ": 1},
                    "file_ending": ".nii",
                }
            )
        )
        prepare("nnunet", self.source, self.set, size=(16, 16))
        self.files = {file.name: file.read_bytes() for file in self.set.iterdir()}
        self.facts = json.loads(self.files["sources.json"])

    @property
    def valid(self) -> int:
        return 1

    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        place = folder / "set"
        shutil.copytree(self.set, place)
        if number >= self.valid:
            (place / "sources.json").write_bytes(to_json(rng, mutate_tree(rng, self.facts)))
            if rng.random() < 0.3:
                (place / "manifest.json").unlink()
        return place / "sources.json"

    def read(self, path: Path) -> Any:
        return prepare("nnunet", self.source, path.parent, size=(16, 16))

    def check(self, path: Path, found: Any) -> str | None:
        for name in ("a.npz", "manifest.json"):
            expect((path.parent / name).read_bytes() == self.files[name], f"{name} differs")
        return None
