"""docs/boxes.md as a newcomer would follow it: every command of the page, in its order, with tiny data.

Only the sizes differ: what is appended to a command is in ``TINY``.
"""

from __future__ import annotations

import csv
import math
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813 - everyone's habit
import torch
import yaml

from children import python
from ringfence.cli import main
from ringfence.weak.inference.model_file import read_model
from ringfence.weak.prepared.prepared_set import read_prepared

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "boxes.md").read_text(encoding="utf-8")
TINY = {
    "python": ["--cases", "4", "--shape", "8", "32", "32"],
    "prepare promise12": ["--size", "32", "32"],
    "train": [
        "--training.device=cpu",
        "--training.epochs=2",
        "--training.batch_size=4",
        "--network.init_args.features=[2, 2, 2, 4, 4, 2]",
    ],
    "train volumes": ["--training.batch_size=2"],
    "predict": ["--device", "cpu"],
}


@dataclass(frozen=True)
class Step:
    """A command of the page, and what it printed when it was run."""

    words: list[str]
    printed: str

    @property
    def next(self) -> list[str] | None:
        """The command that it says comes next."""
        found = re.search(r"^next: (.*)$", self.printed, re.IGNORECASE | re.MULTILINE)
        return shlex.split(found[1]) if found else None


@dataclass(frozen=True)
class Walk:
    folder: Path
    steps: list[Step]

    def printed(self, *words: str) -> str:
        """What the first command with these words printed."""
        return next(step.printed for step in self.steps if set(words) <= set(step.words))


def commands(page: str) -> Iterator[list[str]]:
    """The lines of all shell blocks, as words; a backslash joins lines."""
    for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            yield shlex.split(line)


def tiny(words: list[str]) -> list[str]:
    """The command, with less to do; a run that goes on keeps what it was begun with."""
    if "--resume" in words or "--help" in words:
        return words
    key = " ".join(words[1:3]) if words[1] == "prepare" else words[0] if words[0] == "python" else words[1]
    more = TINY.get(key, []) + (TINY["train volumes"] if "--data.volumes" in words else [])
    return [*words, *more]


