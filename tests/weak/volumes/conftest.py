"""One small volume as a file of each format."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813 - everyone's habit
from volume_files import VOXELS


@pytest.fixture
def metaimage(tmp_path: Path) -> Path:
    image = sitk.GetImageFromArray(VOXELS)
    image.SetSpacing((0.5, 0.625, 3.5))
    image.SetOrigin((10.0, -20.0, 30.0))
    image.SetDirection((0, 1, 0, -1, 0, 0, 0, 0, 1))
    sitk.WriteImage(image, str(tmp_path / "Case00.mhd"))
    return tmp_path / "Case00.mhd"


@pytest.fixture
def compressed(tmp_path: Path) -> Path:
    sitk.WriteImage(sitk.GetImageFromArray(VOXELS), str(tmp_path / "Case01.mhd"), True)
    return tmp_path / "Case01.mhd"


@pytest.fixture
def nifti(tmp_path: Path) -> Path:
    affine = np.array([[0, -0.5, 0, 1], [0.625, 0, 0, 2], [0, 0, 3.5, 3], [0, 0, 0, 1]])
    image = nibabel.Nifti1Image(VOXELS.transpose(2, 1, 0), affine)
    image.header["cal_max"] = 900
    nibabel.save(image, tmp_path / "a.nii.gz")
    return tmp_path / "a.nii.gz"
