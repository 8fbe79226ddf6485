"""Which files are volumes."""

from __future__ import annotations

from pathlib import Path

from ringfence.weak.volumes import (
    volume_name,
)


def test_names_without_endings() -> None:
    assert volume_name(Path("x/Case07.mhd")) == "Case07"
    assert volume_name(Path("BRATS_001_0000.nii.gz")) == "BRATS_001_0000"
    assert volume_name(Path("a.NII")) == "a"
    assert volume_name(Path("dataset.json")) is None
