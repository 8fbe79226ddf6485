"""Slices at a common spacing: the same millimetres are the same pixels, there and back."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ringfence.weak import load_model, predict, prepare
from ringfence.weak.annotations import (
    BoxAnnotation,
    ScribblePoint,
    SizeAnnotation,
    boxes_from_masks,
    place_boxes,
    place_objects,
    place_scribbles,
    place_sizes,
)
from ringfence.weak.building import PreparationFailed
from ringfence.weak.inference.card import ModelCard
from ringfence.weak.inference.model import Model
from ringfence.weak.inference.model_file import save_model
from ringfence.weak.inference.predictor import Predictor
from ringfence.weak.networks.build import Tempered, build_network
from ringfence.weak.planning.fingerprint import read_fingerprint
from ringfence.weak.prepared import Case, Preprocessing, read_prepared
from ringfence.weak.prepared.spacing import missing_spacing

CASES = {"a": (0.5, 80), "b": (0.8, 60), "c": (1.0, 40)}
"""Millimetres between pixels, and pixels along a side: 40, 48 and 40 mm. The median spacing is 0.8."""
OBJECT = ((8, 24), (12, 20))
"""Rows and columns of the object in millimetres from the corner: whole pixels at each of the spacings, and at 0.8."""


def write(path: Path, voxels: NDArray[Any], spacing: Sequence[float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(voxels.transpose(), np.diag([*spacing[::-1], 1.0])), path)


def native_box(step: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    low, high = zip(*((round(start / step), round(stop / step)) for start, stop in OBJECT), strict=True)
    return low, high


def drawn(step: float, side: int) -> NDArray[np.uint8]:
    mask = np.zeros((2, side, side), np.uint8)
    (top, left), (bottom, right) = native_box(step)
    mask[:, top:bottom, left:right] = 1
    return mask


def download(folder: Path, cases: dict[str, tuple[float, int]] = CASES, unknown: Sequence[str] = ()) -> Path:
    for name, (step, side) in cases.items():
        mask = drawn(step, side)
        spacing = (1.0, 1.0, 1.0) if name in unknown else (3.0, step, step)
        write(folder / f"imagesTr/{name}_0000.nii.gz", (100 * mask + 7).astype(np.int16), spacing)
        write(folder / f"labelsTr/{name}.nii.gz", mask, spacing)
    facts = {
        "channel_names": {"0": "T2"},
        "labels": {"background": 0, "square": 1},
        "numTraining": len(cases),
        "file_ending": ".nii.gz",
    }
    (folder / "dataset.json").write_text(json.dumps(facts))
    return folder


def test_the_same_millimetres_are_the_same_pixels(tmp_path: Path) -> None:
    prepared = prepare("folder", download(tmp_path / "src"), tmp_path / "dst").prepared
    assert prepared.preprocessing == Preprocessing((64, 64), spacing=0.8)  # 60 pixels, up to a multiple of 16
    assert "64 × 64, pixels of 0.8 mm" in str(prepared)
    for case in prepared.cases:
        image, mask = prepared.load(case)
        assert mask is not None
        start = (64 - round(case.shape[1] * CASES[case.name][0] / 0.8)) // 2
        there = [(start + first * 10 // 8, start + last * 10 // 8) for first, last in OBJECT]
        wanted = np.zeros((64, 64), bool)
        wanted[tuple(slice(*one) for one in there)] = True
        assert wanted.sum() == 20 * 10  # 16 mm by 8 mm
        assert all(np.array_equal(one == 1, wanted) for one in mask)
        assert np.array_equal(image[0, 0] > 127, wanted)
        assert case.inside == ((start, 64 - start),) * 2
        # boxes that were drawn on the source are those around the prepared masks
        low, high = native_box(CASES[case.name][0])
        boxes, whole = place_boxes([BoxAnnotation(case.name, 1, 1, low, high)], case, prepared.size, 1)
        around = boxes_from_masks(torch.from_numpy(mask == 1)[:, None])
        assert boxes[1, 0].tolist() == around[1, 0].tolist() == [[list(one) for one in there]]
        assert whole.all()
        deep = BoxAnnotation(case.name, None, 1, (0, *low), (2, *high))
        assert place_objects([deep], case, prepared.size, 1)[0, 0].tolist() == [[0, 2], *map(list, there)]
        voxels = float(math.prod(stop - first for first, stop in zip(low, high, strict=True)))
        bounds, _ = place_sizes([SizeAnnotation(case.name, 0, 1, voxels, voxels)], case, prepared.size, 1)
        assert bounds[0, 0] == pytest.approx(200.0)
        corner = place_scribbles([ScribblePoint(case.name, 0, 1, *low)], case, prepared.size)[0, 0]
        assert corner.tolist() == [2, there[0][0], there[1][0]]
    found = read_fingerprint(prepared)
    assert found.uneven == pytest.approx(1.0)
    assert found.spacing == pytest.approx((3.0, 0.8, 0.8))
    assert found.classes[0].rows == (20.0, 20.0, 20.0)
    again = read_prepared(prepared.path)
    assert again.cases == prepared.cases
    assert again.preprocessing == prepared.preprocessing


def test_without_it_slices_fill_their_size(tmp_path: Path) -> None:
    source = download(tmp_path / "src")
    prepared = prepare("folder", source, tmp_path / "none", spacing="none").prepared
    assert prepared.preprocessing == Preprocessing((64, 64))
    manifest = json.loads((tmp_path / "none" / "manifest.json").read_text())
    assert manifest["preprocessing"] == {"version": 1, "size": [64, 64], "percentiles": [0.5, 99.5]}
    assert all("inside" not in case for case in manifest["cases"])  # as earlier ringfences read and wrote it
    assert read_fingerprint(prepared).uneven == pytest.approx(1.2)
    # of one extent, they are alike without
    alike = download(tmp_path / "alike", {"a": (0.5, 80), "b": (0.8, 50), "c": (1.0, 40)})
    assert prepare("folder", alike, tmp_path / "same").prepared.preprocessing.spacing is None
    # PROMISE12 is prepared as the paper's authors did
    from ringfence.weak.datasets import LAYOUTS

    assert LAYOUTS["promise12"].spacing == "none"


def test_a_size_is_kept_and_nothing_is_cut_off(tmp_path: Path) -> None:
    source = download(tmp_path / "src")
    prepared = prepare("folder", source, tmp_path / "dst", size=(48, 32)).prepared
    assert prepared.preprocessing == Preprocessing((48, 32), spacing=1.5)  # 48 mm in 32 columns
    assert [case.inside for case in prepared.cases] == [
        ((10, 37), (2, 29)),
        ((8, 40), (0, 32)),
        ((10, 37), (2, 29)),
    ]
    with pytest.raises(
        PreparationFailed, match="b: its slices take 48 × 48 pixels of 1 mm, and there is room for 40"
    ) as failed:
        prepare("folder", source, tmp_path / "narrow", size=(40, 40), spacing=1.0)
    assert "a: " not in str(failed.value)
    assert prepare("folder", source, tmp_path / "wide", spacing=0.25).prepared.size == (192, 192)


def test_unknown_spacing_is_named(tmp_path: Path) -> None:
    source = download(tmp_path / "src", unknown="b")
    prepared = prepare("folder", source, tmp_path / "dst").prepared
    assert prepared.preprocessing.spacing is None
    (remark,) = missing_spacing(prepared)
    assert "The spacing of b is not known" in remark
    assert "not to one spacing" in remark
    with pytest.raises(PreparationFailed, match="\n  b: its spacing is not known .* pixels of 0.8 mm are needed"):
        prepare("folder", source, tmp_path / "asked", spacing=0.8)
    with pytest.raises(ValueError, match="spacing is 'Auto'; auto, none or a number"):
        prepare("folder", source, tmp_path / "typo", spacing="Auto")  # type: ignore[arg-type]


def test_what_was_begun_is_gone_on_with(tmp_path: Path) -> None:
    source = download(tmp_path / "src")
    made = prepare("folder", source, tmp_path / "dst").prepared
    (tmp_path / "dst" / "a.npz").unlink()
    again = prepare("folder", source, tmp_path / "dst")
    assert (again.kept, again.prepared) == (2, made)
    with pytest.raises(FileExistsError, match="spacing was 0.8, now 0.5"):
        prepare("folder", source, tmp_path / "dst", size=(64, 64), spacing=0.5)
    with pytest.raises(FileExistsError, match="spacing was 0.8, now None"):
        prepare("folder", source, tmp_path / "dst", spacing="none")


def test_a_damaged_place_is_refused(tmp_path: Path) -> None:
    prepare("folder", download(tmp_path / "src"), tmp_path / "dst")
    file = tmp_path / "dst" / "manifest.json"
    facts = json.loads(file.read_text())
    for wrong in (None, [[0, 65], [0, 4]], [[4, 4], [0, 4]], [[0, 4]], [[0.0, 4], [0, 4]]):
        facts["cases"][1]["inside"] = wrong
        file.write_text(json.dumps(facts))
        with pytest.raises(ValueError, match=r"cases\[1\]: inside is"):
            read_prepared(tmp_path / "dst")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_boxes_and_points_move_alike(data: st.DataObject) -> None:
    """x' = start + x · size / native in exact fractions; what is in a box stays in it, and none leaves its frame."""
    native = data.draw(st.tuples(st.integers(1, 300), st.integers(1, 300)))
    steps = data.draw(st.tuples(st.floats(0.2, 3.0), st.floats(0.2, 3.0)))
    wanted = data.draw(st.floats(0.3, 3.0))
    size = data.draw(st.tuples(st.integers(8, 200), st.integers(8, 200)))
    frame = Preprocessing(size, spacing=wanted).frame(native, steps, grow=True)
    (rows, columns), canvas = frame.inside, frame.canvas
    for axis, inside in enumerate((rows, columns)):
        assert abs(frame.size[axis] - native[axis] * steps[axis] / wanted) <= 0.5 + 1e-9 or frame.size[axis] == 1
        assert 0 <= inside.start < inside.stop <= canvas[axis]
        assert abs((canvas[axis] - inside.stop) - inside.start) <= 1  # in the middle
        assert canvas[axis] == size[axis] or (canvas[axis] % 16 == 0 and canvas[axis] - 16 < frame.size[axis])
    extents = ((rows.start, rows.stop), (columns.start, columns.stop))
    case = Case("A", "train", "A.npz", "", (1, *native), (1.0, *steps), False, extents)
    assert case.frame(canvas) == frame
    point = tuple(data.draw(st.integers(0, side - 1)) for side in native)
    low = tuple(data.draw(st.integers(0, place)) for place in point)
    high = tuple(data.draw(st.integers(place + 1, side)) for place, side in zip(point, native, strict=True))
    (box,) = place_boxes([BoxAnnotation("A", 0, 1, low, high)], case, canvas, 1).boxes[0, 0].tolist()
    (placed,) = place_scribbles([ScribblePoint("A", 0, 1, *point)], case, canvas)[0].tolist()
    for axis, (start, stop) in enumerate(box):
        scale, first = Fraction(frame.size[axis], native[axis]), frame.start[axis]
        assert start == first + math.floor(low[axis] * scale)
        assert stop == first + math.ceil(high[axis] * scale)
        assert placed[1 + axis] == first + math.floor((point[axis] + Fraction(1, 2)) * scale)
        assert start <= placed[1 + axis] < stop


