"""Refinement: a model's answers on its own training images, cut to what their labels say, teach the next one.

    teacher-0/    labels from brightness, where the first network learns from these (appearance/labels.py)
    round-0/      the training from constraints, and from those labels
    teacher-1/    what it finds in the training images (tasks/taught.py)
    round-1/      a new network: cross-entropy and Dice loss on that, and the constraints
    ...

Rounds are judged by boxes (``box_iou``, no mask is needed): one that is not better is the last, and the last
that is not worse by a twentieth is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ringfence.files import read_bytes, write_bytes
from ringfence.weak.constraints.odds import YARDSTICK
from ringfence.weak.experiments.one_training import skipped, train_one
from ringfence.weak.experiments.settings import TrainSettings
from ringfence.weak.experiments.teacher import MOST_CLASSES, look, teach
from ringfence.weak.inference.model_file import MODEL
from ringfence.weak.prepared.prepared_set import PreparedSet
from ringfence.weak.ranks.world import World, from_all
from ringfence.weak.tasks.task import Task
from ringfence.weak.tasks.taught import taught
from ringfence.weak.training.divergence import Diverged
from ringfence.weak.training.measures import decimals
from ringfence.weak.training.methods import LARGEST, ConstrainedSettings, LogBarrier, MethodSettings, Penalty, Unit
from ringfence.weak.training.progress import ProgressBars
from ringfence.weak.training.run_folder import LENGTH, METRICS, PICTURES_FILE, OneRun, flat, stored_config

ABOUT: Final = 0.95
"""Of the best agreement: what fills its boxes agrees with them best, and a student, which leaves corners out, a
little less. Of those in results/plan/ that had less than this, one had gained 0.004 of Dice, the others had
lost."""
SEEDS: Final = 1000
"""From one round's seed to the next: a new network, and none of another run's that has the next seed."""


@dataclass(frozen=True)
class Round:
    """A finished round.

    Attributes:
        number: which.
        run: its folder.
        box_iou: mean agreement of its answers with the boxes of validation; not a number where there is no box.
        dice: not a number where there is no mask.
    """

    number: int
    run: OneRun
    box_iou: float
    dice: float

    @property
    def words(self) -> str:
        """Its numbers, for a reader."""
        return f"box IoU {decimals(self.box_iou)}, DSC {decimals(self.dice)}"


def check_refine(settings: TrainSettings, prepared: PreparedSet, out: Path, resume: bool) -> None:
    """Refuse what rounds cannot do."""
    if not settings.teaches:
        return
    asked = f"refine {settings.refine}" if settings.refine else "refinement.looks true"
    if len(prepared.classes) > MOST_CLASSES:
        raise ValueError(
            f"{asked}: a teacher's labels have room for {MOST_CLASSES} classes, and "
            f"{prepared.path} has {len(prepared.classes)}"
        )
    if settings.refinement.looks and settings.data.patch is not None:
        raise ValueError(
            "refinement.looks true: labels from brightness are of slices, and data.patch asks for volumes: leave "
            "out one of them"
        )
    before = flat(stored_config(out)).get(LENGTH) if resume else None
    if before is None or before == settings.training.length:
        return
    if settings.refine:
        raise ValueError(
            f"{LENGTH}: the rounds of {out} have {before} epochs each, and later ones follow from the first: they "
            f"cannot go on to {settings.training.length}. Begin a new run with --out"
        )
    own = settings.method_settings[settings.method_name]
    if settled(own, before) != settled(own, settings.training.length):
        raise ValueError(
            f"{LENGTH}: {out} learns from labels, and has its constraints as they are after {before} epochs, which "
            f"is not as they are after {settings.training.length}. Begin a new run with --out"
        )


def label_bytes(settings: TrainSettings, prepared: PreparedSet) -> int:
    """What all rounds' labels take on the disk."""
    return (settings.refine + settings.refinement.looks) * sum(
        case.shape[0] * math.prod(prepared.size) for case in prepared.of("train")
    )


def train_rounds(
    settings: TrainSettings, task: Task, prepared: PreparedSet, out: Path, bars: ProgressBars, world: World
) -> None:
    """Train round after round, each if it is not finished already; the best one's model becomes the run's.

    Args:
        settings: of the training.
        task: of the prepared set; its masks make room for a teacher's labels.
        prepared: the set.
        out: the run's folder.
        bars: how far it is.
        world: the ranks that train together.
    """
    rounds: list[Round] = []
    now, task = first_lesson(settings, task, prepared, out, bars, world)
    for number in range(1 + settings.refine):
        run = OneRun(out / f"round-{number}")
        if number:
            folder = out / f"teacher-{number}"
            if not _teach(settings, task, prepared, folder, rounds, bars, world):
                break
            task = taught(task, prepared, folder)
            now = student(settings, task, number)
        try:
            if skipped(run, now.training):
                bars.skip()
            else:
                train_one(now, task, now.method_name, now.seed, run, bars, world)
        except Diverged as error:
            if not rounds:
                raise
            bars.say(f"round {number}: {error}")
            break
        rounds.append(_finished(number, run))
        bars.say(f"round {number} of {settings.refine} at most: {rounds[-1].words}")
        if number and rounds[-1].box_iou <= max(one.box_iou for one in rounds[:-1]):
            break
    best = best_of(rounds)
    for _ in range(len(rounds), 1 + settings.refine):
        bars.skip()
    bars.say(f"kept: round {best.number}, {best.words}")
    if world.first:
        _keep(best, rounds, OneRun(out), settings.seed)
    from_all(None)  # that all is written


