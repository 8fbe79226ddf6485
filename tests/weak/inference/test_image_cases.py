"""Which files are a case's, by their names; what is no file is a case that will fail, and blocks nobody."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nibabel
import numpy as np
import pytest
from PIL import Image

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


def test_numbered_pictures_are_channels_only_if_the_model_takes_as_many(tmp_path: Path) -> None:
    for name in ("a_0000", "a_0001", "b_0000"):
        Image.fromarray(np.zeros((2, 2), np.uint8)).save(tmp_path / f"{name}.png")
    for name in ("c_0000", "c_0001"):
        Image.fromarray(np.zeros((2, 2, 3), np.uint8)).save(tmp_path / f"{name}.png")
    apart = ["a_0000", "a_0001", "b", "c_0000", "c_0001"]
    assert [case.name for case in find_cases(tmp_path)] == ["a", "b", "c"]
    assert [case.name for case in find_cases(tmp_path, 1)] == apart
    assert [case.name for case in find_cases(tmp_path, 3)] == apart
    assert [case.name for case in find_cases(tmp_path, 2)] == ["a", "b", "c"]
    first, alone = tmp_path / "a_0000.png", tmp_path / "b_0000.png"
    assert find_cases(first, 1) == [ImageCase("a_0000", (first,))]
    assert find_cases(first, 2) == [ImageCase("a", (first, tmp_path / "a_0001.png"))]
    assert find_cases(alone, 1) == [ImageCase("b", (alone,))]
