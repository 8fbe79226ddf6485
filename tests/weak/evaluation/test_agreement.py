"""Masks of several models beside each other: Dice of all pairs, the worst first; and mistakes in a line."""

from __future__ import annotations

import csv
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813 - everyone's habit
from numpy.typing import NDArray

from ringfence.cli import main
from ringfence.weak.evaluation import Agreement, agreement_between


def write(path: Path, voxels: NDArray) -> NDArray:
    image = sitk.GetImageFromArray(voxels.astype(np.uint8))
    image.SetSpacing((0.5, 0.5, 3.0))
    path.parent.mkdir(parents=True, exist_ok=True)
    sitk.WriteImage(image, str(path))
    return voxels


@pytest.fixture
def models(tmp_path: Path) -> tuple[list[Path], dict[tuple[str, str], NDArray]]:
    """Three models' masks of three cases, with two labels: of the last case, only one of them finds anything."""
    random = np.random.default_rng(0)
    masks = {}
    for number, model in enumerate("abc"):
        for case, noise in (("easy", 0.02), ("hard", 0.3)):
            truth = np.zeros((3, 8, 9), np.uint8)
            truth[1, 2:6, 2:7], truth[2, 1:5, 4:8] = 1, 2
            wrong = random.random(truth.shape) < noise
            masks[model, case] = write(tmp_path / model / f"{case}.nii.gz", np.where(wrong, 0, truth))
        alone = np.full((3, 8, 9), 2 * (number == 1))
        masks[model, "lost"] = write(tmp_path / model / "lost.nii.gz", alone)
    return [tmp_path / model for model in "abc"], masks


def test_agreement_is_the_dice_of_all_pairs_and_the_worst_comes_first(
    models: tuple[list[Path], dict[tuple[str, str], NDArray]],
) -> None:
    folders, masks = models
    seen: list[int] = []
    found = agreement_between(*folders, each=seen.append)
    assert seen == [9] * 9
    assert len(found.cases) == 6  # three cases, two labels
    for one in found.cases:
        mine = [masks[model, one.case] == one.label for model in "abc"]
        dice = [2 * (a & b).sum() / (a.sum() + b.sum()) if (a | b).any() else 1.0 for a, b in combinations(mine, 2)]
        assert (one.dice, one.least) == (pytest.approx(np.mean(dice)), pytest.approx(min(dice)))
        assert one.voxels == (min(a.sum() for a in mine), max(a.sum() for a in mine))
    assert [one.dice for one in found.cases] == sorted(one.dice for one in found.cases)
    assert (found.cases[0].case, found.cases[0].label, found.cases[0].hd95) == ("lost", 2, math.inf)
    assert found.cases[-1].dice == 1.0  # none of them found label 1 in the last case
    assert math.isnan(found.cases[-1].hd95)
    assert found.dice[1] == pytest.approx(np.mean([one.dice for one in found.cases if one.label == 1]))
    two = agreement_between(*folders[:2], labels=[1])
    assert {one.label for one in two.cases} == {1}
    assert all(one.dice == one.least for one in two.cases)
    assert [one.dice for one in two.cases] == [
        one.dice for one in agreement_between(*folders[1::-1], labels=[1]).cases
    ]


def test_what_it_says(models: tuple[list[Path], dict[tuple[str, str], NDArray]]) -> None:
    found = agreement_between(*models[0])
    rows = list(csv.DictReader(found.csv.splitlines()))
    assert [(row["case"], row["label"]) for row in rows] == [(one.case, str(one.label)) for one in found.cases]
    assert (rows[0]["hd95"], rows[-1]["hd95"], rows[0]["most_voxels"]) == ("inf", "", "216")
    assert str(found).splitlines()[0].startswith("label 1: models agree to Dice 0.")
    assert "<td>lost</td><td>2</td>" in found._repr_html_()
    assert isinstance(found, Agreement)
    assert found.empty == {1: ["lost"]}
    assert str(found).splitlines()[-1] == "label 1: no model finds it in lost"


def test_the_command_names_the_worst_and_what_is_not_in_all_folders(
    models: tuple[list[Path], dict[tuple[str, str], NDArray]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [str(folder) for folder in models[0]]
    table = tmp_path / "agreement.csv"
    assert main(["agree", *names, "--out", str(table)]) == 0
    text = capsys.readouterr().out
    assert text.index("lost") < text.index("hard") < text.index("easy")
    assert "Dice between the models, mean of label 2: 0." in text
    assert "0 to 216" in text
    assert "Label 1: no model finds it in lost; Dice is 1 there, even if all are wrong" in text
    assert len(table.read_text().splitlines()) == 7
    assert main(["agree", *names, "--out", str(table)]) == 2
    assert "is there already" in capsys.readouterr().err
    (models[0][1] / "easy.nii.gz").unlink()
    (models[0][2] / "hard.nii.gz").write_bytes(b"noise")
    assert main(["agree", *names]) == 2
    shown = capsys.readouterr()
    assert "lost" in shown.out
    lines = shown.err.splitlines()
    assert lines[0] == "ringfence agree: 2 of 3 cases were not compared:"
    assert lines[1].startswith(f"  easy: no mask in {models[0][1]} for the mask easy.nii.gz")
    assert lines[2].startswith("  hard: ")


def test_mistakes(models: tuple[list[Path], dict[tuple[str, str], NDArray]], tmp_path: Path) -> None:
    one, other, _ = models[0]
    with pytest.raises(ValueError, match="give two folders of masks or more"):
        agreement_between(one)
    with pytest.raises(ValueError, match="a folder is named twice: a model always agrees with itself"):
        agreement_between(one, other, one)
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        agreement_between(one, tmp_path / "nowhere")
    for folder in ("x", "y"):
        write(tmp_path / folder / "a.nii.gz", np.zeros((2, 4, 4)))
    with pytest.raises(ValueError, match="no mask has any label: .*x and .*y are all background"):
        agreement_between(tmp_path / "x", tmp_path / "y")
    assert agreement_between(tmp_path / "x", tmp_path / "y", labels=[1]).dice == {1: 1.0}
