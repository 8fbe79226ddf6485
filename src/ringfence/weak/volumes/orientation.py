"""Which way a volume's axes run, and which way up its slices are to be shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringfence.extras import require

if TYPE_CHECKING:
    from ringfence.weak.volumes.volume import Volume


def axes(volume: Volume) -> str:
    """Where columns, rows and slices run to: "LPS" is the patient's left, back and head."""
    nibabel = require("nibabel", "a volume's orientation", "train")
    return "".join(code or "?" for code in nibabel.aff2axcodes(volume.affine))


def upright(volume: Volume) -> tuple[int, ...]:
    """The in-plane axes (-2 rows, -1 columns) to flip so that a slice looks as a radiologist expects.

    The front or the head is at the top, the patient's right (or front) at the left.
    """
    codes = axes(volume)
    return (-2,) * (codes[1] in "AS") + (-1,) * (codes[0] in "RA")
