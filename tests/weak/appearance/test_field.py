"""Fields of brightness: polynomials are found as they are, and noise as numpy's least squares would."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.weak.appearance.field import smooth_field

TERMS = [(i, j) for i in range(4) for j in range(4 - i)]


@settings(max_examples=30)
@given(
    factors=st.lists(st.floats(-2.0, 2.0), min_size=len(TERMS), max_size=len(TERMS)),
    rows=st.integers(8, 20),
    columns=st.integers(8, 20),
    seed=st.integers(0, 99),
)
def test_a_polynomial_is_found_from_part_of_the_pixels(
    factors: list[float], rows: int, columns: int, seed: int
) -> None:
    """Of degree 3; what weighs nothing may be anything."""
    down, across = np.mgrid[:rows, :columns]
    down, across = down / rows, across / columns
    field = sum(factor * down**i * across**j for factor, (i, j) in zip(factors, TERMS, strict=True))
    values = np.stack([field, 3.0 - 2.0 * np.asarray(field)])
    random = np.random.default_rng(seed)
    weights = random.uniform(0.1, 1.0, (rows, columns)) * (random.random((rows, columns)) < 0.8)
    hidden = np.where(weights > 0, values, 1e6)
    np.testing.assert_allclose(smooth_field(hidden, weights), values, atol=1e-7)


def test_what_is_left_has_no_polynomial_in_it() -> None:
    """Where it is least, Σ w (v - field) x^i y^j is 0 for each term."""
    random = np.random.default_rng(0)
    values, weights = random.normal(size=(1, 12, 17)), random.uniform(0.0, 1.0, (12, 17))
    left = weights * (values - smooth_field(values, weights))[0]
    down, across = np.mgrid[:12, :17]
    for i, j in TERMS:
        assert (left * (down / 12) ** i * (across / 17) ** j).sum() == pytest.approx(0.0, abs=1e-9)


def test_a_single_row_has_a_field_along_it() -> None:
    values = np.arange(9.0)[None, None] ** 2
    np.testing.assert_allclose(smooth_field(values, np.ones((1, 9))), values, atol=1e-9)


def test_with_nothing_known_the_field_is_zero() -> None:
    assert not smooth_field(np.ones((1, 5, 5)), np.zeros((5, 5))).any()
