"""unfinished.json of a folder of masks: the same command again must end in the same masks, or be refused."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any, ClassVar

import nibabel
import numpy as np

from faults.mutations.trees import mutate_tree, to_json
from faults.reader import Reader, expect
from faults.readers.models import card, network
from ringfence.weak import load_model, predict
from ringfence.weak.inference.model_file import MODEL, save_model


class Unfinished(Reader):
    """With one mask of two."""

    name: ClassVar[str] = "unfinished"
    count: ClassVar[int] = 100_000

    def prepare(self, folder: Path) -> None:
        save_model(folder / MODEL, network(), card())
        self.model, self.images, self.masks = (
            load_model(folder / MODEL, device="cpu"),
            folder / "images",
            folder / "masks",
        )
        self.images.mkdir()
        for name in "ab":
            voxels = np.random.default_rng(ord(name)).integers(0, 99, (8, 8, 1)).astype(np.uint8)
            nibabel.save(nibabel.Nifti1Image(voxels, np.diag([2.0, 2.0, 2.0, 1.0])), self.images / f"{name}.nii")
        unreadable = self.images / "c.nii"
        unreadable.write_bytes(b"x" * 400)
        predict(self.model, self.images, self.masks)
        unreadable.unlink()
        self.facts = json.loads((self.masks / "unfinished.json").read_text())
        self.expected = {name: (self.masks / name).read_bytes() for name in ("a.nii", "b.nii")}
        (self.masks / "b.nii").unlink()

    @property
    def valid(self) -> int:
        return 1

    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        shutil.copytree(self.masks, folder / "masks")
        path = folder / "masks" / "unfinished.json"
        if number >= self.valid:
            path.write_bytes(to_json(rng, mutate_tree(rng, self.facts)))
        return path

    def read(self, path: Path) -> Any:
        return predict(self.model, self.images, path.parent)

    def check(self, path: Path, found: Any) -> str | None:
        expect(
            not found.failed
            and sorted(one.name for one in path.parent.iterdir()) == ["a.nii", "b.nii", "predictions.csv"],
            f"{found}",
        )
        for name, data in self.expected.items():
            expect((path.parent / name).read_bytes() == data, f"{name} differs")
        return None
