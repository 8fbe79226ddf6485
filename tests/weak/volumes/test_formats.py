"""Which files are volumes."""

from __future__ import annotations

from pathlib import Path

from ringfence.weak.volumes import (
    volume_name,
    volumes_among,
)


def test_names_without_endings() -> None:
    assert volume_name(Path("x/Case07.mhd")) == "Case07"
    assert volume_name(Path("BRATS_001_0000.nii.gz")) == "BRATS_001_0000"
    assert volume_name(Path("a.NII")) == "a"
    assert volume_name(Path("dataset.json")) is None


def test_pictures_of_volumes_are_none() -> None:
    """Where there are others, and what is drawn of a mask; hidden files say nothing."""

    def names(*files: str) -> list[str]:
        return [name for name, _ in volumes_among(map(Path, files))]

    assert names("b.PNG", "a.png", "a_overlay.png", "._a.nii", "x.csv") == ["b", "a"]
    assert names("b.png", "a.mha", "c_overlay.nii") == ["a", "c_overlay"]
