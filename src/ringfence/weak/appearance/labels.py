"""Labels of a slice from brightness: what in each box is unlike what is around it.

    y_p = k        if q_p > 0.9 in a box of k
    y_p = 0        outside of boxes, and where q_p < 0.1 in all that hold p
    y_p = unsure   elsewhere, and in boxes whose object is not told apart

q_p is how likely p is of the object in the box (``delineation``).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringfence.weak.appearance.delineation import delineated
from ringfence.weak.appearance.looks import looks
from ringfence.weak.appearance.telling import Pixels

SURE: Final = 0.9
"""How likely a pixel must be of an object, or not of it."""

Labels = NDArray[np.uint8]


def looked_labels(
    image: NDArray[np.uint8], boxes: NDArray[np.int64], tight: Pixels, unsure: int, known: Pixels | None = None
) -> Labels:
    """Labels uint8 ``[height, width]``: 0 for background, k for the k-th class, ``unsure``.

    Args:
        image: a slice ``[channels, height, width]``.
        boxes: ``[classes, objects, 2, 2]``, empty ones among them.
        tight: ``[classes, objects]``: whether a box is drawn around what is in this slice.
        unsure: the label of pixels that nothing is known of.
        known: as for ``looks``.
    """
    ahead = np.zeros((1 + len(boxes), *image.shape[1:]))
    ahead[0] = 1.0 - SURE  # what is less likely is background
    held, told = (np.zeros(image.shape[1:], np.int64) for _ in range(2))
    for (top, bottom), (left, right) in boxes.reshape(-1, 2, 2):
        held[top:bottom, left:right] += 1
    for look in looks(image, boxes, tight, known=known):
        likely = delineated(image, look)
        if likely is not None:
            place: Any = tuple(slice(*ends) for ends in look.box)
            own = ahead[1 + look.number][place]
            np.maximum(own, np.nan_to_num(likely), out=own)
            told[place] += np.isfinite(likely)
    best = ahead.max(axis=0)
    labels: Labels = ahead.argmax(axis=0).astype(np.uint8)
    labels[(labels > 0) & (best <= SURE)] = unsure
    labels[(labels == 0) & (told < held)] = unsure
    return labels