def bright(preprocessing: Preprocessing, patch: tuple[int, int, int] | None = None) -> tuple[Tempered, ModelCard]:
    """A model whose foreground is where the image is above one half."""
    path = "torch.nn.Conv2d" if patch is None else "torch.nn.Conv3d"
    args = {"in_channels": 1, "out_channels": 2, "kernel_size": 1}
    network = build_network(path, args)
    with torch.no_grad():
        network.weight.zero_()
        network.weight[1] = 60.0
        network.bias.copy_(torch.tensor([0.0, -30.0]))
    return Tempered(network), ModelCard(path, args, ("T2",), ("square",), preprocessing, patch)


@pytest.mark.parametrize("patch", [None, (2, 16, 16)])
def test_masks_come_back_at_the_size_and_place_of_the_image(
    patch: tuple[int, int, int] | None, tmp_path: Path
) -> None:
    download(tmp_path / "src", CASES | {"large": (0.8, 100)})  # which is more than the model's 64 pixels
    model = tmp_path / "model.safetensors"
    save_model(model, *bright(Preprocessing((64, 64), spacing=0.8), patch))
    assert load_model(model).card.preprocessing == Preprocessing((64, 64), spacing=0.8)
    done = predict(model, tmp_path / "src" / "imagesTr", tmp_path / "out")
    assert not done.failed
    for name in (*CASES, "large"):
        truth = nibabel.load(tmp_path / f"src/labelsTr/{name}.nii.gz")
        found = nibabel.load(next((tmp_path / "out").glob(f"{name}*.nii.gz")))
        assert np.array_equal(found.affine, truth.affine)
        assert np.array_equal(np.asarray(found.dataobj), np.asarray(truth.dataobj)), name