def first_lesson(
    settings: TrainSettings, task: Task, prepared: PreparedSet, out: Path, bars: ProgressBars, world: World
) -> tuple[TrainSettings, Task]:
    """How the first network is trained, and on what: with labels from brightness, if these are asked for."""
    if not settings.refinement.looks:
        return settings, task
    folder = out / "teacher-0"
    bars.say(
        f"looking at {sum(case.shape[0] for case in prepared.of('train')):,} slices for labels from brightness"
    )
    about = look(task, prepared, folder, world)
    if not about["labelled"]:
        bars.say("No object is told from its surroundings by brightness: there are no labels, only constraints.")
        return settings, task
    bars.say(f"labels from brightness: {_counted(about)}")
    return student(settings, task, 0), taught(task, prepared, folder)


def best_of(rounds: Sequence[Round]) -> Round:
    """The last one whose boxes agree about as well as the best's; the last one, where nothing tells."""
    if any(math.isnan(one.box_iou) for one in rounds):
        return rounds[-1]
    best = max(one.box_iou for one in rounds)
    return [one for one in rounds if one.box_iou >= ABOUT * best][-1]


def student(settings: TrainSettings, task: Task, number: int) -> TrainSettings:
    """How a taught network is trained: anew, with the constraints as they are at the end of their schedule.

    Labels say what is inside and outside, so that nothing must be found first; and constraints are sums over pixels
    where cross-entropy is a mean: they are divided by the pixels' number, and by the slope t of a violated barrier.
    """
    own = settled(settings.method_settings[settings.method_name], settings.training.length)
    if isinstance(own, ConstrainedSettings):
        scale = settings.refinement.constraints * _measured_in(own.unit, task) / math.prod(task.space)
        if isinstance(own, LogBarrier):
            scale /= own.t
        own = replace(own, weights={name: scale * own.weights.get(name, 1.0) for name in task.constraints})
    return replace(
        settings,
        seed=(settings.seed + SEEDS * number) % 2**31,
        method_settings={**settings.method_settings, own.name: own},
    )


def settled(own: MethodSettings, epochs: int) -> MethodSettings:
    """A method's settings as they are in the last of so many epochs, and stay."""
    own = replace(own, temperature=own.final_temperature)
    if isinstance(own, LogBarrier):
        grown = own.t * float(own.mu or 1.0) ** (epochs - 1)
        return replace(
            own, t=min(grown, LARGEST) if own.final_t is None else own.final_t, mu=1.0, final_t=None, hold=0.0
        )
    if isinstance(own, Penalty):
        return replace(own, strength=min(own.strength * own.mu ** (epochs - 1), LARGEST), mu=1.0)
    return own


def _measured_in(unit: Unit, task: Task) -> float:
    """Pixels that a residual of 1 stands for, about."""
    if unit == "odds":
        return float(task.train[YARDSTICK].mean())
    if unit == "pixels":
        return 1.0
    areas = (task.train["box"][..., 1] - task.train["box"][..., 0]).prod(dim=-1).float()
    return float(areas[areas > 0].mean())


def _teach(
    settings: TrainSettings,
    task: Task,
    prepared: PreparedSet,
    folder: Path,
    rounds: Sequence[Round],
    bars: ProgressBars,
    world: World,
) -> int:
    """Write the labels of the rounds so far; how many pixels of a class there are to learn from."""
    own = settings.refinement
    about = teach(
        [one.run.path / MODEL for one in (rounds if own.teachers == "all" else rounds[-1:])],
        task,
        prepared,
        folder,
        unsure=own.unsure,
        device=settings.training.device,
        trust=settings.network.class_path,
        world=world,
    )
    labelled = int(about["labelled"])
    if labelled:
        bars.say(f"round {len(rounds)} learns from {_counted(about)}")
    else:
        bars.say("There is nothing to refine: no class was found in any of its boxes.")
    return labelled


def _counted(about: Mapping[str, Any]) -> str:
    """How many pixels have a label."""
    return f"{int(about['labelled']):,} pixels of a class; {int(about['unsure']):,} are unsure"


def _finished(number: int, run: OneRun) -> Round:
    """What a round reached, as rank 0 sees it."""
    last: dict[str, Any] = from_all(run.result["last_epoch"] if run.finished else {})[0]
    return Round(number, run, last.get("box_iou", math.nan), last.get("dice", math.nan))


def _keep(best: Round, rounds: Sequence[Round], out: OneRun, seed: int) -> None:
    """The best round's model, epochs and pictures as those of the run; its result, last of all."""
    for name in (MODEL, METRICS, PICTURES_FILE):
        file = best.run.path / name
        write_bytes(out.path / name, read_bytes(file, file.stat().st_size))
    every = [
        {"round": one.number} | {name: _number(getattr(one, name)) for name in ("box_iou", "dice")}
        for one in rounds
    ]
    out.finish(best.run.result | {"seed": seed, "round": best.number, "rounds": every})


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
