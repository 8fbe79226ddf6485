"""What a fingerprint says, against loops over masks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage

from prepared_sets import described_anew, make_prepared
from ringfence.weak.annotations import BoxAnnotation, left_out
from ringfence.weak.appearance.looks import Look
from ringfence.weak.planning.fingerprint import _alike, read_fingerprint
from ringfence.weak.planning.plan import make_plan
from ringfence.weak.prepared.prepared_set import PreparedSet


def test_sides_counts_and_shares_are_those_of_the_masks(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", cases=4, shape=(6, 30, 40), classes=2, spacing=(3.0, 1.0, 1.0))
    found = read_fingerprint(prepared)
    masks = np.stack([prepared.load(case)[1] for case in prepared.of("train")])  # type: ignore[misc]
    assert (found.cases, found.slices, found.depths) == (3, 18, (6, 6, 6))
    assert (found.validated, found.judged) == (1, 1)
    assert found.spacing == pytest.approx((3.0, 1.0, 1.0))
    assert found.flatness == pytest.approx(3.0)
    for label, one in enumerate(found.classes, start=1):
        sides = []
        for plane in masks.reshape(-1, 30, 40) == label:
            parts, _ = ndimage.label(plane, structure=np.ones((3, 3)))
            sides += [
                (rows.stop - rows.start, cols.stop - cols.start) for rows, cols in ndimage.find_objects(parts)
            ]
        assert one.boxes == one.tight == len(sides)
        assert one.rows == pytest.approx(np.percentile([rows for rows, _ in sides], (10, 50, 90)))
        assert one.columns == pytest.approx(np.percentile([columns for _, columns in sides], (10, 50, 90)))
        assert one.share == pytest.approx(sum(rows * columns for rows, columns in sides) / (18 * 30 * 40))
        depths = []
        for volume in masks == label:
            parts, _ = ndimage.label(volume, structure=np.ones((3, 3, 3)))
            depths += [slices.stop - slices.start for slices, *_ in ndimage.find_objects(parts)]
        assert one.depth == np.median(depths)
        assert one.cases == 3
        assert one.slices == int((masks == label).any(axis=(2, 3)).sum())


def test_boxes_of_a_file_are_read_without_masks(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", cases=3, shape=(4, 20, 20), masked=False)
    names = [case.name for case in prepared.of("train")]
    flat = [BoxAnnotation(name, 1, 1, (2, 4), (10, 16)) for name in names]
    deep = [BoxAnnotation(name, None, 1, (0, 2, 4), (3, 10, 16)) for name in names]
    assert read_fingerprint(prepared, flat).classes[0].rows == (8.0, 8.0, 8.0)
    assert read_fingerprint(prepared, flat).tight
    assert read_fingerprint(prepared, flat).judged == 0
    (judge,) = prepared.of("validation")
    assert read_fingerprint(prepared, [*flat, BoxAnnotation(judge.name, 1, 1, (2, 4), (10, 16))]).judged == 1
    in_space = BoxAnnotation(judge.name, None, 1, (0, 2, 4), (3, 10, 16))
    assert read_fingerprint(prepared, [*flat, in_space]).judged == 0  # such a box is seldom that of its slices
    trained = replace(prepared, cases=tuple(prepared.of("train")))
    assert read_fingerprint(trained, flat).judged == len(names)  # box_iou is then of training images
    found = read_fingerprint(prepared, deep)
    assert found.classes[0].slices == 3 * len(names)
    assert not found.tight
    assert found.spatial == ["class 1"]
    one_slice = [BoxAnnotation(names[0], None, 1, (3, 2, 4), (4, 10, 16))]  # tight in it: as if drawn there
    assert read_fingerprint(prepared, [*deep[1:], *one_slice]).tight
    assert read_fingerprint(prepared, [*deep, *one_slice]).spatial == ["class 1"]
    assert read_fingerprint(prepared, flat).spatial == []
    with pytest.raises(ValueError, match="has neither a mask nor a box"):
        read_fingerprint(prepared)


@pytest.mark.parametrize("gap", [1, 3, 5])
def test_slices_that_were_left_out_make_no_boxes_in_space(tmp_path: Path, gap: int) -> None:
    """A box in every second, fourth or sixth slice, and those between them; several in a slice count each."""
    prepared = make_prepared(tmp_path / "set", cases=2, shape=(13, 20, 20), masked=False)
    drawn = [
        BoxAnnotation(case.name, row, 1, low, (8 + low[0], 8 + low[1]))
        for case in prepared.of("train")
        for row in range(0, 13, 1 + gap)
        for low in ((0, 0), (10, 10))
    ]
    found = read_fingerprint(prepared, [*drawn, *left_out(drawn, gap)])
    (one,) = found.classes
    assert (one.tight, one.between, one.boxes) == (len(drawn), one.boxes - len(drawn), 26 * found.cases)
    assert found.spatial == []
    deep = [BoxAnnotation(case.name, None, 1, (0, 0, 0), (13, 8, 8)) for case in prepared.of("train")]
    few = [box for box in drawn if box.slice == 0]
    assert read_fingerprint(prepared, [*few, *deep]).spatial == ["class 1"]  # two of fifteen in each case


def loose_boxes(prepared: PreparedSet, wider: float, scale: float = 1.0) -> list[BoxAnnotation]:
    """Around each part of the training masks, wider by a fraction of the side at either end; in voxels of a source."""
    found = []
    for case in prepared.of("train"):
        labels = prepared.load(case)[1]
        assert labels is not None
        for number, plane in enumerate(labels):
            for label in range(1, 1 + len(prepared.classes)):
                ends = np.argwhere(plane == label)
                if len(ends):
                    low, high = ends.min(axis=0), 1 + ends.max(axis=0)
                    off = wider * (high - low)
                    start, stop = (np.rint(scale * one).astype(int).tolist() for one in (low - off, high + off))
                    found.append(BoxAnnotation(case.name, number, label, tuple(start), tuple(stop)))
    return found


@pytest.mark.parametrize("wider", [0.0, 0.06, 0.12])
def test_boxes_that_are_too_wide_are_seen_to_be(tmp_path: Path, wider: float) -> None:
    """Of two classes side by side, each in the other's way."""
    prepared = make_prepared(tmp_path / "set", cases=9, shape=(6, 72, 128), classes=2)
    found = read_fingerprint(prepared, loose_boxes(prepared, wider))
    for one in found.classes:
        assert one.loose == pytest.approx(wider / (1.0 + 2.0 * wider), abs=0.015)
    changes = make_plan(found, "cpu", drawn=True).changes
    assert ("data.tighten" in changes) == (wider > 0.0)


