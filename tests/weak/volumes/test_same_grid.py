"""Volumes of one case that do not lie in the same place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from numpy.typing import NDArray
from volume_files import VOXELS

from ringfence.weak.volumes import (
    Volume,
    check_same_grid,
    read_volume,
)


def placed(path: Path, affine: NDArray[Any], code: int = 1) -> Volume:
    image = nibabel.Nifti1Image(VOXELS.transpose(2, 1, 0), affine)
    image.set_sform(affine, code)
    image.set_qform(affine, code)
    nibabel.save(image, path)
    return read_volume(path)


def moved(affine: NDArray[Any], x: float, z: float) -> NDArray[Any]:
    shift = np.eye(4)
    shift[:3, 3] = x, 0, z
    return shift @ affine


def test_what_lies_elsewhere_is_refused_with_both(tmp_path: Path) -> None:
    here = np.array([[0.5, 0, 0, -40], [0, 0.5, 0, 7], [0, 0, 3.0, 100], [0, 0, 0, 1]])
    one = placed(tmp_path / "one.nii", here)
    tilted = here.copy()
    tilted[:3, :3] = tilted[:3, :3] @ [[0.8, -0.6, 0], [0.6, 0.8, 0], [0, 0, 1]]
    for affine, message in (
        (
            here @ np.diag([1, 1, 1.2, 1]),
            r"one.nii has voxels of 3 × 0.5 × 0.5 mm, but .*other.nii of 3.6 × 0.5 × 0.5",
        ),
        (here @ np.diag([-1, 1, 1, 1]), r"the axes of .*one.nii run to RAS, those of .*other.nii to LAS"),
        (
            moved(here, 0.25, 0),
            r"one.nii and .*other.nii lie up to 0.5 voxels apart \(they begin at -40 7 100 and at -39.75 7 100 mm",
        ),
        (tilted, r"lie up to 3.4 voxels apart .*: resample one to the other's grid or"),
    ):
        other = placed(tmp_path / "other.nii", affine)
        with pytest.raises(ValueError, match=message):
            check_same_grid(one, other)
    for affine, code in (
        (moved(here, 0.09, 0) * (1 + 1e-5), 1),  # rounded
        (np.eye(4), 1),  # who wrote it did not know
        (np.diag([-1.0, -1.0, 1.0, 1.0]), 1),
        (np.diag([0.5, 0.5, 3.0, 1.0]), 0),  # who wrote it knew the steps, but not the place
    ):
        check_same_grid(one, placed(tmp_path / "other.nii", affine, code))
    ones = here.copy()
    ones[:3, :3] = np.eye(3)
    check_same_grid(placed(tmp_path / "one.nii", ones), placed(tmp_path / "other.nii", np.eye(4)))
    with pytest.raises(ValueError, match=r"up to 5 voxels apart \(they begin at -40 7 100 and at -40 7 105 mm\)"):
        check_same_grid(
            placed(tmp_path / "one.nii", ones),
            placed(tmp_path / "other.nii", moved(ones, 0, 5)),
        )
