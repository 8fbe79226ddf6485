"""benchmarks/generated_sets.py: how the classes of its sets lie."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def sets(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("nibabel")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("generated_sets")


@pytest.mark.parametrize("name", ["twins", "sands", "grit"])
def test_the_same_seed_gives_the_same_voxels(sets: ModuleType, name: str) -> None:
    kind = sets.KINDS[name]
    (labels, image), (again, other) = (sets.scene(kind, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(labels, again)
    np.testing.assert_array_equal(image, other)
    assert set(np.unique(labels)) == set(range(1 + kind.classes))


def test_halves_touch_along_a_row_and_share_no_row(sets: ModuleType) -> None:
    for seed in range(5):
        labels, _ = sets.scene(sets.KINDS["twins"], np.random.default_rng(seed))
        low, high = (np.flatnonzero((labels == label).any(axis=(0, 2))) for label in (1, 2))
        assert high[0] == low[-1] + 1
        assert 0.35 <= len(low) / (len(low) + len(high)) <= 0.65


def test_rough_classes_differ_from_voxel_to_voxel(sets: ModuleType) -> None:
    labels, image = sets.scene(sets.KINDS["sands"], np.random.default_rng(0))
    voxels = image[0].astype(float)
    rough = [
        np.diff(voxels, axis=2)[(labels[..., 1:] == one) & (labels[..., :-1] == one)].std() for one in range(3)
    ]
    assert rough[0] * 1.3 < rough[1] < rough[2] / 1.3