def test_boxes_that_were_rounded_outwards_are_not_too_wide(tmp_path: Path) -> None:
    """Tight in the source, which has twice as many rows and columns, and some: in the set they are a pixel wider."""
    prepared = make_prepared(tmp_path / "set", cases=9, shape=(6, 40, 40))
    source = 91
    cases = tuple(replace(case, shape=(6, source, source)) for case in prepared.cases)
    resized = replace(prepared, cases=cases)
    boxes = loose_boxes(prepared, 0.0, source / 40)
    (one,) = read_fingerprint(resized, boxes).classes
    assert one.rows[1] >= 1.0 + read_fingerprint(prepared).classes[0].rows[1]  # by rounding
    assert one.loose == pytest.approx(0.0, abs=0.015)


def test_a_bright_neighbour_is_not_what_surroundings_are_like(tmp_path: Path) -> None:
    """Three pixels beside each object, and in a box of its own: lines that meet it say nothing."""
    prepared = make_prepared(tmp_path / "set", cases=9, shape=(6, 48, 64), classes=2)
    random = np.random.default_rng(0)
    for case in prepared.cases:
        labels = np.zeros((6, 48, 64), np.uint8)
        labels[:, 14:34, 10:30], labels[:, 14:34, 33:53] = 1, 2
        image = 60.0 + np.array([0.0, 40.0, 120.0])[labels] + random.normal(0.0, 8.0, labels.shape)
        np.savez(prepared.path / case.file, image=image[:, None].clip(0, 255).astype(np.uint8), mask=labels)
    prepared = described_anew(prepared)
    found = read_fingerprint(prepared, loose_boxes(prepared, 0.0)).classes[0]
    assert found.visible == 1.0
    assert found.loose == pytest.approx(-0.045, abs=0.01)  # of squares, lines are full at once