def write_patients(folder: Path) -> None:
    """PROMISE12 as a download looks, small: 16-bit MetaImage, each of its own size; 02 and 25 are for validation."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for number, size in ((0, 40), (1, 36), (2, 44), (25, 52)):
        shape = (5, size, size + 4)
        place = (np.indices(shape) + 0.5) / np.array(shape)[:, None, None, None]
        centre = 0.5 + random.uniform(-0.1, 0.1, 3)
        mask = (((place - centre[:, None, None, None]) / 0.3) ** 2).sum(axis=0) < 1
        image = 200 + 400 * mask + random.normal(0, 60, shape)
        for voxels, name in ((image.astype(np.int16), ""), (mask.astype(np.uint8), "_segmentation")):
            written = sitk.GetImageFromArray(voxels)
            written.SetSpacing((0.625, 0.625, 3.6))
            written.SetOrigin((-70.5, -90.25, 12.0))
            sitk.WriteImage(written, str(folder / f"Case{number:02}{name}.mhd"), useCompression=True)


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    folder = tmp_path_factory.mktemp("walk")
    write_patients(folder / "downloads" / "promise12")
    shutil.copytree(ROOT / "examples", folder / "examples")
    steps = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        torch.manual_seed(0)
        for words in commands(PAGE):
            steps.append(Step(words, run(tiny(words))))
        yield Walk(folder, steps)


def run(words: list[str]) -> str:
    """What a command prints; it must succeed."""
    if words[0] == "python":
        done = python(*words[1:])
        assert done.returncode == 0, done.stderr
        return done.stdout
    assert words[0] == "ringfence", f"{words} on the page is nothing that this test can run"
    printed = StringIO()
    with redirect_stdout(printed):
        try:
            status: object = main(words[1:])
        except SystemExit as stop:  # --help and --print_config
            status = stop.code
    assert status == 0, f"{shlex.join(words)}: exit status {status}"
    return printed.getvalue()


def test_the_page_shows_both_walks_from_download_to_scores(walk: Walk) -> None:
    shown = [step.words[1] for step in walk.steps]
    verbs = ["prepare", "train", "predict", "evaluate"]
    assert shown[:4] == verbs
    assert shown[4:9] == ["examples/make_nnunet_folder.py", *verbs]


def test_what_a_command_says_comes_next_is_what_the_page_does_next(walk: Walk) -> None:
    """Every word of it, in that order; where it has a word in capitals, the page has a name."""
    said = 0
    for step, after in zip(walk.steps, walk.steps[1:], strict=False):
        if step.next is None or after.words[1] == step.words[1] or after.words[0] == "python":
            continue
        said += 1
        rest = iter(after.words)
        for word in step.next:
            assert any(word == other or word.isupper() for other in rest), (step.next, after.words)
    assert said >= 4


def test_a_patient_is_segmented_where_he_lies(walk: Walk) -> None:
    image = sitk.ReadImage(str(walk.folder / "downloads" / "promise12" / "Case25.mhd"))
    mask = sitk.ReadImage(str(walk.folder / "masks" / "prostate" / "Case25.mhd"))
    for fact in ("GetSize", "GetSpacing", "GetOrigin", "GetDirection"):
        assert getattr(mask, fact)() == getattr(image, fact)(), fact
    assert set(np.unique(sitk.GetArrayFromImage(mask))) <= {0, 1}
    assert (walk.folder / "masks" / "prostate" / "Case25.png").read_bytes().startswith(b"\x89PNG")
    prepared = read_prepared(walk.folder / "prepared" / "promise12-small")
    assert [case.name for case in prepared.of("validation")] == ["Case02", "Case25"]
    assert prepared.size == (32, 32)
    assert "HD95 (mm)" in walk.printed("evaluate", "masks/prostate/Case25.mhd")


@pytest.mark.parametrize("name", ["ellipsoids", "volumes"])
def test_three_classes_are_segmented_where_they_lie(walk: Walk, name: str) -> None:
    image = nib.load(walk.folder / "downloads" / "ellipsoids" / "imagesTs" / "unseen_0001.nii.gz")
    mask = nib.load(walk.folder / "masks" / name / "unseen.nii.gz")
    assert mask.shape == image.shape == (32, 32, 8)
    assert np.array_equal(mask.affine, image.affine)
    assert mask.header.get_zooms() == image.header.get_zooms()
    assert set(np.unique(np.asarray(mask.dataobj))) <= {0, 1, 2, 3}
    _, card = read_model(walk.folder / "runs" / name / "model.safetensors")
    assert (card.channels, card.classes) == (("first", "second"), ("bright", "middle", "faint"))
    assert (card.patch is not None) == (name == "volumes")


def test_scores_are_plausible(walk: Walk) -> None:
    text = (walk.folder / "masks" / "ellipsoids" / "evaluation.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    assert [(row["case"], row["label"]) for row in rows] == [("unseen", "1"), ("unseen", "2"), ("unseen", "3")]
    truth = nib.load(walk.folder / "downloads" / "ellipsoids" / "labelsTs" / "unseen.nii.gz")
    mask = nib.load(walk.folder / "masks" / "ellipsoids" / "unseen.nii.gz")
    ours, theirs = (np.asarray(one.dataobj) for one in (mask, truth))
    for row in rows:
        label = int(row["label"])
        assert math.isfinite(float(row["dice"]))
        both = ((ours == label) & (theirs == label)).sum()
        dice = 2 * both / ((ours == label).sum() + (theirs == label).sum())
        assert 0.0 <= dice <= 1.0
        assert float(row["dice"]) == pytest.approx(dice, abs=1e-5)
        assert row["true_voxels"] == str((theirs == label).sum())
        assert row["hd95_unit"] == "mm"


@pytest.mark.parametrize("name", ["prostate", "ellipsoids", "around-masks", "volumes"])
def test_every_column_the_page_explains_is_there(walk: Walk, name: str) -> None:
    with (walk.folder / "runs" / name / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    table = PAGE[PAGE.index("| column | in a good run |") :].split("\n\n")[0]
    shown = re.findall(r"`([\w/.]+)`", "".join(line.split("|")[1] for line in table.splitlines()))
    for column in [*shown, "dice", "satisfaction"]:
        known = [one for one in rows[-1] if one == column or one.startswith(column.removesuffix("..."))]
        assert known, column
        for one in known:
            assert rows[-1][one] == "" or math.isfinite(float(rows[-1][one])), one
    for share in ("dice", "satisfaction", "satisfaction/strips", "satisfaction/box_size"):
        assert 0.0 <= float(rows[-1][share]) <= 1.0


def test_boxes_of_a_file_are_those_of_the_masks(walk: Walk) -> None:
    """The example's boxes.csv is tight, and no slice is resized: training sees the same boxes, and does the same."""
    ours, theirs = (walk.folder / "runs" / name / "metrics.csv" for name in ("ellipsoids", "around-masks"))
    first, second = ([row.split(",")[:-2] for row in file.read_text().splitlines()] for file in (ours, theirs))
    assert first == second  # but for the seconds


def test_the_printed_config_is_whole_and_the_finished_run_is_named(walk: Walk) -> None:
    config = yaml.safe_load(walk.printed("train", "--print_config"))
    assert config["data"]["prepared"] == "prepared/ellipsoids"
    assert config["network"]["init_args"]["features"] == [2, 2, 2, 4, 4, 2]
    assert "The model is runs/ellipsoids/model.safetensors" in walk.printed("train", "--resume")


def test_options_named_on_the_page_exist(walk: Walk) -> None:
    config = yaml.safe_load(walk.printed("train", "--print_config"))
    for group, key in re.findall(
        r"`(data|augment|training|network|optimiser|schedule|log_barrier)\.(\w+)[^`]*`", PAGE
    ):
        assert key in config[group], f"{group}.{key}"
