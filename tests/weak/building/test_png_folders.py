"""Folders of PNGs are prepared: colours as channels, COCO that names a picture itself, nnU-Net's layout."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from small_downloads import nifti

from pictures import COLOURS, HEADER, NAMES, picture, pictures, save, truth
from ringfence.weak.annotations import read_boxes
from ringfence.weak.building import PreparationFailed, prepare
from ringfence.weak.prepared.prepared_set import PreparedSet


def as_coco(folder: Path, ending: str = ".png") -> None:
    (folder / "boxes.csv").unlink()
    images = [{"id": k, "file_name": f"there/{name}{ending}", "height": 16} for k, name in enumerate(NAMES)]
    notes = [{"image_id": k, "category_id": 7, "bbox": [4, 3, 16, 6 + k]} for k in range(5)]
    content = {"images": images, "annotations": notes, "categories": [{"id": 7, "name": "cell"}]}
    (folder / "boxes.json").write_text(json.dumps(content))


def corners(prepared: PreparedSet) -> list[tuple[object, ...]]:
    assert prepared.boxes is not None
    boxes = read_boxes(prepared.boxes.path_in(prepared.path), prepared)
    return sorted((one.case, one.slice, one.low, one.high) for one in boxes)


DRAWN = [(name, 0, (3, 4), (9 + number, 20)) for number, name in enumerate(NAMES)]


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_and_boxes(tmp_path: Path, channels: int) -> None:
    prepared = prepare("folder", pictures(tmp_path / "mine", channels), tmp_path / "set").prepared
    assert prepared.channels == (("image",) if channels == 1 else COLOURS)
    assert [case.name for case in prepared.cases] == list(NAMES)
    assert {(case.shape, case.spacing) for case in prepared.cases} == {((1, 16, 32), None)}
    assert corners(prepared) == DRAWN
    image, mask = prepared.load(prepared.cases[1])
    assert mask is not None
    assert np.array_equal(image[0, 0], 255 * truth(1))
    assert np.array_equal(mask[0], truth(1))
    assert image.shape == (1, channels, 16, 32)


@pytest.mark.parametrize("ending", [".png", ".jpg"])
def test_coco_names_a_picture_itself(tmp_path: Path, ending: str) -> None:
    """A case of one slice, although _0003 could be a slice or a channel; with another ending, _3 still could."""
    folder = pictures(tmp_path / "mine", 3)
    as_coco(folder, ending)
    if ending == ".jpg":  # four digits would be a channel's
        for file in [*folder.rglob("im_*"), folder / "boxes.json"]:
            if file.suffix == ".json":
                file.write_text(file.read_text().replace("im_0", "im_"))
            else:
                file.rename(file.with_name(file.name.replace("im_0", "im_")))
    prepared = prepare("folder", folder, tmp_path / "set").prepared
    drawn = [(name.replace("im_0", "im_") if ending == ".jpg" else name, *rest) for name, *rest in DRAWN]
    assert corners(prepared) == [tuple(one) for one in drawn]


def test_grey_among_coloured_is_named(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "mine", 3)
    save(folder / "im_0002.png", picture(2, 1))
    with pytest.raises(PreparationFailed, match=r"im_0002.png has 1 channel, and most images beside it have 3"):
        prepare("folder", folder, tmp_path / "set")
    done = prepare("folder", folder, tmp_path / "set", skip_failures=True)
    assert (done.prepared.channels, len(done.prepared.cases)) == (COLOURS, 4)


def test_white_masks_are_told_what_to_do(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "mine", 1)
    save(folder / "masks/im_0001.png", 255 * truth(1))
    with pytest.raises(PreparationFailed, match=r"labels: 255; .* 1 cell; if white stands for a class, write its"):
        prepare("folder", folder, tmp_path / "set")


def test_pictures_beside_volumes_are_no_cases(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    for name in "ab":
        nifti(folder / f"{name}.nii.gz", np.random.default_rng(0).integers(0, 99, (3, 16, 16)).astype("i2"))
        save(folder / f"{name}.png", picture(0, 3))
    (folder / "boxes.csv").write_text(HEADER + "a,0,x,1,9,2,9\nb,1,x,3,8,3,9\n")
    prepared = prepare("folder", folder, tmp_path / "set").prepared
    assert (prepared.channels, {case.shape[0] for case in prepared.cases}) == (("image",), {3})


def test_nnunet_has_all_colours_in_one_file(tmp_path: Path) -> None:
    facts = {"channel_names": {"0": "R", "1": "G", "2": "B"}, "labels": {"background": 0, "cell": 1}}
    for number in range(3):
        save(tmp_path / f"raw/imagesTr/c{number}_0000.png", picture(number, 3))
        save(tmp_path / f"raw/labelsTr/c{number}.png", truth(number))
    (tmp_path / "raw/dataset.json").write_text(json.dumps(facts | {"file_ending": ".png", "numTraining": 3}))
    prepared = prepare("nnunet", tmp_path / "raw", tmp_path / "set").prepared
    assert (prepared.channels, len(prepared.cases)) == (("R", "G", "B"), 3)
    save(tmp_path / "raw/imagesTr/c1_0000.png", picture(1, 1))
    with pytest.raises(PreparationFailed, match=r"c1_0000.png has 1 channel; the data set has 3: R, G, B"):
        prepare("nnunet", tmp_path / "raw", tmp_path / "other")
