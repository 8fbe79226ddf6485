"""What every layout is brought to: cases with the files they are made of, and which of them are for validation."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final, TypeAlias

from ringfence.hints import nearest, shown
from ringfence.weak.datasets.box_table import BoxTable
from ringfence.weak.volumes.formats import METAIMAGE
from ringfence.weak.volumes.places import Place, members, opened_zip

Stamp: TypeAlias = list[str | int]
"""A file's name, bytes, and time of change (of a zip's member its CRC): enough to see that it is still the same."""

LARGEST: Final = 255
"""Label: masks are bytes."""


@dataclass(frozen=True)
class SourceVolume(Place):
    """A volume's file, and of a MetaImage the data file beside it.

    Attributes:
        path: the file; inside ``archive``, if that is given.
        archive: the zip that holds it.
    """

    def stamps(self) -> list[Stamp]:
        """What tells whether the files changed."""
        if self.archive:
            with opened_zip(self.archive) as archive:
                found = [one for one in members(archive) if self._is_part(PurePosixPath(one.filename))]
                return [[PurePosixPath(one.filename).name, one.file_size, one.CRC] for one in found]
        try:
            facts = [(path.name, path.stat()) for path in self._files()]
        except OSError as error:
            raise type(error)(f"{self.path} cannot be read: {error.strerror}") from None
        return [[name, fact.st_size, fact.st_mtime_ns] for name, fact in facts]

    def _files(self) -> list[Path]:
        if self.path.suffix.lower() not in METAIMAGE:
            return [self.path]
        return sorted(path for path in self.path.parent.iterdir() if self._is_part(path) and path.is_file())

    def _is_part(self, path: PurePath) -> bool:
        """Whether another file of this folder or zip is of this volume, by its name."""
        same_folder = path.parent.as_posix() == self.path.parent.as_posix()
        return same_folder and path.name.startswith(f"{self.path.stem}.")


@dataclass(frozen=True)
class SourceCase:
    """One patient as downloaded.

    Attributes:
        name: from the files' names.
        images: a file a channel, or one with all of them.
        mask: None if it has none.
    """

    name: str
    images: tuple[SourceVolume, ...]
    mask: SourceVolume | None

    def stamps(self) -> list[Stamp]:
        """What tells whether any of its files changed."""
        volumes = [*self.images, *([self.mask] if self.mask else [])]
        return [stamp for volume in volumes for stamp in volume.stamps()]


@dataclass(frozen=True)
class Source:
    """A data set as downloaded.

    Attributes:
        kind: its layout.
        name: of the data set.
        channels: names of the images' channels.
        classes: names of the foreground classes.
        labels: the classes' values in the masks, in the same order.
        cases: by name.
        validation: the names of those that are not trained on.
        split: in words, where that choice comes from.
        problems: what is wrong with each case that is not whole.
        boxes: the table of boxes that came with the images, if there is one.
    """

    kind: str
    name: str
    channels: tuple[str, ...]
    classes: tuple[str, ...]
    labels: tuple[int, ...]
    cases: tuple[SourceCase, ...]
    validation: frozenset[str]
    split: str
    problems: Mapping[str, str] = field(default_factory=dict)
    boxes: BoxTable | None = None


def check_classes(labels: Mapping[int, str], label: Any, name: str) -> dict[int, str]:
    """The classes so far with one more, unless it is the background; one that cannot be stored is refused."""
    whole = type(label) is int or (isinstance(label, str) and label.isdecimal() and len(label) < 10)
    number = int(label) if whole else -1
    if not 0 <= number <= LARGEST:
        raise ValueError(
            f"label {shown(name)} is {shown(label)}; it should be a whole number between 0 and {LARGEST}"
        )
    if number in labels or name in labels.values():
        raise ValueError(f"label {shown(name)} ({number}): two classes have this name or this number")
    return dict(labels) | ({number: name} if number else {})


def with_validation(source: Source, names: Sequence[str] | None) -> Source:
    """The same data, but exactly these cases for validation; unchanged if ``names`` is None or empty."""
    if not names:
        return source
    cases = {case.name: case for case in source.cases}
    unknown = [name for name in names if name not in cases and name not in source.problems]
    if unknown:
        near = next(filter(None, (nearest(name, cases) for name in unknown)), None)
        hint = (
            f"did you mean '{near}'?" if near else f"the first of the {len(cases)} is {min(cases, default='none')}"
        )
        raise ValueError(f"validation: there is no case {', '.join(unknown)}; {hint}")
    without = [name for name in names if name in cases and cases[name].mask is None]
    if without:
        raise ValueError(f"validation: {', '.join(without)} has no mask, and validation needs one")
    return replace(source, validation=frozenset(names), split="as given")


def every_fifth(cases: Iterable[SourceCase]) -> frozenset[str]:
    """The fifth, tenth, ... of the cases with a mask, by name; of two to four the last."""
    names = sorted(case.name for case in cases if case.mask)
    return frozenset(names[4::5] or (names[-1:] if len(names) > 1 else []))


def check_places(source: str | Path, out: str | Path) -> None:
    """Refuse a source that is not there, and to write into it."""
    below, above = Path(os.path.realpath(out)), Path(os.path.realpath(source))
    if not above.exists():
        raise FileNotFoundError(f"{source} does not exist")
    if below == above or above in below.parents:
        raise ValueError(f"{out} is inside {source}: downloads stay as they are, name another folder")
