"""How good masks are: 3D Dice and the 95th percentile of the Hausdorff distance, case by case.

Dice is 2|P∩Y| / (|P| + |Y|), and 1 where both are empty. HD95 is in millimetres where a header says what a voxel
measures, else in voxels; infinite where one of the two is empty, and not a number where both are.
"""

from __future__ import annotations

import csv
import html
import io
import math
import statistics
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringfence.extras import require
from ringfence.weak.volumes import Volume, check_same_grid, read_volume, volume_name

COLUMNS: Final = ("case", "label", "dice", "hd95", "hd95_unit", "predicted_voxels", "true_voxels")
TRUE: Final = "_segmentation"
MOST_LABELS: Final = 200
"""More different values than this are an image's."""
Spacing: TypeAlias = tuple[float, float, float]
Unit: TypeAlias = Literal["mm", "voxels"]


@dataclass(frozen=True)
class Pair:
    """A case's mask and its truth."""

    name: str
    predicted: Path
    truth: Path


@dataclass(frozen=True)
class Score:
    """How good a case's mask of one label is; voxels are how many of it were predicted, and are in the truth."""

    case: str
    label: int
    dice: float
    hd95: float
    unit: Unit
    predicted: int
    true: int


@dataclass(frozen=True)
class Scored:
    """A case's scores, of the labels that it has in either mask, and in which unit its distances are."""

    name: str
    unit: Unit
    scores: tuple[Score, ...]


