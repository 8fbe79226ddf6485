"""Masks against the truth: two files, or every case of two folders, scored in 3D."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ringfence.hints import listed, one_line
from ringfence.weak.evaluation.numbering import MEANT, WHITE, check_in_common, missed
from ringfence.weak.evaluation.scores import (
    Score,
    Scored,
    Spacing,
    Summary,
    Unit,
    Unscored,
    complete,
    dice_of,
    hd95_of,
    mean_sd,
    summarise,
)
from ringfence.weak.ranks.cases import Crew
from ringfence.weak.volumes import (
    ENDINGS,
    Volume,
    check_same_grid,
    pictures_among,
    read_volume,
    volume_name,
    volumes_among,
    what_is_read,
)

TRUE: Final = "_segmentation"
MOST_LABELS: Final = 200
"""More different values than this are an image's."""


@dataclass(frozen=True)
class Pair:
    """A case's mask and its truth."""

    name: str
    predicted: Path
    truth: Path


@dataclass(frozen=True, repr=False)
class Evaluation:
    """How good a folder of masks is.

    Attributes:
        scores: of every case and label.
        failed: cases without scores, and why.
        ignored: labels that were found and not evaluated.
        missed: evaluated labels that are in no mask, and the cases where the masks have others in their place.
    """

    scores: tuple[Score, ...]
    failed: tuple[Unscored, ...] = ()
    ignored: tuple[int, ...] = ()
    missed: Mapping[int, tuple[str, ...]] = field(default_factory=dict, hash=False)

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
            f"label {one.label}: Dice {mean_sd(one.dice)[0]:.3f} over {len(one.dice)} cases, worst "
            f"{one_line(one.worst)} {min(one.dice):.3f}; HD95 {mean_sd(one.hd95)[0]:.2f} {one.unit}"
            for one in self.summaries
        ]
        lines += self.remarks
        return "\n".join([*lines, *(f"not scored: {one_line(f'{one.name}: {one.reason}')}" for one in self.failed)])

    @property
    def remarks(self) -> list[str]:
        """A line about each label that may be another one's, written in another number."""
        return [
            f"Label {label} is in no mask; others are, where the truth has it: {listed(cases)}"
            + f". {MEANT}" * (label == WHITE)
            for label, cases in self.missed.items()
        ]

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
    crew: Crew | None = None,
) -> Evaluation:
    """Score masks against the truth: 3D Dice and HD95 of every case.

    Args:
        predicted: a mask, or a folder of masks.
        truth: the true mask, or a folder of them; files are matched by name.
        labels: which to evaluate; default: those in any truth.
        spacing: millimetres along z, y, x, for files whose headers say 1 1 1.
        each: called after every case, with the number of cases.
        crew: ``Crew(workers=4)``: processes that do the cases; scores are the same.

    Raises:
        ValueError: if masks and truth have labels and none in common, unless ``labels`` names all of them: they
            are then numbered in two ways, and a Dice of 0 would be of that.
    """
    crew = crew or Crew()
    crew.check_same(labels=labels and list(labels))
    found, failed = compared(Path(predicted), Path(truth), spacing, each, crew)
    scores, ignored = complete(found, labels)
    if found and not scores:
        raise ValueError(f"no truth in {truth} has any label; say which there are with --classes or --labels")
    check_in_common(found, labels or (), predicted, truth)
    return Evaluation(tuple(scores), tuple(failed), tuple(ignored), missed(found, {one.label for one in scores}))


def compared(
    one: Path,
    other: Path,
    spacing: Spacing | None,
    each: Callable[[int], None],
    crew: Crew,
    other_is: str = "truth",
) -> tuple[list[Scored], list[Unscored]]:
    """Scores of the cases of two folders, or of two files; and the cases without, by name.

    Args:
        one: masks.
        other: masks to compare them with.
        spacing: millimetres along z, y, x where the headers do not say.
        each: called after every case, with the number of cases.
        crew: who does them.
        other_is: what to call the other's masks.
    """
    if spacing is not None and not all(math.isfinite(step) and step > 0 for step in spacing):
        raise ValueError(f"spacing: {list(spacing)} must be three lengths above 0")
    pairs, failed = match_masks(one, other, other_is)
    crew.check_same(cases=[pair.name for pair in pairs], failures=[case.name for case in failed], spacing=spacing)
    found: list[Scored] = []
    with closing(crew.results(_scoring, (spacing,), pairs)) as results:
        for result in results:
            if isinstance(result, Unscored):
                failed.append(result)
            else:
                found.append(result)
            each(len(pairs))
    return found, sorted(failed, key=lambda case: case.name)


def match_masks(predicted: Path, truth: Path, truth_is: str = "truth") -> tuple[list[Pair], list[Unscored]]:
    """Pairs of two files, or of the files of the same case in two folders; and the cases that are in one only.

    In a folder that has ``CASE_segmentation`` files, those are the masks; ``*_probability`` never are, nor PNGs
    that are pictures: ``*_overlay.png``, and those beside NIfTI or MetaImage.

    Args:
        predicted: a mask, or a folder of them.
        truth: what to match it with.
        truth_is: what to call that.
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
    pictures = [pictures_among(_candidates(folder)) for folder in (predicted, truth)]
    pairs, unscored = [], []
    for name in sorted(ours.keys() | theirs.keys()):
        mine, yours = ours.get(name, []), theirs.get(name, [])
        if len(mine) > 1 or len(yours) > 1:
            several = listed(str(file) for file in (mine if len(mine) > 1 else yours))
            unscored.append(Unscored(name, f"there are several masks: {several}"))
        elif not mine:
            why = _taken(pictures[0], name)
            unscored.append(Unscored(name, f"no mask in {predicted} for the {truth_is} {yours[0].name}{why}"))
        elif not yours:
            why = _taken(pictures[1], name)
            unscored.append(Unscored(name, f"no {truth_is} in {truth} for the mask {mine[0].name}{why}"))
        else:
            pairs.append(Pair(name, mine[0], yours[0]))
    if not pairs:
        taken = next(filter(None, (_taken(those, one.name) for those in pictures for one in unscored)), "")
        raise ValueError(
            f"no case is in both folders: {predicted} has {_some(ours)}, {truth} has {_some(theirs)}; "
            f"files are matched by name{taken}"
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


def _scoring(spacing: Spacing | None) -> Callable[[Iterable[Pair]], Iterator[Scored | Unscored]]:
    return partial(score_pairs, spacing=spacing)


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
        raise ValueError(f"{file} is not a volume: its name should end in {', '.join(ENDINGS)}")
    return name[: -len(TRUE)] if name.lower().endswith(TRUE) else name


def _masks(folder: Path) -> dict[str, list[Path]]:
    """A folder's masks by case."""
    files = volumes_among(_candidates(folder))
    if not files:
        raise FileNotFoundError(f"{folder} holds no volumes: {what_is_read(folder.iterdir())}")
    named = [(name, file) for name, file in files if name.lower().endswith(TRUE)]
    masks: dict[str, list[Path]] = {}
    for _, file in named or files:
        masks.setdefault(_case(file), []).append(file)
    return masks


def _candidates(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.iterdir()) if not (volume_name(file) or "").endswith("_probability")]


def _taken(pictures: Mapping[str, str], case: str) -> str:
    """Why a case's PNG is no mask, if one is there."""
    found = pictures.get(case) or pictures.get(f"{case}{TRUE}")
    return f": {found}" if found else ""


def _some(masks: dict[str, list[Path]]) -> str:
    names = [one_line(file.name) for files in list(masks.values())[:3] for file in files]
    return ", ".join(names) + ", ..." * (len(masks) > 3)
