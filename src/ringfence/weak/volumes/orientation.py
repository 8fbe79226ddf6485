"""Which way up a volume's slices are to be shown."""

from __future__ import annotations

from ringfence.weak.volumes.volume import Volume, axes


def upright(volume: Volume) -> tuple[int, ...]:
    """The in-plane axes (-2 rows, -1 columns) to flip so that a slice looks as a radiologist expects.

    The front or the head is at the top, the patient's right (or front) at the left.
    """
    codes = axes(volume)
    return (-2,) * (codes[1] in "AS") + (-1,) * (codes[0] in "RA")
