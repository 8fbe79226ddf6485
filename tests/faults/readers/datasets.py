"""dataset.json, nnU-Net's and the Decathlon's, and splits_final.json; what is found must be in the folder."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, ClassVar

from faults.mutations.trees import mutate_tree, to_json
from faults.reader import Reader, expect
from ringfence.weak.datasets import layout_named

NAMES = ("a", "b", "c")
SPLITS = [{"train": ["a", "b"], "val": ["c"]}, {"train": ["b", "c"], "val": ["a"]}]
NNUNET = {
    "name": "Prostate",
    "channel_names": {"0": "T2", "1": "ADC"},
    "labels": {"background": 0, "PZ": 1, "TZ": 2},
    "numTraining": 3,
    "file_ending": ".nii.gz",
}
DECATHLON = {
    "name": "PROSTATE",
    "modality": {"0": "T2"},
    "labels": {"0": "background", "1": "PZ", "2": "TZ"},
    "training": [{"image": f"./imagesTr/{name}.nii.gz", "label": f"./labelsTr/{name}.nii.gz"} for name in NAMES],
}


class _Layout(Reader):
    layout: ClassVar[str] = "folder"
    file: ClassVar[str] = "dataset.json"
    facts: Any = NNUNET

    def prepare(self, folder: Path) -> None:
        pass

    @property
    def valid(self) -> int:
        return 1

    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        for place in ("imagesTr", "labelsTr"):
            (folder / place).mkdir()
            for name in NAMES:
                for channel in ("_0000", "_0001") if place == "imagesTr" and self.facts is not DECATHLON else ("",):
                    (folder / place / f"{name}{channel}.nii.gz").touch()
        if self.file != "dataset.json":
            (folder / "dataset.json").write_text(json.dumps(NNUNET))
        path = folder / self.file
        if number < self.valid:
            path.write_text(json.dumps(self.facts))
        else:
            path.write_bytes(to_json(rng, mutate_tree(rng, self.facts)))
        return path

    def read(self, path: Path) -> Any:
        return layout_named(self.layout).find(path.parent, validation=None)

    def check(self, path: Path, found: Any) -> str | None:
        expect(found.channels and all(type(one) is str for one in found.channels), f"channels {found.channels}")
        expect(found.classes and len(set(found.labels)) == len(found.classes), f"labels {found.labels}")
        expect(all(type(one) is int and 1 <= one <= 255 for one in found.labels), f"labels {found.labels}")
        names = [case.name for case in found.cases]
        expect(
            len(set(names)) == len(names) and found.validation <= {*names, *found.problems},
            f"cases {names}, {found.validation}",
        )
        inside = path.parent.resolve()
        for case in found.cases:
            expect("/" not in case.name and case.name not in ("", ".", ".."), f"a case named {case.name!r}")
            for volume in (*case.images, *([case.mask] if case.mask else [])):
                file = volume.path.resolve()
                expect(file.is_file() and inside in file.parents, f"{file}")
        said = json.loads(path.read_bytes().decode("utf-8-sig"))
        if self.file == "dataset.json":
            expect(
                said["labels"] is not None and found.name == str(said.get("name") or inside.name),
                f"name {found.name!r}",
            )
        return None


class NnUNet(_Layout):
    """nnU-Net's dataset.json."""

    name: ClassVar[str] = "dataset-nnunet"


class Decathlon(_Layout):
    """The Decathlon's dataset.json."""

    name: ClassVar[str] = "dataset-decathlon"
    facts: Any = DECATHLON


class Splits(_Layout):
    """splits_final.json."""

    name: ClassVar[str] = "splits"
    file: ClassVar[str] = "splits_final.json"
    facts: Any = SPLITS
