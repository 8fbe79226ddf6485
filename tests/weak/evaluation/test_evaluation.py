"""Scores: Dice against NumPy, HD95 against SciPy and closed forms; cases matched by name, the rest listed."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813 - everyone's habit
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage

from ringfence.cli import main
from ringfence.hints import from_spreadsheet
from ringfence.weak.evaluation import (
    Evaluation,
    Pair,
    Score,
    Scored,
    Unscored,
    complete,
    dice_of,
    evaluate,
    hd95_of,
    match_masks,
    mean_sd,
    score_pairs,
    scores_csv,
    summarise,
)


def write(path: Path, voxels: NDArray, spacing: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> Path:
    """Spacing along z, y, x."""
    image = sitk.GetImageFromArray(voxels)
    image.SetSpacing(spacing[::-1])
    path.parent.mkdir(parents=True, exist_ok=True)
    sitk.WriteImage(image, str(path))
    return path


def cube(shift: tuple[int, int, int] = (0, 0, 0), label: int = 1) -> NDArray:
    voxels = np.zeros((20, 20, 20), dtype=np.uint8)
    voxels[tuple(slice(3 + step, 13 + step) for step in shift)] = label
    return voxels


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), density=st.floats(0.0, 1.0), other=st.floats(0.0, 1.0))
def test_dice_is_the_formula(seed: int, density: float, other: float) -> None:
    random = np.random.default_rng(seed)
    ours, theirs = random.random((3, 5, 4)) < density, random.random((3, 5, 4)) < other
    total = ours.sum() + theirs.sum()
    expected = 2 * (ours & theirs).sum() / total if total else 1.0
    assert dice_of(ours, theirs) == pytest.approx(expected, abs=1e-6)


def reference_hd95(ours: NDArray, theirs: NDArray, spacing: tuple[float, ...]) -> float:
    """Distances from each surface voxel to the nearest of the other surface."""
    surfaces = [mask & ~ndimage.binary_erosion(mask) for mask in (ours, theirs)]
    ways = []
    for mine, yours in (surfaces, surfaces[::-1]):
        points = [np.argwhere(surface) * spacing for surface in (mine, yours)]
        ways.append(np.percentile(np.linalg.norm(points[0][:, None] - points[1][None], axis=-1).min(axis=1), 95))
    return max(ways)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    spacing=st.tuples(*[st.floats(0.2, 5.0)] * 3),
    density=st.floats(0.02, 0.9),
)
def test_hd95_is_what_brute_force_finds(seed: int, spacing: tuple[float, float, float], density: float) -> None:
    random = np.random.default_rng(seed)
    ours, theirs = random.random((4, 7, 6)) < density, random.random((4, 7, 6)) < 0.2
    if not ours.any() or not theirs.any():
        expected = math.nan if not ours.any() and not theirs.any() else math.inf
        assert hd95_of(ours, theirs, spacing) == pytest.approx(expected, nan_ok=True)
        return
    assert hd95_of(ours, theirs, spacing) == pytest.approx(reference_hd95(ours, theirs, spacing), rel=1e-4)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_hd95_of_a_shifted_cube_is_the_shift(axis: int) -> None:
    """A fifth of the surface is exactly as far from the other cube as that is shifted."""
    spacing = (3.5, 0.625, 0.5)
    shift = [0, 0, 0]
    shift[axis] = 4
    moved = cube((shift[0], shift[1], shift[2])) > 0
    assert hd95_of(moved, cube() > 0, spacing) == pytest.approx(4 * spacing[axis])
    assert hd95_of(moved, moved, spacing) == 0.0


def test_a_pair_is_scored_in_millimetres_where_they_are_known(tmp_path: Path) -> None:
    ours, theirs = cube((2, 0, 0)) + cube((0, 0, 0), label=0), cube()
    ours[18:, 18:, 18:] = 3
    for spacing, unit, step in (((3.0, 0.5, 0.5), "mm", 3.0), ((1.0, 1.0, 1.0), "voxels", 1.0)):
        a, b = write(tmp_path / "a.mhd", ours, spacing), write(tmp_path / "b.mhd", theirs, spacing)
        (case,) = score_pairs([Pair("a", a, b)])
        assert isinstance(case, Scored)
        assert case.scores == (
            Score("a", 1, pytest.approx(0.8), pytest.approx(2 * step), unit, 1000, 1000),
            Score("a", 3, 0.0, math.inf, unit, 8, 0),
        )
    (case,) = score_pairs([Pair("a", a, b)], spacing=(3.0, 1.0, 1.0))
    assert isinstance(case, Scored)
    assert (case.unit, case.scores[0].hd95) == ("mm", pytest.approx(6.0))
    write(tmp_path / "a.nii.gz", ours)  # the other format, the same grid
    (case,) = score_pairs([Pair("a", tmp_path / "a.nii.gz", b)])
    assert isinstance(case, Scored)
    assert case.scores[0].dice == pytest.approx(0.8)


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    good = write(tmp_path / "good.mhd", cube(), (2.0, 1.0, 1.0))
    small = write(tmp_path / "small.mhd", cube()[:10], (2.0, 1.0, 1.0))
    other = write(tmp_path / "other.mhd", cube(), (3.0, 1.0, 1.0))
    turned = sitk.ReadImage(str(good))
    turned.SetDirection((-1, 0, 0, 0, -1, 0, 0, 0, 1))
    sitk.WriteImage(turned, str(tmp_path / "turned.mhd"))
    moved = sitk.ReadImage(str(good))
    moved.SetOrigin((50.0, 0.0, 0.0))
    sitk.WriteImage(moved, str(tmp_path / "moved.mhd"))
    random = np.random.default_rng(0)
    grey = write(tmp_path / "grey.mhd", random.integers(0, 256, (20, 20, 20)).astype(np.uint8))
    raw = write(tmp_path / "raw.mhd", random.integers(0, 900, (20, 20, 20)).astype(np.int16))
    soft = write(tmp_path / "soft.mhd", random.random((20, 20, 20)).astype(np.float32))
    cut = write(tmp_path / "cut.mhd", cube())
    (tmp_path / "cut.raw").write_bytes(b"short")
    expected = {
        small: r"10 × 20 × 20 voxels, but .*good.mhd has 20 × 20 × 20",
        other: r"other.mhd has voxels of 3 × 1 × 1 mm, but .*good.mhd of 2 × 1 × 1",
        tmp_path / "turned.mhd": r"the axes of .*turned.mhd run to RAS, those of .*good.mhd to LPS",
        tmp_path / "moved.mhd": r"moved.mhd and .*good.mhd lie up to 50 voxels apart",
        grey: r"grey.mhd has 256 different values: it looks like an image, not a mask",
        raw: r"raw.mhd has values from 0 to 899: labels are 0..255. Is it an image\?",
        soft: r"soft.mhd has values that are not whole numbers",
        cut: r"cut.mhd: the header promises",
        tmp_path / "none.mhd": r"none.mhd does not exist",
    }
    results = list(score_pairs([*(Pair(file.stem, file, good) for file in expected), Pair("good", good, good)]))
    for result, message in zip(results, expected.values(), strict=False):
        assert isinstance(result, Unscored)
        assert re.search(message, result.reason), result
    assert isinstance(results[-1], Scored)  # the others are scored all the same


def test_cases_are_matched_by_name(tmp_path: Path) -> None:
    ours, theirs, labels = tmp_path / "ours", tmp_path / "theirs", tmp_path / "labelsTr"
    for folder in (ours, theirs, labels):
        folder.mkdir()
    for name in ("Case00.mhd", "Case01.nii.gz", "Case02.mhd", "Case00_prostate_probability.mhd", "evaluation.csv"):
        (ours / name).touch()
    for name in ("Case00.mhd", "Case00_segmentation.mhd", "Case01_segmentation.mhd", "Case03_segmentation.mhd"):
        (theirs / name).touch()
    pairs, failed = match_masks(ours, theirs)
    assert [(pair.name, pair.predicted.name, pair.truth.name) for pair in pairs] == [
        ("Case00", "Case00.mhd", "Case00_segmentation.mhd"),
        ("Case01", "Case01.nii.gz", "Case01_segmentation.mhd"),
    ]
    assert failed == [
        Unscored("Case02", f"no truth in {theirs} for the mask Case02.mhd"),
        Unscored("Case03", f"no mask in {ours} for the truth Case03_segmentation.mhd"),
    ]
    for name in ("Case00.nii.gz", "Case01.nii.gz", "Case01.mhd", "Case02.nii.gz"):
        (labels / name).touch()
    pairs, failed = match_masks(ours, labels)
    assert [pair.name for pair in pairs] == ["Case00", "Case02"]
    assert failed == [
        Unscored("Case01", f"there are several masks: {labels / 'Case01.mhd'}, {labels / 'Case01.nii.gz'}")
    ]
    pairs, failed = match_masks(ours / "Case00.mhd", theirs / "Case03_segmentation.mhd")  # two files: no question
    assert (pairs[0].name, failed) == ("Case00", [])


def test_folders_that_do_not_belong_together(tmp_path: Path) -> None:
    write(tmp_path / "a/x.mhd", cube())
    write(tmp_path / "b/y.mhd", cube())
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"no case is in both folders: .*a has x.mhd, .*b has y.mhd"):
        match_masks(tmp_path / "a", tmp_path / "b")
    with pytest.raises(ValueError, match=r"a is a folder and .*y.mhd is a file: give two folders, or two files"):
        match_masks(tmp_path / "a", tmp_path / "b/y.mhd")
    with pytest.raises(FileNotFoundError, match="empty holds no volumes"):
        match_masks(tmp_path / "a", tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        match_masks(tmp_path / "nowhere", tmp_path / "a")
    (tmp_path / "x.txt").touch()
    with pytest.raises(ValueError, match=r"x.txt is not a volume"):
        match_masks(tmp_path / "x.txt", tmp_path / "a/x.mhd")


def test_a_png_that_was_taken_for_a_picture_is_named(tmp_path: Path) -> None:
    for name in ("masks/a.png", "masks/b.png", "truth/a.png", "truth/b.nii"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    taken = "a.png was taken for a picture, because b.nii lies beside it"
    pairs, failed = match_masks(tmp_path / "masks", tmp_path / "truth")
    assert [pair.name for pair in pairs] == ["b"]
    assert failed == [Unscored("a", f"no truth in {tmp_path / 'truth'} for the mask a.png: {taken}")]
    _, failed = match_masks(tmp_path / "truth", tmp_path / "masks")
    assert failed == [Unscored("a", f"no mask in {tmp_path / 'truth'} for the truth a.png: {taken}")]
    (tmp_path / "masks/b.png").unlink()
    with pytest.raises(ValueError, match=f"no case is in both folders: .* by name: {taken}"):
        match_masks(tmp_path / "masks", tmp_path / "truth")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.jpeg").touch()
    with pytest.raises(FileNotFoundError, match="photos holds no volumes: .* are read; convert others to PNG"):
        match_masks(tmp_path / "photos", tmp_path / "truth")


ONE = Score("a", 1, 0.8, 2.0, "mm", 9, 11)
LOST = Score("b", 1, 0.0, math.inf, "mm", 0, 4)
TWO = Score("b", 2, 0.5, 3.0, "mm", 4, 4)
STRAY = Score("b", 7, 0.0, math.inf, "mm", 4, 0)
CASES = [Scored("a", "mm", (ONE,)), Scored("b", "mm", (LOST, TWO, STRAY)), Scored("c", "voxels", ())]


def test_every_case_has_every_label_that_a_truth_has() -> None:
    table, left_out = complete(CASES)
    empty = [(score.case, score.label, score.dice, score.unit) for score in table if math.isnan(score.hd95)]
    assert [(score.case, score.label) for score in table] == [(case, label) for case in "abc" for label in (1, 2)]
    assert empty == [("a", 2, 1.0, "mm"), ("c", 1, 1.0, "voxels"), ("c", 2, 1.0, "voxels")]
    assert left_out == [7]
    table, left_out = complete(CASES, labels=[1])
    assert ([score.dice for score in table], left_out) == ([0.8, 0.0, 1.0], [2, 7])
    assert complete(CASES[2:]) == ([], [])


def test_a_summary_leaves_out_what_it_says_it_does() -> None:
    scores = [ONE, LOST, Score("c", 1, 0.4, 6.0, "mm", 1, 1), Score("d", 1, 0.6, 50.0, "voxels", 1, 1)]
    (one,) = summarise(scores)
    assert (one.dice, one.worst) == ((0.8, 0.0, 0.4, 0.6), "b")
    assert (one.hd95, one.unit, one.lost, one.other_unit) == ((2.0, 6.0), "mm", 1, 1)
    assert mean_sd(one.hd95) == (4.0, pytest.approx(np.std([2.0, 6.0], ddof=1)))
    assert mean_sd([2.0])[0] == 2.0
    assert math.isnan(mean_sd([2.0])[1])
    assert math.isnan(mean_sd([])[0])


def test_the_csv_reads_back() -> None:
    rows = list(csv.DictReader(io.StringIO(scores_csv(complete(CASES)[0]))))
    assert rows[0] == {"case": "a", "label": "1", "dice": "0.8", "hd95": "2", "hd95_unit": "mm", "predicted_voxels": "9", "true_voxels": "11"}  # fmt: skip
    assert [row["hd95"] for row in rows] == ["2", "", "inf", "3", "", ""]


def test_folders_are_evaluated_in_one_call(tmp_path: Path) -> None:
    for name, shift in (("a", 0), ("b", 2)):
        write(tmp_path / f"ours/{name}.mhd", cube((shift, 0, 0)), (3.0, 0.5, 0.5))
        write(tmp_path / f"theirs/{name}.mhd", cube(), (3.0, 0.5, 0.5))
    write(tmp_path / "ours/c.mhd", cube())
    seen: list[int] = []
    found = evaluate(str(tmp_path / "ours"), tmp_path / "theirs", each=seen.append)
    assert seen == [2, 2]
    assert [(one.case, one.dice, one.hd95) for one in found.scores] == [
        ("a", 1.0, 0.0),
        ("b", pytest.approx(0.8), pytest.approx(6.0)),
    ]
    assert found.dice == {1: pytest.approx(0.9)}
    assert [one.name for one in found.failed] == ["c"]
    first, last = str(found).splitlines()
    assert first == "label 1: Dice 0.900 over 2 cases, worst b 0.800; HD95 3.00 mm"
    assert last.startswith("not scored: c: no truth in")
    assert "<td>b</td><td>1</td><td>0.800</td><td>6.00 mm</td>" in found._repr_html_()
    assert evaluate(tmp_path / "ours/a.mhd", tmp_path / "theirs/b.mhd", labels=[1, 2]).dice == {1: 1.0, 2: 1.0}


def test_what_evaluate_refuses(tmp_path: Path) -> None:
    file = write(tmp_path / "a.mhd", cube())
    with pytest.raises(ValueError, match=r"spacing: \[1.0, 0.0, 1.0\] must be three lengths above 0"):
        evaluate(file, file, spacing=(1.0, 0.0, 1.0))
    empty = write(tmp_path / "empty.mhd", 0 * cube())
    with pytest.raises(ValueError, match="has any label; say which there are"):
        evaluate(file, empty)
    assert evaluate(empty, empty, labels=[3]).dice == {3: 1.0}


def test_a_truth_in_white_is_no_score_of_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """255 and 1 are two labels: whoever means one class by them is told, and gets no table."""
    masks, truth = tmp_path / "masks", tmp_path / "truth"
    for name in "ab":
        write(masks / f"{name}.png", cube()[5])
        write(truth / f"{name}.png", cube(label=255)[5])
    white = "If white stands for the class, write its label instead"
    for asked in ([], ["--classes", "1"], ["--labels", "255"]):
        assert main(["evaluate", str(masks), str(truth), *asked]) == 2
        shown = capsys.readouterr()
        assert f"{truth} has label 255, {masks} has label 1: none is in both" in shown.err
        assert white in shown.err
        assert "--labels 1 255" in shown.err
        assert shown.out == ""
        assert not (masks / "evaluation.csv").exists()
    assert evaluate(masks, truth, labels=[1, 255]).dice == {1: 0.0, 255: 0.0}  # two classes, by the caller's word
    with pytest.raises(ValueError, match=white):
        evaluate(masks / "a.png", truth / "a.png")
    with pytest.raises(ValueError, match=white):  # also the other way round
        evaluate(truth, masks)
    write(truth / "b.png", cube()[5])  # one of them is right: which other is, nobody knows
    assert main(["evaluate", str(masks), str(truth)]) == 0
    assert f"Label 255 is in no mask; others are, where the truth has it: a. {white}" in capsys.readouterr().out


def test_a_model_that_finds_nothing_or_another_class_scores_0(tmp_path: Path) -> None:
    for name, label in (("a", 1), ("b", 2)):
        write(tmp_path / f"truth/{name}.mhd", cube(label=label))
        write(tmp_path / f"nothing/{name}.mhd", 0 * cube())
        write(tmp_path / f"other/{name}.mhd", cube(label=1))
    found = evaluate(tmp_path / "nothing", tmp_path / "truth")
    assert ([one.dice for one in found.scores if one.true], found.remarks) == ([0.0, 0.0], [])
    found = evaluate(tmp_path / "other", tmp_path / "truth")
    assert [one.dice for one in found.scores if one.true] == [1.0, 0.0]
    assert found.remarks == ["Label 2 is in no mask; others are, where the truth has it: b"]
    two = [tmp_path / folder / "b.mhd" for folder in ("other", "truth")]
    assert evaluate(*two, labels=[1, 2]).dice == {1: 0.0, 2: 0.0}
    with pytest.raises(
        ValueError, match="none is in both, and Dice would be 0. If all of them are classes, say so"
    ):
        evaluate(*two)


def test_names_of_cases_are_no_formulas_and_no_codes() -> None:
    """D13: in the CSV they come back, and as text they are in one line."""
    names = ["=HYPERLINK(1)", "\x1b[31mred", "a\nb", "a\rb", "'=x", "-1"]
    scores = tuple(Score(name, 1, 0.5, 1.0, "mm", 3, 4) for name in names)
    rows = list(csv.reader(io.StringIO(scores_csv(scores), newline="")))[1:]
    assert [from_spreadsheet(row[0]) for row in rows] == names
    assert not [row[0] for row in rows if row[0].startswith(("=", "+", "-", "@", "\t", "\r"))]
    text = str(Evaluation(scores, (Unscored("x\ny", "\x1b[2J"),)))
    assert text.splitlines()[1:] == ["not scored: x\\ny: \\x1b[2J"]
    assert "\x1b" not in text


def test_the_terminal_shows_names_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D13: file names with escape codes and rich's markup, through the command."""
    for folder in ("pred", "truth"):
        (tmp_path / folder).mkdir()
        for name in ("[red]=x", "b\x1b[31m"):
            voxels = np.zeros((2, 3, 4), np.uint8)
            voxels[0, 0, :2] = 1
            write(tmp_path / folder / f"{name}.nii.gz", voxels, (1.0, 1.0, 2.0))
    (tmp_path / "pred" / "\x1b[2Jc.nii.gz").write_bytes(b"")
    assert main(["evaluate", str(tmp_path / "pred"), str(tmp_path / "truth")]) == 2
    shown = capsys.readouterr()
    assert "[red]=x" in shown.out
    assert "\x1b[31m" not in shown.out
    assert "\x1b[2J" not in shown.out + shown.err
    assert "\\x1b[2Jc" in shown.err
    lines = (tmp_path / "pred" / "evaluation.csv").read_text().splitlines()
    assert lines[1].startswith("[red]=x,1,1,")
