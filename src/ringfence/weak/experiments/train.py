"""One model from the boxes of a prepared set."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from ringfence.files import check_room
from ringfence.weak.experiments.one_training import (
    about_data,
    begins,
    checked_box_task,
    checked_network,
    console_for,
    resumable,
    say_unjudged,
    train_one,
)
from ringfence.weak.experiments.outputs import bytes_needed
from ringfence.weak.experiments.parsing import as_config
from ringfence.weak.experiments.settings import TrainSettings
from ringfence.weak.experiments.trained import Trained
from ringfence.weak.training.progress import ProgressBars
from ringfence.weak.training.run_folder import OneRun, run_in


def train(
    settings: TrainSettings,
    out: str | Path,
    *,
    resume: bool = False,
    progress: bool = True,
    console: Console | None = None,
) -> Trained:
    """Train one model from the boxes of a prepared set.

    Args:
        settings: what to do; ``from_preset(TrainSettings, "boxes")`` to begin from.
        out: a new folder, or with ``resume`` that of an interrupted training.
        resume: go on where that training stopped.
        progress: show it.
        console: where progress is shown; default: stderr.

    Returns:
        The folder with its epochs and its model.
    """
    if not isinstance(settings, TrainSettings):
        raise TypeError(
            'settings: weak.from_preset(weak.TrainSettings, "boxes", {"data.prepared": FOLDER}) makes them; got '
            f"{type(settings).__name__}"
        )
    method, out = settings.method_name, Path(out)
    task, prepared = checked_box_task(settings, [method], console_for(progress, console))
    settings = settings.lasting(len(task.train["image"]))
    network = checked_network(settings, task)
    run = OneRun(out)
    check_room(out, bytes_needed(task, network, int(not run.finished)))
    with (
        resumable(out),
        run_in(out, as_config(settings), resume, about_data(settings, task, prepared)),
        ProgressBars(console_for(progress, console), 1, settings.training.length) as bars,
    ):
        say_unjudged(task, bars)
        bars.say(begins(settings, task))
        if run.finished:
            run.tidy()
            bars.skip()
        else:
            train_one(settings, task, method, settings.seed, run, bars)
    return Trained(out)
