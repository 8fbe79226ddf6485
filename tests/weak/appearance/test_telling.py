"""The field of brightness within a box, which what is around it does not tell alone."""

from __future__ import annotations

import numpy as np

from ringfence.weak.appearance.telling import without_field


def test_a_field_within_a_box_is_seen_where_the_object_is_not() -> None:
    """A crescent on a field that bends, in noise of deviation 8: from the ring alone it would be 1.3 off."""
    rows, columns = np.mgrid[:44, :44] / 22.0 - 1.0
    field = 100.0 + 20.0 * columns**3 - 25.0 * columns * rows + 30.0 * rows**2
    box, ring = np.zeros((44, 44), bool), np.zeros((44, 44), bool)
    ring[2:-2, 2:-2] = True
    box[6:38, 6:38] = True
    ring &= ~box
    crescent = (np.hypot(rows - 0.1, columns) < 0.6) & (np.hypot(rows - 0.1, columns - 0.25) > 0.5)
    errors = []
    for seed in range(20):
        noise = np.random.default_rng(seed).normal(0.0, 8.0, field.shape)
        found, deviations, likely = without_field((field + 40.0 * crescent + noise)[None], ring, box)
        errors.append(np.sqrt(((found[0] - field)[box] ** 2).mean()))
        assert abs(deviations - 5.0) < 0.6
        assert ((likely > 0.5) == crescent[box]).mean() > 0.97
    assert np.mean(errors) < 0.7
