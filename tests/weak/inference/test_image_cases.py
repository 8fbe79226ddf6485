"""Which files are a case's, by their names; what is no file is a case that will fail, and blocks nobody."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nibabel
import numpy as np
import pytest

from ringfence.weak.inference.image_cases import ImageCase, channels_fault, find_cases

CARD: Any = SimpleNamespace(channels=("T2",))


def test_what_is_no_file_is_one_case(tmp_path: Path) -> None:
    """D13: a pipe named as a volume blocked ``predict``."""
    os.mkfifo(tmp_path / "pipe.nii.gz")
    (tmp_path / "folder.nii").mkdir()
    (tmp_path / "zero.nii").symlink_to("/dev/zero")
    nibabel.save(nibabel.Nifti1Image(np.zeros((2, 2, 2, 3), np.uint8), np.eye(4)), tmp_path / "four.nii.gz")
    cases = find_cases(tmp_path)
    assert [case.name for case in cases] == ["folder", "four", "pipe", "zero"]
    faults = {case.name: channels_fault(case, CARD) for case in cases}
    assert faults.pop("four") == "the model takes 1 channel (T2), and four has 3: four.nii.gz"
    assert set(faults.values()) == {None}  # reading them will say why
    assert find_cases(tmp_path / "pipe.nii.gz") == [ImageCase("pipe", (tmp_path / "pipe.nii.gz",))]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is not a volume"):
        find_cases(tmp_path / "pipe")
