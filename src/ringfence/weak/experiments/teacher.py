"""What trained models find in the training images, or brightness alone, as labels for the next one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ringfence import memory
from ringfence.files import checksum
from ringfence.weak.appearance.labels import looked_labels
from ringfence.weak.inference.footprint import FLOAT
from ringfence.weak.inference.model_file import read_model
from ringfence.weak.inference.predictor import Predictor
from ringfence.weak.prepared.prepared_set import Case, PreparedSet
from ringfence.weak.ranks.cases import Crew
from ringfence.weak.ranks.world import World, from_all
from ringfence.weak.tasks.task import Task
from ringfence.weak.tasks.taught import LABELS, finish_labels, labels_about, write_labels
from ringfence.weak.tasks.teaching import KnownOf, Labels, scribbled, taught_labels
from ringfence.weak.tasks.windows import UNSURE

MOST_CLASSES: Final = UNSURE - 1
"""With more, there is no byte left for what is unsure."""
LOOKS: Final = 5
"""The version of labels from brightness."""
LOOKING: Final = {"pixel": 120, "channel": 80, "class": 8}
"""Bytes that these take for a pixel of a slice, for each of its channels, and for each class and the background."""

Labeller: TypeAlias = Callable[[int, Case], Sequence[Labels]]
"""From a training case and its number to labels of its samples."""


def teach(
    models: Sequence[Path],
    task: Task,
    prepared: PreparedSet,
    folder: Path,
    *,
    unsure: float,
    device: str,
    trust: str,
    world: World,
) -> dict[str, Any]:
    """Write a teacher's labels of the training cases, unless they are there; of several ranks, each does some.

    Args:
        models: whose mean answer it is, averaged over flips, turns and neighbouring slices as in validation.
        task: of the prepared set, with what its labels say.
        prepared: the set.
        folder: where to.
        unsure: of the pixels in each box, the share that is left out.
        device: auto, cpu or cuda.
        trust: the class path of the models' network: this training's own.
        world: the ranks.

    Returns:
        What was written: how many pixels have a class (``labelled``), and how many none (``unsure``).
    """
    crew = Crew(1, world)
    about = crew.from_first(
        {"share": unsure, "models": [checksum(model) for model in models] if world.first else []}
    )

    def labeller() -> Labeller:
        for model in models:
            crew.check_sees(model)
        crew.take_gpu()
        predictors = [Predictor(*read_model(model, trust), device=device) for model in models]
        return lambda number, case: taught_labels(answers_of(predictors, task, number, case, prepared), unsure)

    return _written(labeller, about, prepared, folder, crew)


def look(task: Task, prepared: PreparedSet, folder: Path, world: World) -> dict[str, Any]:
    """As ``teach``, for the first model: labels from brightness, of slices (``appearance/labels.py``)."""

    def labels(number: int, case: Case) -> list[Labels]:
        counts = {"pixel": 1, "channel": len(prepared.channels), "class": 1 + len(prepared.classes)}
        each = sum(LOOKING[what] * count for what, count in counts.items())
        memory.check(each * math.prod(prepared.size), f"labelling {case.title}")
        image, _ = prepared.load(case)
        first, known = _first(prepared, number), case.frame(prepared.size).known
        every = (KnownOf.of(task.train, first + row) for row in range(case.shape[0]))
        return [
            scribbled(looked_labels(one, own.box, np.logical_and.reduce(own.whole, axis=-1), UNSURE, known), own)
            for one, own in zip(image, every, strict=True)
        ]

    return _written(lambda: labels, {"looks": LOOKS}, prepared, folder, Crew(1, world))


def _written(
    labeller: Callable[[], Labeller], about: dict[str, Any], prepared: PreparedSet, folder: Path, crew: Crew
) -> dict[str, Any]:
    """Write labels of the training cases, unless those are there that this is said of."""
    world = crew.world
    there: dict[str, Any] = crew.from_first(labels_about(folder) or {} if world.first else {})
    if any(there.get(name) != value for name, value in about.items()):
        label = labeller()
        mine = []
        for number, case in list(enumerate(prepared.of("train")))[world.rank :: world.size]:
            labels = np.stack(label(number, case)).reshape(case.shape[0], *prepared.size)
            counts = int(((labels > 0) & (labels != UNSURE)).sum()), int((labels == UNSURE).sum())
            mine.append((write_labels(folder, case, labels), counts))
        every = [one for theirs in from_all(mine) for one in theirs]
        labelled, left_out = (sum(counts) for counts in zip(*(counts for _, counts in every), strict=True))
        there = about | {"labelled": labelled, "unsure": left_out}
        if world.first:
            finish_labels(folder, [written for written, _ in every], there)
    crew.check_sees(folder / LABELS)
    return there


def answers_of(
    predictors: Sequence[Predictor], task: Task, number: int, case: Case, prepared: PreparedSet
) -> list[tuple[NDArray[np.float32], KnownOf]]:
    """Probabilities and labels of each sample of a case: of its slices, or of the volume. It is the number-th."""
    classes = 1 + len(prepared.classes)
    shape = (case.shape[0], classes, *prepared.size)
    memory.check(3 * FLOAT * math.prod(shape), f"labelling {case.title}")
    image, _ = prepared.load(case)
    mean: NDArray[np.float32] = np.zeros(shape, np.float32)
    for predictor in predictors:
        done = 0
        for answer in predictor(image, prepared.size):
            mean[done : done + len(answer)] += answer.float().cpu().numpy() / len(predictors)
            done += len(answer)
    if len(task.space) == 3:
        return [(mean.transpose(1, 0, 2, 3), KnownOf.of(task.train, number))]
    first = _first(prepared, number)
    return [(one, KnownOf.of(task.train, first + row)) for row, one in enumerate(mean)]


def _first(prepared: PreparedSet, number: int) -> int:
    """The first sample of the number-th case, where each slice is one."""
    return sum(before.shape[0] for before in prepared.of("train")[:number])
