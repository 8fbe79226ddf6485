"""A case's images: one file, one for each channel (as nnU-Net has it), a NIfTI of four axes, or a PNG in colour."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringfence.weak.inference.model_file import ModelCard
from ringfence.weak.volumes import ENDINGS, channel_count, is_png, volume_name, volumes_among, what_is_read

_CHANNEL: Final = re.compile(r"(.+)_(\d{4})")


@dataclass(frozen=True)
class ImageCase:
    """A patient's images: one file, or one file for each channel."""

    name: str
    files: tuple[Path, ...]


def find_cases(images: Path, channels: int | None = None) -> list[ImageCase]:
    """The cases of a volume file or of a folder of them, by name.

    ``CASE_0000``, ``CASE_0001``, ... are the channels of ``CASE``, as nnU-Net has it; without a ``_0000`` such
    numbers are part of the name. ``*_segmentation`` are somebody's masks; PNGs beside other volumes are pictures.

    Args:
        images: the file, or the folder.
        channels: how many the model takes. Numbered PNGs are images of their own if each holds as many,
            or if there are not as many.
    """
    if not images.exists():
        raise FileNotFoundError(f"{images} does not exist")
    if not images.is_dir():
        name = volume_name(images)
        if name is None:
            raise ValueError(f"{images} is not a volume: its name should end in {', '.join(ENDINGS)}")
        match = _CHANNEL.fullmatch(name)
        if match is None or match[2] != "0000":
            return [ImageCase(name, (images,))]
        beside = (case for case in find_cases(images.parent, channels) if images in case.files)
        return [next(beside, ImageCase(name, (images,)))]
    named = sorted(
        (name, file) for name, file in volumes_among(images.iterdir()) if not name.lower().endswith("_segmentation")
    )
    if not named:
        raise FileNotFoundError(f"{images} holds no volumes: {what_is_read(images.iterdir())}")
    several = {name[: -len("_0000")] for name, _ in named if name.endswith("_0000")}
    cases: dict[str, list[Path]] = {}
    for name, file in named:
        match = _CHANNEL.fullmatch(name)
        case = match[1] if match is not None and match[1] in several else name
        cases.setdefault(case, []).append(file)
    found = [ImageCase(name, tuple(files)) for name, files in sorted(cases.items())]
    return [one for case in found for one in _apart(case, channels)]


def check_channels(cases: Iterable[ImageCase], card: ModelCard) -> None:
    """Refuse images of which none has the channels that the model was trained with."""
    faults = [channels_fault(case, card) for case in cases]
    if faults and all(faults):
        rest = f" (and so the other {len(faults) - 1})" if len(faults) > 1 else ""
        raise ValueError(f"{faults[0]}{rest}")


def channels_fault(case: ImageCase, card: ModelCard) -> str | None:
    """What is wrong with a case's files, if they are not the channels of the model."""
    wanted, names = len(card.channels), [volume_name(file) for file in case.files]
    one_each = [f"{case.name}_{number:04d}" for number in range(len(names))]
    count = _in_header(case.files[0]) if len(names) == 1 else len(names)
    if count is None or (count == wanted and names in (one_each, [case.name])):
        return None
    takes = f"the model takes {wanted} channel{'s' * (wanted > 1)} ({', '.join(card.channels)})"
    should = f"; they should be {', '.join(one_each)}" if count == wanted else ""
    return f"{takes}, and {case.name} has {count}: {', '.join(file.name for file in case.files)}{should}"


def _apart(case: ImageCase, channels: int | None) -> list[ImageCase]:
    """The case; or each of its files, if they are PNGs and not its channels: pictures are numbered, too."""
    if len(case.files) == 1 or not all(map(is_png, case.files)):
        return [case]
    as_channels = len(case.files) == channels and not any(_in_header(file) == channels for file in case.files)
    if channels is None or as_channels:
        return [case]
    return [ImageCase(volume_name(file) or "", (file,)) for file in case.files]


def _in_header(file: Path) -> int | None:
    """How many channels a file holds, by its header; None if that cannot be read: reading it will say why."""
    try:
        return channel_count(file)
    except (ValueError, OSError):
        return None
