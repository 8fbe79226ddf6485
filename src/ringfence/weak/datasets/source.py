"""What every layout is brought to: cases with the files they are made of, and which of them are for validation."""

from __future__ import annotations

import shutil
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias

from ringfence.hints import nearest
from ringfence.weak.volumes.formats import METAIMAGE

Stamp: TypeAlias = list[str | int]
"""A file's name, bytes, and time of change (of a zip's member its CRC): enough to see that it is still the same."""

LARGEST: Final = 255
"""Label: masks are bytes."""


@dataclass(frozen=True)
class SourceVolume:
    """A volume's file, and of a MetaImage the data file beside it.

    Attributes:
        path: the file; inside ``archive``, if that is given.
        archive: the zip that holds it.
    """

    path: Path
    archive: Path | None = None

    def __str__(self) -> str:
        return str(self.archive / self.path if self.archive else self.path)

    def stamps(self) -> list[Stamp]:
        """What tells whether the files changed."""
        if self.archive:
            with zipfile.ZipFile(self.archive) as archive:
                return [[Path(one.filename).name, one.file_size, one.CRC] for one in self._members(archive)]
        facts = [(path.name, path.stat()) for path in self._files()]
        return [[name, fact.st_size, fact.st_mtime_ns] for name, fact in facts]

    def placed(self, folder: Path) -> Path:
        """Where it can be read: in its place, or unpacked into ``folder``, and never anywhere else."""
        if not self.archive:
            return self.path
        try:
            with zipfile.ZipFile(self.archive) as archive:
                for member in self._members(archive):
                    with archive.open(member) as packed, (folder / Path(member.filename).name).open("wb") as file:
                        shutil.copyfileobj(packed, file, 1 << 20)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
            raise ValueError(f"{self} cannot be unpacked: {error}") from None
        return folder / self.path.name

    def _members(self, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
        wanted = PurePosixPath(self.path)
        paths = ((one, PurePosixPath(one.filename)) for one in archive.infolist() if not one.is_dir())
        return [one for one, path in paths if path.parent == wanted.parent and path.stem == wanted.stem]

    def _files(self) -> list[Path]:
        if self.path.suffix.lower() not in METAIMAGE:
            return [self.path]
        return sorted(path for path in self.path.parent.glob(f"{self.path.stem}.*") if path.is_file())


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


def check_classes(labels: Mapping[int, str], label: Any, name: str) -> dict[int, str]:
    """The classes so far with one more, unless it is the background; one that cannot be stored is refused."""
    number = int(label) if isinstance(label, int) or (isinstance(label, str) and label.isdecimal()) else -1
    if not 0 <= number <= LARGEST:
        raise ValueError(f"label '{name}' is {label!r}; it should be a whole number between 0 and {LARGEST}")
    if number in labels or name in labels.values():
        raise ValueError(f"label '{name}' ({number}): two classes have this name or this number")
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
    below, above = Path(out).resolve(), Path(source).resolve()
    if not above.exists():
        raise FileNotFoundError(f"{source} does not exist")
    if below == above or above in below.parents:
        raise ValueError(f"{out} is inside {source}: downloads stay as they are, name another folder")
