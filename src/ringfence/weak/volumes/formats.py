"""Which files are volumes, by the endings of their names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

METAIMAGE: Final = (".mhd", ".mha")
NIFTI: Final = (".nii", ".nii.gz")


def is_metaimage(path: Path) -> bool:
    """Whether it is named as a MetaImage is, in capitals or not."""
    return path.name.lower().endswith(METAIMAGE)


def is_nifti(path: Path) -> bool:
    """Whether it is named as a NIfTI file is, in capitals or not."""
    return path.name.lower().endswith(NIFTI)


def volume_name(path: Path) -> str | None:
    """The file's name without its ending, or None if it is not a volume's."""
    for ending in (*METAIMAGE, *reversed(NIFTI)):
        if path.name.lower().endswith(ending):
            return path.name[: -len(ending)]
    return None