def test_a_new_image_is_brought_to_the_models_spacing() -> None:
    seen = []

    class Watched(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            seen.append(images.clone())
            return torch.cat([0.5 - images, images - 0.5], dim=1) * 60.0

    _, card = bright(Preprocessing((64, 64), spacing=0.8))
    model = Model(Predictor(Tempered(Watched()), card, device="cpu"), Path("watched"))
    for step, side in CASES.values():
        seen.clear()
        found = model.predict(drawn(step, side), (3.0, step, step))
        assert np.array_equal(found.mask, drawn(step, side))
        for images in seen:
            assert images.shape[2:] == (64, 64)
            assert (images > 0.5).sum() == 200 * len(images)
    with pytest.raises(ValueError, match="this model was trained on pixels of 0.8 mm: give the image's spacing"):
        model.predict(drawn(1.0, 40))
    assert model.predict(drawn(1.0, 40)[0], (1.0, 1.0)).mask.sum() == 16 * 8
    assert "64 × 64, pixels of 0.8 mm" in repr(model)


def test_images_without_a_known_spacing_are_named(tmp_path: Path) -> None:
    download(tmp_path / "src", unknown="b")
    model = tmp_path / "model.safetensors"
    save_model(model, *bright(Preprocessing((64, 64), spacing=0.8)))
    done = predict(model, tmp_path / "src" / "imagesTr", tmp_path / "out")
    (failed,) = done.failed
    assert failed.name.startswith("b")
    assert "its spacing is not known" in failed.reason


def test_facts_with_a_spacing_make_the_same_one() -> None:
    before = Preprocessing((32, 24), (1.0, 99.0), 0.7)
    facts = json.loads(json.dumps(before.to_facts()))
    assert facts["version"] == 2  # which an earlier ringfence refuses
    assert Preprocessing.from_facts(facts) == before
    assert Preprocessing((32, 24)).to_facts() == {"version": 1, "size": [32, 24], "percentiles": [0.5, 99.5]}
    for wrong in (0, -1.0, "1", True, float("nan")):
        with pytest.raises(ValueError, match="a number of millimetres above 0"):
            Preprocessing.from_facts(facts | {"spacing": wrong})
    with pytest.raises(ValueError, match="preprocessing has 'spacing', which this ringfence does not know"):
        Preprocessing.from_facts(facts | {"version": 1})
