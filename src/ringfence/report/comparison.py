"""What a comparison's folder holds, read back: epochs by method and seed, and the table's rows."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringfence.documents import read_json
from ringfence.files import read_text
from ringfence.weak.training.measures import MEASURES
from ringfence.weak.training.methods import METHODS, title_of
from ringfence.weak.training.run_folder import ENVIRONMENT, METRICS, TASK, stored_config

PAPER: Final = {
    "synthetic": {
        "lagrangian": (0.005, 0.014),
        "relu_lagrangian": (0.798, 0.006),
        "penalty": (0.712, 0.022),
        "log_barrier": (0.945, 0.001),
        "full_supervision": (0.998, 0.000),
    },
    "promise12": {
        "lagrangian": (0.000, 0.000),
        "relu_lagrangian": (0.000, 0.000),
        "penalty": (0.000, 0.000),
        "log_barrier": (0.813, 0.024),
        "full_supervision": (0.880, 0.001),
    },
}
"""The paper's two columns: Dice, mean (sd) over the last 10 epochs of one run."""

Epoch = dict[str, float]


@dataclass(frozen=True)
class Row:
    """A method's row of the table; means over seeds of means over the last epochs.

    Attributes:
        method: its name.
        dice: mean Dice.
        spread: standard deviation over the last epochs, averaged over seeds: the paper's.
        between_seeds: standard deviation of the seeds' means; NaN for a single seed.
        measures: means of everything that was measured, by its name in ``MEASURES``.
        seconds: of a training epoch, dual update included, validation apart: the median.
        seeds: how many.
        epochs: how many the shortest of its trainings has: fewer than planned while it is going on.
    """

    method: str
    dice: float
    spread: float
    between_seeds: float
    measures: dict[str, float]
    seconds: float
    seeds: int
    epochs: int

    @property
    def title(self) -> str:
        """The name a reader knows it by."""
        return title_of(self.method)


@dataclass(frozen=True)
class Comparison:
    """Every epoch of every training in a folder.

    Attributes:
        path: the folder.
        epochs: rows of ``metrics.csv`` by method and seed.
        planned: how many epochs a training was to have; None if nobody says.
        task: what was compared on: ``synthetic``, or the name of a prepared set.
    """

    path: Path
    epochs: dict[str, dict[int, list[Epoch]]]
    planned: int | None = None
    task: str = "synthetic"

    @property
    def paper(self) -> dict[str, tuple[float, float]]:
        """The paper's numbers for this task, by method; none if it has none."""
        return PAPER.get(self.task.lower(), {})

    @property
    def length(self) -> int:
        """How many epochs a training has when it is finished."""
        return self.planned or max(len(rows) for seeds in self.epochs.values() for rows in seeds.values())

    @property
    def last(self) -> int:
        """How many epochs count for the table: the last fifth, 10 of 50 as in the paper."""
        return max(1, self.length // 5)

    @property
    def seeds(self) -> list[int]:
        """The seeds, in order."""
        return sorted({seed for seeds in self.epochs.values() for seed in seeds})

    @property
    def measured(self) -> list[str]:
        """Which of ``MEASURES`` the trainings have, in the table's order."""
        columns = {name for seeds in self.epochs.values() for rows in seeds.values() for name in rows[-1]}
        return [name for name in MEASURES if name in columns]

    @property
    def judged(self) -> bool:
        """Whether there was any mask to judge by."""
        rows = (row for seeds in self.epochs.values() for some in seeds.values() for row in some)
        return any(math.isfinite(row["dice"]) for row in rows)

    def rows(self) -> list[Row]:
        """The table, a row for each method."""
        return [self._row(method, seeds) for method, seeds in self.epochs.items()]

    def _row(self, method: str, seeds: dict[int, list[Epoch]]) -> Row:
        tails = [rows[-self.last :] for rows in seeds.values()]
        means = [_mean(row["dice"] for row in tail) for tail in tails]
        return Row(
            method=method,
            dice=_mean(means),
            spread=_mean(_spread(row["dice"] for row in tail) for tail in tails),
            between_seeds=_between(means),
            measures={
                name: _mean(row[name] for tail in tails for row in tail if name in row) for name in self.measured
            },
            seconds=statistics.median(row["seconds_train"] for rows in seeds.values() for row in rows),
            seeds=len(seeds),
            epochs=min(len(rows) for rows in seeds.values()),
        )


def read_comparison(path: str | Path) -> Comparison:
    """Read a folder that ``ringfence compare`` wrote; trainings that have not finished an epoch are left out."""
    path = Path(path)
    found: dict[str, dict[int, list[Epoch]]] = {}
    files = sorted(path.glob(f"seed-*/*/{METRICS}"), key=lambda file: (_place(file.parent.name), _seed(file)))
    for file in files:
        found.setdefault(file.parent.name, {})[_seed(file)] = _read(file)
    if not found:
        raise FileNotFoundError(f"{path} holds no comparison: there is no seed-*/METHOD/metrics.csv in it")
    return Comparison(path, found, _planned(path), _task(path))


def _task(path: Path) -> str:
    """The task that the run's environment names; else what its config tells, which never is the paper's data."""
    try:
        task = read_json(path / ENVIRONMENT)[TASK]
    except (OSError, ValueError, KeyError, TypeError):
        task = None
    if isinstance(task, str):
        return task
    try:
        prepared = "prepared" in stored_config(path)["data"]
    except (OSError, ValueError, KeyError, TypeError):
        prepared = False
    return "a prepared set" if prepared else "synthetic"  # runs of the first version name none, and are synthetic


def _planned(path: Path) -> int | None:
    """``training.epochs`` of the run's config; None if nobody says."""
    try:
        epochs = stored_config(path)["training"]["epochs"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return epochs if type(epochs) is int and epochs > 0 else None


def _place(method: str) -> tuple[int, str]:
    """Where a method comes in the table: those of the registry in its order, then others by name."""
    return (list(METHODS).index(method) if method in METHODS else len(METHODS)), method


def _seed(file: Path) -> int:
    name = file.parent.parent.name.removeprefix("seed-")
    if not (name.isascii() and name.isdigit() and len(name) < 12):
        raise ValueError(f"{file.parent.parent} should be named seed-NUMBER")
    return int(name)


def _read(file: Path) -> list[Epoch]:
    try:
        lines = io.StringIO(read_text(file), newline="")
        rows = [
            {name: float(value) if value else math.nan for name, value in row.items()}
            for row in csv.DictReader(lines)
        ]
        for row in rows:
            _ = row["epoch"], row["satisfaction"], row["seconds_train"]
            row.setdefault("dice", math.nan)
    except (ValueError, TypeError, KeyError, csv.Error) as error:
        raise ValueError(f"{file} is damaged: {error}; it should be as `ringfence compare` wrote it") from None
    if not rows:
        raise ValueError(f"{file} is damaged: it has no epoch")
    return rows


def _mean(values: Iterable[float]) -> float:
    defined = _defined(values)
    return statistics.fmean(defined) if defined else math.nan


def _spread(values: Iterable[float]) -> float:
    defined = _defined(values)
    return statistics.pstdev(defined) if defined else math.nan


def _between(values: Iterable[float]) -> float:
    defined = _defined(values)
    return statistics.stdev(defined) if len(defined) > 1 else math.nan


def _defined(values: Iterable[float]) -> Sequence[float]:
    """Those that are: a set without masks has no Dice, and a diverged training may measure infinities."""
    return [value for value in values if math.isfinite(value)]
