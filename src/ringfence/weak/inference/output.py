"""What a prediction leaves: a folder of masks, what was found in each case, and which cases have none."""

from __future__ import annotations

import csv
import html
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringfence.documents import read_json
from ringfence.files import read_text, remove, write_text
from ringfence.folders import content, locked
from ringfence.hints import csv_text, one_line, spreadsheet
from ringfence.weak.inference.image_cases import ImageCase
from ringfence.weak.inference.quality import Quality
from ringfence.weak.volumes import volume_name

UNFINISHED: Final = "unfinished.json"
"""Says what a folder of masks will hold."""
TABLE: Final = "predictions.csv"
"""Says what was found in each case, and how sure that is."""
TOLD: Final = ".found"
"""Ends the names of its parts, which are hidden: one for each case until the command ends."""
COLUMNS: Final = ("case", "class", "voxels", "millilitres", "uncertainty", "flip_agreement")


@dataclass(frozen=True)
class Prediction:
    """What was written for a case.

    Attributes:
        name: the case's.
        file: its mask.
        voxels: of each class, by name.
        spacing: millimetres along z, y, x; None if the header does not know.
        quality: how sure the model is of each class, and whether flips and turns change its mind.
    """

    name: str
    file: Path
    voxels: dict[str, int]
    spacing: tuple[float, float, float] | None
    quality: Quality

    @property
    def found(self) -> str:
        """Voxels of each class, and millilitres where they are known; then how sure the least sure class is."""
        parts = []
        for name, count in self.voxels.items():
            volume = f" ({self._millilitres(count):.1f} ml)" if self.spacing else ""
            parts.append(f"{name} {count:,} voxels{volume}" if count else f"{name}: nothing found")
        doubts = [
            f"{what} {value:.2f}" + (f" ({name})" if len(self.voxels) > 1 else "")
            for what, (value, name) in self._worst()
        ]
        return ", ".join(parts) + (f"; {', '.join(doubts)}" if doubts else "")

    def rows(self) -> list[tuple[object, ...]]:
        """Of the table: a class each."""
        columns = [self.quality.uncertainty, self.quality.flip_agreement or (math.nan,) * len(self.voxels)]
        return [
            (
                spreadsheet(self.name),
                spreadsheet(name),
                count,
                f"{self._millilitres(count):.6g}" if self.spacing else "",
                *("" if math.isnan(value) else f"{value:.4f}" for value in numbers),
            )
            for (name, count), *numbers in zip(self.voxels.items(), *columns, strict=True)
        ]

    def _millilitres(self, count: int) -> float:
        return count * math.prod(self.spacing or ()) / 1000.0

    def _worst(self) -> Iterator[tuple[str, tuple[float, str]]]:
        for what, values, worst in (
            ("uncertainty", self.quality.uncertainty, max),
            ("flips agree", self.quality.flip_agreement or (), min),
        ):
            known = [one for one in zip(values, self.voxels, strict=False) if not math.isnan(one[0])]
            if known:
                yield what, worst(known)


@dataclass(frozen=True)
class Failure:
    """A case that has no mask, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Output:
    """Where predictions go, what is written besides masks, and whether only each class's largest part is kept."""

    folder: Path
    probabilities: bool = False
    overlays: bool = False
    largest: bool = False

    @contextmanager
    def opened(self, asked: Mapping[str, str]) -> Iterator[None]:
        """Nobody else writes to the folder meanwhile; one that already holds something is refused, unchanged.

        Args:
            asked: what masks are made from, and how. A folder where the same was begun is gone on with; until
                ``close``, a file in it says so.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise FileExistsError(f"{self.folder} is a file; masks need a folder. Nothing was changed")
        with locked(self.folder, "written to"):
            if any(file.name != UNFINISHED for file in content(self.folder)):
                self._check_begun(asked)
            write_text(self.folder / UNFINISHED, json.dumps(dict(asked), indent=1) + "\n")
            yield

    def close(self, finished: bool = True) -> None:
        """Make the folder's table of what cases told; and say if everything that was asked for is there."""
        told = sorted(self.folder.glob(f".*{TOLD}"))
        rows = {tuple(row[:2]): row for file in (self.folder / TABLE, *told) for row in _rows(file)}
        if told:
            by_case = sorted(rows.values(), key=lambda row: row[0])  # classes stay in their order
            write_text(self.folder / TABLE, csv_text(COLUMNS, by_case))
            remove(told)
        if finished:
            remove([self.folder / UNFINISHED])

    def tell(self, beside: Path, made: Prediction) -> None:
        """Write a case's part of the table, to be moved with its mask: whoever is killed has lost none."""
        write_text(beside / f".{made.name}{TOLD}", csv_text(COLUMNS, made.rows()))

    def missing(self, cases: Iterable[ImageCase]) -> list[ImageCase]:
        """The cases whose masks are not there yet."""
        return [case for case in cases if not self.mask_of(case).exists()]

    def mask_of(self, case: ImageCase) -> Path:
        """Where a case's mask is once all its files are there: it comes last."""
        first = case.files[0]
        return self.folder / f"{case.name}{first.name[len(volume_name(first) or '') :].lower()}"

    def _check_begun(self, asked: Mapping[str, str]) -> None:
        try:
            begun = read_json(self.folder / UNFINISHED)
        except (OSError, ValueError):
            begun = None
        if not isinstance(begun, dict):
            raise FileExistsError(f"{self.folder} already holds files: name a new folder. Nothing was changed")
        other = [name for name, value in asked.items() if begun.get(name) != value]
        if other:
            raise FileExistsError(
                f"{self.folder} holds masks of a command that was not finished, with other {', '.join(other)}: "
                "repeat that one, or name a new folder. Nothing was changed"
            )


@dataclass(frozen=True)
class Predictions:
    """What `predict` wrote.

    Attributes:
        folder: of the masks.
        made: the cases of this call.
        failed: the cases without a mask, and why.
        before: how many cases an earlier call had finished.
    """

    folder: Path
    made: tuple[Prediction, ...]
    failed: tuple[Failure, ...]
    before: int = 0

    @property
    def cases(self) -> int:
        """How many there are in all."""
        return self.before + len(self.made) + len(self.failed)

    @property
    def summary(self) -> str:
        """What was found in each case, and how many are done."""
        width = max((len(one_line(one.name)) for one in self.made), default=0)
        lines = [f"  {one_line(one.name):<{width}}  {one.found}" for one in self.made]
        earlier = f", {self.before} of them before" if self.before else ""
        done = f"{self.before + len(self.made)} of {self.cases} cases segmented in {self.folder}{earlier}"
        return "\n".join([*lines, done])

    def __str__(self) -> str:
        failed = [f"  {one_line(one.name)}: {one_line(one.reason)}" for one in self.failed]
        return "\n".join([self.summary, *(["failed:", *failed] if failed else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [(one.name, one.found) for one in self.made] + [(one.name, one.reason) for one in self.failed]
        cells = "".join(f"<tr><td>{html.escape(name)}</td><td>{html.escape(text)}</td></tr>" for name, text in rows)
        return f"<p>{html.escape(str(self.folder))}</p><table>{cells}</table>"


def _rows(file: Path) -> list[list[str]]:
    """Of a table that an earlier call left, or of a part of one; without what is none."""
    try:
        lines = list(csv.reader(io.StringIO(read_text(file), newline="")))
    except (OSError, ValueError, csv.Error):
        return []
    return [line for line in lines[1:] if len(line) == len(COLUMNS)]