@dataclass(frozen=True)
class Unscored:
    """A case without scores, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Summary:
    """All cases' scores of one label.

    Attributes:
        label: which.
        dice: of every case.
        worst: the case of the least.
        hd95: of every case where both masks have the label, all in one unit.
        unit: that unit; millimetres if any case's are known, and the others are left out.
        lost: cases where only one of the two masks has it.
        other_unit: cases left out.
    """

    label: int
    dice: tuple[float, ...]
    worst: str
    hd95: tuple[float, ...]
    unit: Unit
    lost: int
    other_unit: int


@dataclass(frozen=True, repr=False)
class Evaluation:
    """How good a folder of masks is.

    Attributes:
        scores: of every case and label.
        failed: cases without scores, and why.
        ignored: labels that were found and not evaluated.
    """

    scores: tuple[Score, ...]
    failed: tuple[Unscored, ...] = ()
    ignored: tuple[int, ...] = ()

    @property
    def summaries(self) -> list[Summary]:
        """A summary for each label."""
        return summarise(self.scores)

    @property
    def dice(self) -> dict[int, float]:
        """The mean Dice of each label."""
        return {one.label: mean_sd(one.dice)[0] for one in self.summaries}

    def __str__(self) -> str:
        lines = [
            f"label {one.label}: Dice {mean_sd(one.dice)[0]:.3f} over {len(one.dice)} cases, worst {one.worst} "
            f"{min(one.dice):.3f}; HD95 {mean_sd(one.hd95)[0]:.2f} {one.unit}"
            for one in self.summaries
        ]
        return "\n".join([*lines, *(f"not scored: {one.name}: {one.reason}" for one in self.failed)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cells = [
            (one.case, one.label, f"{one.dice:.3f}", f"{one.hd95:.2f} {one.unit}", one.predicted, one.true)
            for one in self.scores
        ]
        head = "".join(f"<th>{name}</th>" for name in ("case", "label", "Dice", "HD95", "predicted", "true"))
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(str(one))}</td>' for one in row)}</tr>" for row in cells)
        return f"<table><tr>{head}</tr>{body}</table>"


def evaluate(
    predicted: str | Path,
    truth: str | Path,
    *,
    labels: Sequence[int] | None = None,
    spacing: Spacing | None = None,
    each: Callable[[int], None] = lambda total: None,
) -> Evaluation:
    """Score masks against the truth: 3D Dice and HD95 of every case.

    Args:
        predicted: a mask, or a folder of masks.
        truth: the true mask, or a folder of them; files are matched by name.
        labels: which to evaluate; default: those in any truth.
        spacing: millimetres along z, y, x, for files whose headers say 1 1 1.
        each: called after every case, with the number of cases.
    """
    if spacing is not None and not all(math.isfinite(step) and step > 0 for step in spacing):
        raise ValueError(f"spacing: {list(spacing)} must be three lengths above 0")
    pairs, unmatched = match_masks(Path(predicted), Path(truth))
    found: list[Scored] = []
    failed = list(unmatched)
    for result in score_pairs(pairs, spacing):
        if isinstance(result, Unscored):
            failed.append(result)
        else:
            found.append(result)
        each(len(pairs))
    scores, ignored = complete(found, labels)
    if found and not scores:
        raise ValueError(f"no truth in {truth} has any label; say which there are with --classes or --labels")
    return Evaluation(tuple(scores), tuple(sorted(failed, key=lambda one: one.name)), tuple(ignored))


def match_masks(predicted: Path, truth: Path) -> tuple[list[Pair], list[Unscored]]:
    """Pairs of two files, or of the files of the same case in two folders; and the cases that are in one only.

    In a folder that has ``CASE_segmentation`` files, those are the masks; ``*_probability`` never are.
    """
    for path in (predicted, truth):
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist")
    if predicted.is_dir() != truth.is_dir():
        folder, file = (predicted, truth) if predicted.is_dir() else (truth, predicted)
        raise ValueError(f"{folder} is a folder and {file} is a file: give two folders, or two files")
    if not predicted.is_dir():
        return [Pair(_case(predicted), predicted, truth)], []
    ours, theirs = _masks(predicted), _masks(truth)
    pairs, unscored = [], []
    for name in sorted(ours.keys() | theirs.keys()):
        mine, yours = ours.get(name, []), theirs.get(name, [])
        if len(mine) > 1 or len(yours) > 1:
            several = ", ".join(str(file) for file in (mine if len(mine) > 1 else yours))
            unscored.append(Unscored(name, f"there are several masks: {several}"))
        elif not mine:
            unscored.append(Unscored(name, f"no mask in {predicted} for the truth {yours[0].name}"))
        elif not yours:
            unscored.append(Unscored(name, f"no truth in {truth} for the mask {mine[0].name}"))
        else:
            pairs.append(Pair(name, mine[0], yours[0]))
    if not pairs:
        raise ValueError(
            f"no case is in both folders: {predicted} has {_some(ours)}, {truth} has {_some(theirs)}; "
            "files are matched by name"
        )
    return pairs, unscored


def score_pairs(pairs: Iterable[Pair], spacing: Spacing | None = None) -> Iterator[Scored | Unscored]:
    """Scores of every pair, or why there are none.

    Args:
        pairs: from ``match_masks``.
        spacing: millimetres along z, y, x where the headers do not say.
    """
    for pair in pairs:
        try:
            yield _score(pair, spacing)
        except (ValueError, OSError) as error:
            yield Unscored(pair.name, str(error))


def complete(cases: Sequence[Scored], labels: Sequence[int] | None = None) -> tuple[list[Score], list[int]]:
    """Scores of every case for the same labels, and the labels that are left out.

    Args:
        cases: from ``score_pairs``.
        labels: which; default: those in any truth.
    """
    found = [score for case in cases for score in case.scores]
    if labels is None:
        labels = sorted({score.label for score in found if score.true})
    known = {(score.case, score.label): score for score in found}
    table = [
        known.get((case.name, label), Score(case.name, label, 1.0, math.nan, case.unit, 0, 0))
        for case in cases
        for label in labels
    ]
    return table, sorted({score.label for score in found} - set(labels))


def summarise(scores: Sequence[Score]) -> list[Summary]:
    """A summary for each label."""
    summaries = []
    for label in sorted({score.label for score in scores}):
        ours = [score for score in scores if score.label == label]
        unit: Unit = "mm" if any(score.unit == "mm" for score in ours) else "voxels"
        measured = [score for score in ours if math.isfinite(score.hd95)]
        same = tuple(score.hd95 for score in measured if score.unit == unit)
        summaries.append(
            Summary(
                label,
                tuple(score.dice for score in ours),
                min(ours, key=lambda score: score.dice).case,
                same,
                unit,
                sum(math.isinf(score.hd95) for score in ours),
                len(measured) - len(same),
            )
        )
    return summaries


def scores_csv(scores: Iterable[Score]) -> str:
    """A line for each case and label; HD95 is ``inf`` where one mask is empty, and nothing where both are."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in scores:
        hd95 = "" if math.isnan(one.hd95) else f"{one.hd95:.6g}"
        writer.writerow([one.case, one.label, f"{one.dice:.6g}", hd95, one.unit, one.predicted, one.true])
    return text.getvalue()


