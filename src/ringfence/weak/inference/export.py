"""Masks of new images as files, in the place, size and format that the images came in."""

from __future__ import annotations

import html
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ringfence.documents import read_json
from ringfence.files import WriteFailed, checksum, move_all, remove, write_text
from ringfence.folders import UNFINISHED as PART
from ringfence.folders import content, locked
from ringfence.hints import one_line
from ringfence.weak.inference.image_cases import ImageCase, channels_fault, check_channels, find_cases
from ringfence.weak.inference.model import Model, load_model
from ringfence.weak.inference.model_file import ModelCard
from ringfence.weak.inference.overlays import overlay_sheet
from ringfence.weak.inference.predictor import Predictor, segment
from ringfence.weak.prepared.preprocessing import normalised
from ringfence.weak.volumes import Volume, largest_parts, read_channels, upright, volume_name, write_volume

UNFINISHED: Final = "unfinished.json"
"""Says what a folder of masks will hold."""


@dataclass(frozen=True)
class Prediction:
    """What was written for a case.

    Attributes:
        name: the case's.
        file: its mask.
        voxels: of each class, by name.
        spacing: millimetres along z, y, x; None if the header does not know.
    """

    name: str
    file: Path
    voxels: dict[str, int]
    spacing: tuple[float, float, float] | None

    @property
    def found(self) -> str:
        """Voxels of each class, and millilitres where they are known."""
        parts = []
        for name, count in self.voxels.items():
            volume = f" ({count * math.prod(self.spacing) / 1000:.1f} ml)" if self.spacing else ""
            parts.append(f"{name} {count:,} voxels{volume}" if count else f"{name}: nothing found")
        return ", ".join(parts)


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

    def close(self) -> None:
        """Everything that was asked for is there."""
        remove([self.folder / UNFINISHED])

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


def predict_cases(cases: Iterable[ImageCase], predictor: Predictor, out: Output) -> Iterator[Prediction | Failure]:
    """Predict case after case into ``out``; one that cannot be read is passed over, with its reason.

    Each case's files appear together when all of them are written.
    """
    for case in cases:
        try:
            volume, grey = _read(case, predictor.card)
            mask, shares = segment(predictor, grey, keep=out.probabilities)
        except (ValueError, OSError) as error:
            yield Failure(case.name, str(error))
            continue
        mask = largest_parts(mask) if out.largest else mask
        try:
            yield _write(case, predictor.card, volume, grey[:, 0], mask, shares, out)
        except ValueError as error:  # what the format cannot hold; a disk that is full is no case's fault
            yield Failure(case.name, str(error))


def _read(case: ImageCase, card: ModelCard) -> tuple[Volume, NDArray[np.uint8]]:
    """The first channel's volume, and all channels in 0..255 ``[slices, channels, height, width]``."""
    fault = channels_fault(case, card)
    if fault:
        raise ValueError(fault)
    volumes = read_channels(case.files)
    if len(volumes) != len(card.channels):
        raise ValueError(f"the model takes {len(card.channels)} channels, and {case.name} has {len(volumes)}")
    first = volumes[0]
    if not first.voxels.size:
        raise ValueError(f"{first.path} has no voxels")
    return first, np.stack(
        [normalised(volume.voxels, card.preprocessing.percentiles) for volume in volumes], axis=1
    )


def _write(
    case: ImageCase,
    card: ModelCard,
    volume: Volume,
    grey: NDArray[np.uint8],
    mask: NDArray[np.uint8],
    shares: NDArray[np.float32] | None,
    out: Output,
) -> Prediction:
    """Write a case's files beside, then move them: a mask's header last, since it names its data."""
    final = out.mask_of(case)
    ending = final.name[len(case.name) :]
    counts = np.bincount(mask.ravel(), minlength=1 + len(card.classes))[1:]
    voxels = {name: int(count) for name, count in zip(card.classes, counts, strict=True)}
    try:
        with TemporaryDirectory(prefix=PART, dir=out.folder) as beside:
            part = Path(beside)
            write_volume(part / final.name, np.array([0, *card.labels], dtype=np.uint8)[mask], volume)
            if shares is not None:
                for name, share in zip(_file_names(card.classes), shares, strict=True):
                    write_volume(part / f"{case.name}_{name}_probability{ending}", share, volume)
            if out.overlays:
                _draw(part / f"{case.name}.png", case.name, card, volume, grey, mask)
            move_all(
                sorted(part.iterdir(), key=lambda one: (one.name == final.name, one.suffix == ".mhd")), out.folder
            )
    except WriteFailed as error:
        raise OSError(str(error).replace(f"{PART}{beside.rpartition(PART)[2]}{os.sep}", "")) from error
    except OSError as error:
        raise WriteFailed(final, error) from error
    return Prediction(case.name, final, voxels, volume.spacing if volume.spacing_known else None)


def _draw(
    path: Path, name: str, card: ModelCard, volume: Volume, grey: NDArray[np.uint8], mask: NDArray[np.uint8]
) -> None:
    flip = upright(volume)
    overlay_sheet(
        path,
        np.flip(grey, flip),
        np.flip(mask, flip),
        card.classes,
        title=f"{name}: {len(mask)} slices",
        aspect=volume.spacing[1] / volume.spacing[2],
    )


def _file_names(classes: Iterable[str]) -> list[str]:
    """Classes as parts of file names, all different."""
    names = [re.sub(r"[^\w.-]+", "-", name) for name in classes]
    return names if len(set(names)) == len(names) else [f"{name}-{k}" for k, name in enumerate(names, start=1)]


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


def predict(
    model: Model | str | Path,
    images: str | Path,
    out: str | Path,
    *,
    probabilities: bool = False,
    overlays: bool = False,
    largest: bool = False,
    each: Callable[[Prediction | Failure, int], None] = lambda result, total: None,
) -> Predictions:
    """Segment files: a volume, or every volume of a folder, into ``out``.

    A folder where the same was begun is gone on with; one that holds anything else is refused. A case that cannot
    be read is passed over, with its reason.

    Args:
        model: of ``load_model``, or its file.
        images: a volume (.nii.gz, .nii, .mhd, .mha), or a folder of them.
        out: a new or empty folder for the masks, or one where this was begun.
        probabilities: write those of each class, too.
        overlays: draw a picture of each case, too.
        largest: keep the largest connected part of each class alone.
        each: called after every case, with its result and the number of cases there were to do.
    """
    model = model if isinstance(model, Model) else load_model(model)
    cases = find_cases(Path(images))
    check_channels(cases, model.card)
    output = Output(Path(out), probabilities, overlays, largest)
    options = {
        "probabilities": probabilities,
        "overlays": overlays,
        "largest": largest,
        "flips": model.predictor.flips,
    }
    asked = {
        "CHECKPOINT": checksum(model.path),
        "IMAGES": os.path.realpath(images),
        "options": " ".join(name for name, wanted in options.items() if wanted),
    }
    made: list[Prediction] = []
    failed: list[Failure] = []
    with output.opened(asked):
        left = output.missing(cases)
        for result in predict_cases(left, model.predictor, output):
            if isinstance(result, Failure):
                failed.append(result)
            else:
                made.append(result)
            each(result, len(left))
        if not failed:
            output.close()
    return Predictions(output.folder, tuple(made), tuple(failed), len(cases) - len(left))
