"""One task, every method: trained alike, measured alike, each in a folder of its own, and resumable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ringfence.files import check_room
from ringfence.weak.experiments.on_ranks import check_same_everywhere, on_ranks
from ringfence.weak.experiments.one_training import (
    about_data,
    check_methods,
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
from ringfence.weak.experiments.settings import BoxCompareSettings, SyntheticSettings
from ringfence.weak.ranks.world import World
from ringfence.weak.tasks.discs import disc_task
from ringfence.weak.tasks.task import Task
from ringfence.weak.training.divergence import Diverged
from ringfence.weak.training.fit import title
from ringfence.weak.training.progress import ProgressBars
from ringfence.weak.training.run_folder import RunFolder, flat, run_in


def compare(
    settings: SyntheticSettings | BoxCompareSettings,
    out: str | Path,
    *,
    resume: bool = False,
    progress: bool = True,
    console: Console | None = None,
) -> RunFolder:
    """Train every method with every seed; metrics, predictions and models go to ``out``.

    Args:
        settings: what to do: on two-disc images, or from the boxes of a prepared set.
        out: a new folder, or with ``resume`` that of an interrupted run.
        resume: go on where that run stopped, or with more methods or seeds.
        progress: show it.
        console: where progress is shown; default: stderr, as always if ``training.devices`` starts processes.

    Returns:
        The folder; ``ringfence.report.read_comparison`` makes tables and figures of it.
    """
    console = None if settings.training.devices > 1 else console
    on_ranks(_compare, settings, Path(out), resume, progress, console)
    return RunFolder(Path(out))


def _compare(
    world: World,
    settings: SyntheticSettings | BoxCompareSettings,
    out: Path,
    resume: bool,
    progress: bool,
    console: Console | None,
) -> None:
    """What each rank does: check everything, and train what is not trained yet."""
    methods = settings.method_names
    if isinstance(settings, SyntheticSettings):
        check_methods(settings, methods)
        # impossible sizes are refused before a folder is made
        example, about = disc_task(replace(settings.data, train=1, validation=1), seed=0), {"task": "synthetic"}
        settings = settings.lasting(settings.data.train)
        data = settings.data

        def task_of(seed: int) -> Task:
            return disc_task(data, seed)
    else:
        example, prepared = checked_box_task(settings, methods, console_for(progress, console))
        settings = settings.lasting(example.count)
        about = about_data(settings, example, prepared)

        def task_of(seed: int) -> Task:
            return example

    check_same_everywhere(flat(as_config(settings)) | about)
    _train_all(world, settings, out, example, task_of, about, resume, console_for(progress, console))


def _train_all(
    world: World,
    settings: SyntheticSettings | BoxCompareSettings,
    out: Path,
    example: Task,
    task_of: Callable[[int], Task],
    about: dict[str, str],
    resume: bool,
    console: Console,
) -> None:
    """Make the folder, and train what is not trained yet.

    Args:
        world: the ranks that train together.
        settings: of all trainings.
        out: the folder.
        example: a task like those to come, to check the network by.
        task_of: from a seed to its task.
        about: the task's name, and what its data are known by.
        resume: go on in that folder.
        console: where progress is shown.
    """
    network = checked_network(settings, example)
    trainings = [(seed, method) for seed in settings.seeds for method in settings.method_names]
    begun, epochs = RunFolder(out), settings.training.length
    left = sum(not (resume and begun.run(seed, method).finished_after(epochs)) for seed, method in trainings)
    check_room(out, bytes_needed(example, network, left))
    task, drawn = None, None
    diverged: list[str] = []
    with (
        resumable(out),
        run_in(out, as_config(settings), resume, about) as folder,
        ProgressBars(console, len(trainings), settings.training.length) as bars,
    ):
        say_remarks(example, bars)
        for seed, method in trainings:
            run = folder.run(seed, method)
            if skipped(run, settings.training):
                bars.skip()
                continue
            if task is None or drawn != seed:
                task, drawn = task_of(seed), seed
            try:
                train_one(settings, task, method, seed, run, bars, world)
            except Diverged as error:  # the others are worth having
                diverged.append(f"{title(seed, method)}: {error}")
                bars.say(diverged[-1])
    if diverged:
        counts = (
            f"{len(diverged)} of {len(trainings)} trainings diverged; `ringfence report {out}` shows the others:"
        )
        raise Diverged("\n  ".join([counts, *diverged]))