def mean_sd(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation (n - 1) of values; not a number where there are too few."""
    mean = statistics.fmean(values) if values else math.nan
    return mean, statistics.stdev(values) if len(values) > 1 else math.nan


def dice_of(predicted: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    """2|P∩Y| / (|P| + |Y|) by MONAI; two empty masks give 1."""
    from monai.metrics.meandice import compute_dice

    return float(compute_dice(_batch(predicted).float(), _batch(truth).float(), ignore_empty=False))


def hd95_of(predicted: NDArray[np.bool_], truth: NDArray[np.bool_], spacing: Spacing) -> float:
    """The larger, of the two ways, of the 95th percentiles of the distance from surface to surface; by MONAI."""
    require("scipy", "HD95", "train")
    from monai.metrics.hausdorff_distance import compute_hausdorff_distance

    empty = int(not predicted.any()) + int(not truth.any())
    if empty:
        return math.inf if empty == 1 else math.nan
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*always_return_as_numpy", category=FutureWarning)  # MONAI's own
        distance = compute_hausdorff_distance(
            _batch(predicted),
            _batch(truth),
            include_background=True,  # the one channel there is
            percentile=95,
            spacing=list(spacing),
        )
    return float(distance)


def _batch(mask: NDArray[np.bool_]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(mask))[None, None]


def _score(pair: Pair, assumed: Spacing | None) -> Scored:
    predicted, truth = read_volume(pair.predicted), read_volume(pair.truth)
    check_same_grid(predicted, truth)
    spacing = _spacing(predicted, truth, assumed)
    unit: Unit = "voxels" if spacing is None else "mm"
    ours, theirs = _labels(predicted), _labels(truth)
    scores = []
    for label in np.union1d(ours, theirs).tolist():
        if label == 0:
            continue
        mine, yours = ours == label, theirs == label
        hd95 = hd95_of(mine, yours, spacing or (1.0, 1.0, 1.0))
        scores.append(Score(pair.name, label, dice_of(mine, yours), hd95, unit, int(mine.sum()), int(yours.sum())))
    return Scored(pair.name, unit, tuple(scores))


def _spacing(predicted: Volume, truth: Volume, assumed: Spacing | None) -> Spacing | None:
    """Millimetres along z, y, x, if anybody knows."""
    known = [volume for volume in (truth, predicted) if volume.spacing_known]
    return known[0].spacing if known else assumed


def _labels(volume: Volume) -> NDArray[np.uint8]:
    """A mask's labels; what is no mask is refused."""
    low, high = float(volume.voxels.min()), float(volume.voxels.max())
    if low < 0 or high > 255:
        raise ValueError(f"{volume.path} has values from {low:g} to {high:g}: labels are 0..255. Is it an image?")
    labels: NDArray[np.uint8] = volume.voxels.astype(np.uint8)
    if np.issubdtype(volume.voxels.dtype, np.floating) and not np.array_equal(labels, volume.voxels):
        raise ValueError(f"{volume.path} has values that are not whole numbers: is it an image, or probabilities?")
    different = np.count_nonzero(np.bincount(labels.ravel(), minlength=256))
    if different > MOST_LABELS:
        raise ValueError(f"{volume.path} has {different} different values: it looks like an image, not a mask")
    return labels


def _case(file: Path) -> str:
    name = volume_name(file)
    if name is None:
        raise ValueError(f"{file} is not a volume: it should end in .mhd, .mha, .nii or .nii.gz")
    return name[: -len(TRUE)] if name.lower().endswith(TRUE) else name


def _masks(folder: Path) -> dict[str, list[Path]]:
    """A folder's masks by case."""
    files = [
        (name, file)
        for file in sorted(folder.iterdir())
        if (name := volume_name(file)) is not None
        and not name.startswith(".")
        and not name.endswith("_probability")
    ]
    if not files:
        raise FileNotFoundError(f"{folder} holds no volumes (.mhd, .mha, .nii, .nii.gz)")
    named = [(name, file) for name, file in files if name.lower().endswith(TRUE)]
    masks: dict[str, list[Path]] = {}
    for _, file in named or files:
        masks.setdefault(_case(file), []).append(file)
    return masks


def _some(masks: dict[str, list[Path]]) -> str:
    return ", ".join(file.name for files in list(masks.values())[:3] for file in files) + ", ..." * (len(masks) > 3)
