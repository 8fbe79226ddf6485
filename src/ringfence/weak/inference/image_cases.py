"""A case's images: one file, one for each channel (named as nnU-Net does), or a NIfTI of four axes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringfence.weak.inference.model_file import ModelCard
from ringfence.weak.volumes import header_sizes, is_nifti, volume_name

_CHANNEL: Final = re.compile(r"(.+)_(\d{4})")


@dataclass(frozen=True)
class ImageCase:
    """A patient's images: one file, or one file for each channel."""

    name: str
    files: tuple[Path, ...]


def find_cases(images: Path) -> list[ImageCase]:
    """The cases of a volume file or of a folder of them, by name.

    ``CASE_0000``, ``CASE_0001``, ... are the channels of ``CASE``, as nnU-Net has it; without a ``_0000`` such
    numbers are part of the name. ``*_segmentation`` are somebody's masks.
    """
    if not images.exists():
        raise FileNotFoundError(f"{images} does not exist")
    if not images.is_dir():
        name = volume_name(images)
        if name is None:
            raise ValueError(f"{images} is not a volume: it should end in .mhd, .mha, .nii or .nii.gz")
        match = _CHANNEL.fullmatch(name)
        if match is None or match[2] != "0000":
            return [ImageCase(name, (images,))]
        beside = {case.name: case for case in find_cases(images.parent)}
        return [beside.get(match[1], ImageCase(name, (images,)))]
    named = sorted(
        (name, file)
        for file in images.iterdir()
        if (name := volume_name(file)) is not None
        and not name.startswith(".")
        and not name.lower().endswith("_segmentation")
    )
    if not named:
        raise FileNotFoundError(f"{images} holds no volumes (.mhd, .mha, .nii, .nii.gz)")
    several = {name[: -len("_0000")] for name, _ in named if name.endswith("_0000")}
    cases: dict[str, list[Path]] = {}
    for name, file in named:
        match = _CHANNEL.fullmatch(name)
        case = match[1] if match is not None and match[1] in several else name
        cases.setdefault(case, []).append(file)
    return [ImageCase(name, tuple(files)) for name, files in sorted(cases.items())]


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
    count = _fourth_axis(case.files[0]) if len(names) == 1 else len(names)
    if count is None or (count == wanted and names in (one_each, [case.name])):
        return None
    takes = f"the model takes {wanted} channel{'s' * (wanted > 1)} ({', '.join(card.channels)})"
    should = f"; they should be {', '.join(one_each)}" if count == wanted else ""
    return f"{takes}, and {case.name} has {count}: {', '.join(file.name for file in case.files)}{should}"


def _fourth_axis(file: Path) -> int | None:
    """How many volumes a NIfTI holds, by its header; None if that cannot be read: reading it will say why."""
    if not is_nifti(file):
        return 1
    try:
        sizes = header_sizes(file)
    except (ValueError, OSError):
        return None
    return sizes[3] if len(sizes) > 3 else 1
