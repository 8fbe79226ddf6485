"""Connected parts of a mask: an organ is one piece, and what lies apart from it is a mistake."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ringfence.extras import require


def largest_parts(mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Of each class, the largest part whose voxels touch by their faces; what is not in it becomes background.

    MONAI has the same, by scikit-image, which we do without.

    Args:
        mask: classes 0, 1, ... of a whole volume.
    """
    ndimage = require("scipy.ndimage", "--largest", "train")
    kept = np.zeros_like(mask)
    for number in np.unique(mask[mask > 0]).tolist():
        parts, _ = ndimage.label(mask == number)
        sizes = np.bincount(parts.ravel())
        sizes[0] = 0
        kept[parts == sizes.argmax()] = number
    return kept
