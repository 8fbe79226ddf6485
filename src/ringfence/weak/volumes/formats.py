"""Which files are volumes, by the endings of their names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ringfence.hints import one_line

METAIMAGE: Final = (".mhd", ".mha")
NIFTI: Final = (".nii", ".nii.gz")
PNG: Final = (".png",)
ENDINGS: Final = (*NIFTI, *METAIMAGE, *PNG)
"""Of all volumes that are read."""
OVERLAY: Final = "_overlay"
"""Ends the name of a picture of a PNG's mask."""
OTHERS: Final = (".jpg", ".jpeg", ".tif", ".tiff", ".bmp")
"""Of pictures that are not read."""


def is_metaimage(path: Path) -> bool:
    """Whether it is named as a MetaImage is, in capitals or not."""
    return path.name.lower().endswith(METAIMAGE)


def is_nifti(path: Path) -> bool:
    """Whether it is named as a NIfTI file is, in capitals or not."""
    return path.name.lower().endswith(NIFTI)


def is_png(path: Path) -> bool:
    """Whether it is named as a PNG is, in capitals or not."""
    return path.name.lower().endswith(PNG)


def volume_name(path: Path) -> str | None:
    """The file's name without its ending, or None if it is not a volume's."""
    for ending in ENDINGS:
        if path.name.lower().endswith(ending):
            return path.name[: -len(ending)]
    return None


def volumes_among(files: Iterable[Path]) -> list[tuple[str, Path]]:
    """Names and files of volumes, in their order: neither hidden ones, nor PNGs that are pictures of others.

    A PNG is a picture where there is NIfTI or MetaImage, too, and if its name ends in ``_overlay``.
    """
    found = [
        (name, file) for file in files if (name := volume_name(file)) is not None and not file.name.startswith(".")
    ]
    if not all(is_png(file) for _, file in found):
        return [(name, file) for name, file in found if not is_png(file)]
    return [(name, file) for name, file in found if not name.endswith(OVERLAY)]


def pictures_among(files: Iterable[Path]) -> dict[str, str]:
    """Names of the PNGs that ``volumes_among`` leaves out, and why, to be told where one of them is missed."""
    there = sorted(file for file in files if volume_name(file) is not None and not file.name.startswith("."))
    beside = next((one_line(file.name) for file in there if not is_png(file)), None)
    reason = f"because {beside} lies beside it" if beside else f"because its name ends in {OVERLAY}"
    return {
        volume_name(file) or "": f"{one_line(file.name)} was taken for a picture, {reason}"
        for file in there
        if is_png(file) and (beside or (volume_name(file) or "").endswith(OVERLAY))
    }


def what_is_read(files: Iterable[Path]) -> str:
    """The endings that are read, for a message about a folder without them; and what to do with other pictures."""
    other = any(file.name.lower().endswith(OTHERS) for file in files)
    return f"{', '.join(ENDINGS)} are read" + "; convert others to PNG" * other
