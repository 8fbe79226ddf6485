"""The commands that are killed, starved and run twice: tiny inputs, what to call, and how to go on."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np
import SimpleITK as sitk  # noqa: N813

from faults.trials import Child, Ended, content, differences
from prepared_sets import make_prepared
from ringfence.weak.training.methods import METHODS

OUT = "out"
"""Where every command writes, in its current folder."""
NETWORK = ["--network.class_path", "torch.nn.Conv2d", "--network.init_args", '{"kernel_size": 3, "padding": 1}']
TINY = [*NETWORK, "--training.epochs", "2", "--training.batch_size", "4", "--training.device", "cpu"]


@dataclass(frozen=True)
class Command:
    """One of them.

    Attributes:
        name: in the table.
        begin: the arguments, of the folder with inputs.
        resume: the arguments after a kill, if they are others.
    """

    name: str
    begin: Callable[[Path], list[str]]
    resume: Callable[[Path], list[str]] | None = None

    def again(self, inputs: Path, place: Path) -> Ended:
        """Go on as a user would: --resume where there is one, else, or if there is nothing to resume, the same."""
        if self.resume is not None:
            ended = Child(self.resume(inputs), place).start().wait()
            if ended.status == 0 or "holds no run" not in ended.output:
                return ended
        return Child(self.begin(inputs), place).start().wait()

    def finished(self, inputs: Path, place: Path, expected: dict[str, object], most: int = 3) -> str:
        """Repeat it until it ends well, or everything is there; what it said if neither comes."""
        said = ""
        for _ in range(most):
            ended = self.again(inputs, place)
            if ended.status == 0 or differences(content(place / OUT), expected) == ([], []):
                return ""
            said = ended.output
        return said or "it fails, and says nothing"


def _train(method: str) -> Command:
    def begin(inputs: Path) -> list[str]:
        return [
            "train",
            "boxes-small",
            "--method",
            method,
            "--data.prepared",
            str(inputs / "set"),
            "--out",
            OUT,
            *TINY,
        ]

    return Command(f"train, {method}", begin, lambda inputs: ["train", "--out", OUT, "--resume"])


def _compare(task: str, *more: str) -> Command:
    def begin(inputs: Path) -> list[str]:
        own = [str(inputs / one) if one == "set" else one for one in more]
        return ["compare", task, "--out", OUT, "--methods", "penalty", "log_barrier", *own, *TINY]

    return Command(f"compare {task}", begin, lambda inputs: ["compare", task, "--out", OUT, "--resume"])


COMMANDS: dict[str, Command] = {
    one.name: one
    for one in (
        Command(
            "prepare, NIfTI", lambda inputs: ["prepare", "folder", str(inputs / "nifti"), OUT, "--size", "16", "16"]
        ),
        Command(
            "prepare, zip",
            lambda inputs: ["prepare", "promise12", str(inputs / "promise12.zip"), OUT, "--size", "16", "16"],
        ),
        *(_train(method) for method in METHODS),
        _compare("synthetic", "--data.size", "16", "--data.train", "8", "--data.validation", "4"),
        _compare("boxes", "--preset", "boxes-small", "--data.prepared", "set"),
        Command(
            "predict, NIfTI",
            lambda inputs: [
                "predict",
                str(inputs / "model"),
                str(inputs / "nifti" / "imagesTr"),
                OUT,
                "--probabilities",
            ],
        ),
        Command(
            "predict, MetaImage",
            lambda inputs: ["predict", str(inputs / "model"), str(inputs / "metaimage"), OUT, "--overlays"],
        ),
        Command(
            "evaluate",
            lambda inputs: [
                "evaluate",
                str(inputs / "nifti" / "labelsTr"),
                str(inputs / "nifti" / "labelsTr"),
                "--out",
                f"{OUT}/scores.csv",
                "--overwrite",
            ],
        ),
        Command("report", lambda inputs: ["report", str(inputs / "compared"), "--out", OUT]),
    )
}


def made_inputs(folder: Path) -> Path:
    """What the commands read, unless it is there; the model and the comparison are made by the commands themselves."""
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    nifti, packed = folder / "nifti", folder / "packed"
    for place in (nifti / "imagesTr", nifti / "labelsTr", folder / "metaimage", packed):
        place.mkdir(parents=True, exist_ok=True)
    for number in range(3):
        voxels = random.integers(0, 900, (3, 16, 16)).astype(np.int16)
        mask = np.zeros((3, 16, 16), np.uint8)
        mask[:, 4:11, 5:12] = 1
        affine = np.diag([0.5, 0.5, 3.0, 1.0])
        nibabel.save(nibabel.Nifti1Image(voxels.transpose(), affine), nifti / "imagesTr" / f"c{number}_0000.nii.gz")
        nibabel.save(nibabel.Nifti1Image(mask.transpose(), affine), nifti / "labelsTr" / f"c{number}.nii.gz")
        for stem, array in ((f"Case{number:02}", voxels), (f"Case{number:02}_segmentation", mask)):
            image = sitk.GetImageFromArray(array)
            image.SetSpacing((0.5, 0.5, 3.0))
            sitk.WriteImage(image, str(packed / f"{stem}.mhd"), True)
            if "_" not in stem:
                sitk.WriteImage(image, str(folder / "metaimage" / f"{stem}.mhd"))
    facts = {
        "name": "three",
        "channel_names": {"0": "T2"},
        "labels": {"background": 0, "gland": 1},
        "file_ending": ".nii.gz",
    }
    (nifti / "dataset.json").write_text(json.dumps(facts))
    with zipfile.ZipFile(folder / "promise12.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(packed.iterdir()):
            archive.write(file, f"train/{file.name}")
    make_prepared(folder / "set", cases=3, shape=(3, 16, 16))
    for name, command in (("model", "train, penalty"), ("compared", "compare synthetic")):
        (folder / f"{name}.made").mkdir()
        ended = Child(COMMANDS[command].begin(folder), folder / f"{name}.made").start().wait()
        if ended.status:
            raise RuntimeError(f"{command}: {ended.output}")
        (folder / f"{name}.made" / OUT).rename(folder / name)
    return folder


def reference(command: Command, inputs: Path, place: Path) -> tuple[dict[str, object], int, float]:
    """What an undisturbed command leaves, how many steps it takes, and how many seconds."""
    import time

    place.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    ended = Child(command.begin(inputs), place).start().wait()
    if ended.status:
        raise RuntimeError(f"{command.name}: {ended.output}")
    return content(place / OUT), ended.steps, time.monotonic() - began
