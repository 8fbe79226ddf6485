"""Progress bars over methods and epochs, with the time that is left."""

from __future__ import annotations

import math
from types import TracebackType
from typing import Any, Final

import pytorch_lightning as pl
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ringfence.hints import printable

WHOLE_RUN: Final = 1e9
"""Seconds over which speed is estimated: bars move once an epoch, and an epoch may take minutes."""


class ProgressBars:
    """Two bars, everything and the training under way; on anything but a terminal, ten lines a training.

    Args:
        console: where to.
        trainings: how many trainings there are in all.
        epochs: how many epochs each has.
    """

    def __init__(self, console: Console, trainings: int, epochs: int) -> None:
        self.console, self._epochs = console, epochs
        self._progress = Progress(
            TextColumn("{task.description:<34}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            speed_estimate_period=WHOLE_RUN,
            disable=not console.is_terminal,
        )
        self._all = self._progress.add_task("all epochs", total=trainings * epochs)
        self._one = self._progress.add_task("", total=epochs, visible=False)

    def __enter__(self) -> ProgressBars:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, title: str, done: int = 0) -> None:
        """A training begins, or goes on after ``done`` epochs."""
        self._progress.reset(self._one, total=self._epochs, completed=done, description=title, visible=True)
        self._leave_out(done)

    def epoch(self, title: str) -> None:
        """An epoch is over."""
        self._progress.update(self._one, advance=1, description=title)
        self._progress.advance(self._all)
        done = int(self._progress.tasks[1].completed)
        tenth = 10 * done // self._epochs > 10 * (done - 1) // self._epochs
        if not self.console.is_terminal and done < self._epochs and tenth:
            self.say(f"{title}, epoch {done} of {self._epochs}")

    def skip(self) -> None:
        """A training is finished already."""
        self._leave_out(self._epochs)

    def _leave_out(self, epochs: int) -> None:
        """Epochs of an earlier session took none of this one's time, so they are not part of its total."""
        total = self._progress.tasks[0].total or 0
        self._progress.update(self._all, total=total - epochs)

    def say(self, line: str) -> None:
        """A line above the bars, or in the log; it may name what other people named."""
        self.console.print(printable(line), highlight=False, soft_wrap=True, markup=False)


class EpochBar(pl.Callback):
    """Moves the bars on after each epoch of one training."""

    def __init__(self, bars: ProgressBars, title: str) -> None:
        super().__init__()
        self._bars, self._title = bars, title

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin where the checkpoint left; what the module has to say goes above the bars."""
        if not self._bars.console.quiet:
            setattr(pl_module, "tell", self._bars.say)  # noqa: B010 - not every module has it
        self._bars.begin(self._title, done=trainer.current_epoch)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """One more."""
        self._bars.epoch(f"{self._title}: DSC {_value(trainer, 'dice')}")


def _value(trainer: Any, name: str) -> str:
    value = trainer.callback_metrics.get(name)
    return "?" if value is None or math.isnan(value) else f"{float(value):.3f}"
