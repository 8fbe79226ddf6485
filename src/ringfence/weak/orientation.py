"""Which way a volume's axes run in the patient."""

from __future__ import annotations

import numpy as np

from ringfence.extras import require
from ringfence.weak.volumes import Volume


def axes(volume: Volume) -> str:
    """Where columns, rows and slices run to: "LPS" is the patient's left, back and head."""
    nibabel = require("nibabel", "a volume's orientation", "train")
    if hasattr(volume.geometry, "GetDirection"):  # MetaImage counts towards left and back, NIfTI right and front
        affine = np.eye(4)
        affine[:3, :3] = np.diag([-1.0, -1.0, 1.0]) @ np.reshape(volume.geometry.GetDirection(), (3, 3))
    else:
        affine = volume.geometry.affine
    return "".join(code or "?" for code in nibabel.aff2axcodes(affine))


def upright(volume: Volume) -> tuple[int, ...]:
    """The in-plane axes (-2 rows, -1 columns) to flip so that a slice looks as a radiologist expects.

    The front or the head is at the top, the patient's right (or front) at the left.
    """
    codes = axes(volume)
    return (-2,) * (codes[1] in "AS") + (-1,) * (codes[0] in "RA")