def test_few_boxes_do_not_say_how_wide_they_are_drawn(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", cases=2, shape=(6, 40, 40))
    assert read_fingerprint(prepared, loose_boxes(prepared, 0.1)).classes[0].loose is None


def test_objects_that_show_are_counted(tmp_path: Path) -> None:
    """Ellipsoids that are brighter by far; and the same boxes in images of nothing but noise."""
    prepared = make_prepared(tmp_path / "set", cases=5, shape=(6, 40, 40), classes=2)
    shown = read_fingerprint(prepared).classes
    assert [one.visible for one in shown] == [1.0, 1.0]
    assert all(one.fill == pytest.approx(np.pi / 4, abs=0.06) for one in shown)  # they are ellipses
    assert all(one.shows and not one.hidden for one in shown)
    random = np.random.default_rng(0)
    for case in prepared.of("train"):
        image, mask = prepared.load(case)
        noise = random.normal(120.0, 15.0, image.shape).clip(0, 255).astype(np.uint8)
        np.savez(prepared.path / case.file, image=noise, mask=mask)  # type: ignore[arg-type]
    hidden = read_fingerprint(described_anew(prepared))
    assert max(one.visible for one in hidden.classes) < 0.1
    assert all(one.hidden and not one.shows for one in hidden.classes)


@pytest.mark.parametrize(("length", "thick"), [(17, 5), (21, 6), (110, 7)])
def test_small_thin_objects_are_seen_to_be_thin(tmp_path: Path, length: int, thick: int) -> None:
    """Bars at an angle: a mean over 3×3 pixels would see more; and long ones in boxes of less than 32 rows."""
    prepared = make_prepared(tmp_path / "set", cases=9, shape=(6, 144, 48))
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[:144, :48] - np.array([71.5, 23.5])[:, None, None]
    filled = []
    for case in prepared.cases:
        angles = random.uniform(0.6, 0.9, 6) if length < 100 else random.uniform(0.1, 0.14, 6)
        along, across = (
            np.stack([np.cos(a) * rows + np.sin(a) * columns for a in angles + turn]) for turn in (0.0, np.pi / 2)
        )
        labels = (np.abs(along) < length / 2) & (np.abs(across) < thick / 2)
        for one in labels:
            (found,) = ndimage.find_objects(one.astype(int))
            filled.append(one[found].mean())
        image = (
            80.0
            + 60.0 * ndimage.gaussian_filter(labels * 1.0, (0.0, 0.7, 0.7))
            + random.normal(0, 10, labels.shape)
        )
        image = image[:, None].clip(0, 255).astype(np.uint8)
        np.savez(prepared.path / case.file, image=image, mask=labels.astype(np.uint8))
    (one,) = read_fingerprint(described_anew(prepared)).classes
    assert one.visible == 1.0
    assert one.fill == pytest.approx(np.median(filled), abs=0.06)
    assert one.thin


def test_what_a_closer_look_does_not_tell_apart_fills_what_the_first_look_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = make_prepared(tmp_path / "set", cases=5, shape=(6, 40, 40))
    asked: list[float] = []

    def untold(image: object, look: Look) -> None:
        asked.append(float(look.fill or 0.0))

    monkeypatch.setattr("ringfence.weak.planning.showing.filled", untold)
    (one,) = read_fingerprint(prepared).classes
    assert one.visible == 1.0
    assert one.fill == np.median(asked) > 0.7


def test_zeros_around_smaller_images_are_no_surroundings(tmp_path: Path) -> None:
    """Of a set at a common spacing, whose fields of view end a few pixels beyond the objects."""
    prepared = make_prepared(tmp_path / "set", cases=9, shape=(6, 40, 40))
    inside = []
    for case in prepared.cases:
        image, mask = prepared.load(case)
        assert mask is not None
        ends = [np.flatnonzero(mask.any(axis=(0, axis)))[[0, -1]] for axis in (2, 1)]
        (top, bottom), (left, right) = ((max(int(low) - 3, 0), min(int(high) + 4, 40)) for low, high in ends)
        seen = np.zeros_like(image)
        seen[..., top:bottom, left:right] = 150 + image[..., top:bottom, left:right] // 5  # far from 0
        np.savez(prepared.path / case.file, image=seen, mask=mask)
        inside.append(((top, bottom), (left, right)))
    unaware = described_anew(prepared)
    aware = tuple(
        replace(case, shape=(6, bottom - top, right - left), inside=((top, bottom), (left, right)))
        for case, ((top, bottom), (left, right)) in zip(unaware.cases, inside, strict=True)
    )
    (one,) = read_fingerprint(replace(unaware, cases=aware)).classes
    (other,) = read_fingerprint(unaware).classes
    assert one.visible > 0.9
    assert other.visible < 0.5


def test_what_was_not_looked_at_is_not_said_to_be_hidden(tmp_path: Path) -> None:
    """Boxes of four pixels, too small to look at."""
    prepared = make_prepared(tmp_path / "set", cases=5, shape=(6, 40, 40))
    tiny = [
        BoxAnnotation(case.name, number, 1, (10, 10), (14, 14))
        for case in prepared.of("train")
        for number in range(6)
    ]
    (one,) = read_fingerprint(prepared, tiny).classes
    assert (one.boxes, one.looked, one.shows, one.hidden) == (24, 0, False, False)


def test_a_class_within_another_is_found(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", cases=2, shape=(4, 20, 20), classes=2, masked=False)
    (case,) = prepared.of("train")
    outer = [BoxAnnotation(case.name, number, 1, (2, 2), (18, 18)) for number in range(4)]
    inner = [BoxAnnotation(case.name, number, 2, (5, 5), (10, 10)) for number in range(3)]
    beside = BoxAnnotation(case.name, 3, 2, (0, 12), (6, 20))
    found = read_fingerprint(prepared, [*outer, *inner, beside])
    assert found.within == {("class 2", "class 1"): 0.75}


def test_unknown_spacing_is_no_spacing(tmp_path: Path) -> None:
    found = read_fingerprint(make_prepared(tmp_path / "set", spacing=None))
    assert found.spacing is None
    assert found.flatness is None
    assert found.uneven == 1.0


BOX = st.tuples(*[st.tuples(st.integers(0, 6), st.integers(0, 6)).map(sorted)] * 2)


@given(
    cases=st.lists(st.lists(st.lists(BOX, min_size=2, max_size=2), min_size=1, max_size=4), min_size=1, max_size=3)
)
def test_how_alike_boxes_of_neighbouring_slices_are(cases: list[list[list[Any]]]) -> None:
    """Against pixels that are counted one by one; of boxes without any, nothing is said."""
    shares = []
    for case in cases:
        pixels = [[set(product(range(*box[0]), range(*box[1]))) for box in boxes] for boxes in case]
        for here, there in pairwise(pixels):
            shares += [max(len(one & other) / len(one | other) for other in there) for one in here if one]
    found = _alike([np.array(case) for case in cases])
    assert found == pytest.approx(sum(shares) / len(shares) if shares else 0.0)
