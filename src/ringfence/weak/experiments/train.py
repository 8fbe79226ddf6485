"""One model from the boxes of a prepared set."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from ringfence.files import check_room
from ringfence.weak.experiments.on_ranks import check_same_everywhere, on_ranks
from ringfence.weak.experiments.one_training import (
    about_data,
    begins,
    checked_box_task,
    checked_network,
    console_for,
    resumable,
    say_remarks,
    skipped,
    train_one,
)
from ringfence.weak.experiments.outputs import bytes_needed
from ringfence.weak.experiments.parsing import as_config
from ringfence.weak.experiments.refine import check_refine, first_lesson, label_bytes, train_rounds
from ringfence.weak.experiments.settings import TrainSettings
from ringfence.weak.experiments.trained import Trained
from ringfence.weak.ranks.world import World
from ringfence.weak.training.progress import ProgressBars
from ringfence.weak.training.run_folder import OneRun, flat, run_in


def train(
    settings: TrainSettings,
    out: str | Path,
    *,
    resume: bool = False,
    progress: bool = True,
    console: Console | None = None,
    note: str = "",
) -> Trained:
    """Train one model from the boxes of a prepared set.

    Args:
        settings: what to do; ``from_preset(TrainSettings, "boxes")`` to begin from.
        out: a new folder, or with ``resume`` that of an interrupted training.
        resume: go on where that training stopped.
        progress: show it.
        console: where progress is shown; default: stderr, as always if ``training.devices`` starts processes.
        note: said when the training begins: where its settings come from, say.

    Returns:
        The folder with its epochs and its model.
    """
    if not isinstance(settings, TrainSettings):
        raise TypeError(
            'settings: weak.from_preset(weak.TrainSettings, "boxes", {"data.prepared": FOLDER}) makes them; got '
            f"{type(settings).__name__}"
        )
    where = None if settings.training.devices > 1 else console
    on_ranks(_train, settings, Path(out), resume, progress, where, note)
    return Trained(Path(out))


def _train(
    world: World,
    settings: TrainSettings,
    out: Path,
    resume: bool,
    progress: bool,
    console: Console | None,
    note: str = "",
) -> None:
    """What each rank does."""
    method = settings.method_name
    task, prepared = checked_box_task(settings, [method], console_for(progress, console))
    settings = settings.lasting(task.count)
    network = checked_network(settings, task)
    run, about = OneRun(out), about_data(settings, task, prepared)
    check_same_everywhere(flat(as_config(settings)) | about)
    check_refine(settings, prepared, out, resume)
    left = 0 if resume and run.finished_after(settings.training.length) else 1 + settings.refine
    check_room(out, bytes_needed(task, network, left) + bool(left) * label_bytes(settings, prepared))
    with (
        resumable(out),
        run_in(out, as_config(settings), resume, about),
        ProgressBars(console_for(progress, console), 1 + settings.refine, settings.training.length) as bars,
    ):
        for line in note.splitlines():
            bars.say(line)
        say_remarks(task, bars)
        bars.say(begins(settings, task))
        if skipped(run, settings.training):
            bars.skip()
        elif settings.refine:
            train_rounds(settings, task, prepared, out, bars, world)
        else:
            settings, task = first_lesson(settings, task, prepared, out, bars, world)
            train_one(settings, task, method, settings.seed, run, bars, world)
