"""A case's file: written whole, read in part; against NumPy's own reader and slicing."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prepared_sets import make_prepared
from ringfence.weak.prepared.case_file import CaseFile, find_arrays, write_case

SHAPES = {"image": (5, 2, 9, 7), "mask": (5, 9, 7)}


def arrays(seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(seed)
    return {name: random.integers(1, 255, shape, np.uint8) for name, shape in SHAPES.items()}


def written(folder: Path, **changes: Any) -> CaseFile:
    write_case(folder, "a", **(arrays() | changes))
    found = find_arrays(folder / "a.npz", SHAPES)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> CaseFile:
    return written(tmp_path_factory.mktemp("case"))


def test_a_case_is_what_numpy_reads_and_has_its_checksum(tmp_path: Path) -> None:
    stored = arrays()
    for mask in (stored["mask"], None):
        done = write_case(tmp_path, "a", stored["image"], mask)
        assert done.sha256 == hashlib.sha256((tmp_path / done.file).read_bytes()).hexdigest()
        with np.load(tmp_path / done.file) as read:
            assert set(read) == ({"image"} if mask is None else {"image", "mask"})
            assert all(np.array_equal(read[name], stored[name]) for name in read)
    assert write_case(tmp_path, "b", stored["image"], None).sha256 == done.sha256  # nothing but the arrays


@given(
    start=st.tuples(*[st.integers(0, 10)] * 3),
    size=st.tuples(st.integers(1, 8), st.integers(1, 12), st.integers(1, 10)),
    name=st.sampled_from(["image", "mask"]),
)
@settings(max_examples=150, deadline=None)
def test_a_window_is_that_of_the_whole_array(
    case: CaseFile, start: tuple[int, int, int], size: tuple[int, int, int], name: str
) -> None:
    whole = arrays()[name]
    between = [(0, 0)] * (whole.ndim - 3)
    filled = np.pad(whole, [(0, 20), *between, (0, 20), (0, 20)])
    here = [slice(first, first + length) for first, length in zip(start, size, strict=True)]
    window = np.zeros((size[0], *whole.shape[1:-2], *size[1:]), np.uint8)
    with case.open() as file:
        case.fill(file, name, start, window)
    assert np.array_equal(window, filled[here[0]][..., here[1], here[2]])


def test_only_plain_bytes_of_the_promised_shape_can_be_read_in_part(tmp_path: Path) -> None:
    stored, path = arrays(), tmp_path / "a.npz"
    others: list[dict[str, Any]] = [
        {"image": np.asfortranarray(stored["image"])},
        {"image": stored["image"][:4]},
        {"mask": stored["mask"].astype(np.int16)},
    ]
    for change in others:
        np.savez(path, **(stored | change))
        assert find_arrays(path, SHAPES) is None
    np.savez_compressed(path, **stored)
    assert find_arrays(path, SHAPES) is None
    np.savez(path, image=stored["image"])
    assert find_arrays(path, SHAPES) is None
    path.write_bytes(b"PK\x03\x04 and nothing else")
    assert find_arrays(path, SHAPES) is None
    path.write_bytes(b"")
    assert find_arrays(path, SHAPES) is None


def test_a_file_that_changes_later_is_refused_in_a_line(tmp_path: Path) -> None:
    found = written(tmp_path)
    window = np.zeros((1, 2, 9, 7), np.uint8)
    with found.open() as file:
        os.truncate(found.path, found.path.stat().st_size // 3)
        with pytest.raises(
            ValueError, match=r"a\.npz ends [\d,]+ bytes too early: it was cut off while it was read$"
        ):
            found.fill(file, "image", (4, 0, 0), window)
    with pytest.raises(ValueError, match=r"a\.npz has changed since it was checked: .*--resume$"), found.open():
        pass
    written(tmp_path, image=arrays(1)["image"])  # the same size, other bytes
    with pytest.raises(ValueError, match="has changed since"), found.open():
        pass
    found.path.unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.npz does not exist: it was there when training began"):
        found.open().__enter__()


def test_a_prepared_set_knows_where_its_arrays_are(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path, channels=2, masked=False)
    for case in prepared.cases:
        found = prepared.located(case)
        assert found is not None
        image, mask = prepared.load(case)
        for name, whole in (("image", image), ("mask", mask)):
            assert (name in found.shapes) == (whole is not None)
            if whole is not None:
                window = np.zeros_like(whole)
                with found.open() as file:
                    found.fill(file, name, (0, 0, 0), window)
                assert np.array_equal(window, whole)
    assert prepared.nbytes == 4 * 6 * 24 * 20 * 2 + 6 * 24 * 20
