"""Images and a table of boxes, without dataset.json."""

from __future__ import annotations

import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
from downloads import case, decathlon, names, nnunet, touch
from PIL import Image

from ringfence.weak.datasets import LAYOUTS, find_folder
from ringfence.weak.datasets.box_table import table_beside

HEADER = "case,slice,class,row_low,row_high,column_low,column_high\n"


def table(folder: Path, *classes: str, case: str = "a") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "boxes.csv"
    file.write_text(HEADER + "".join(f"{case},0,{name},1,2,1,2\n" for name in classes))
    return file


@pytest.mark.parametrize("inner", ["", "images"])
def test_a_file_is_a_case(tmp_path: Path, inner: str) -> None:
    folder = tmp_path / "mine"
    touch(*(folder / inner / name for name in ("b.nii.gz", "a.mha", "c_2019.nii", "notes.txt", ".hidden.nii")))
    boxes = table(folder, "liver", "aorta", "liver")
    source = find_folder(folder)
    assert (source.kind, source.name, source.channels) == ("images", "mine", ("image",))
    assert names(source) == ["a", "b", "c_2019"]
    assert (source.classes, source.labels) == (("aorta", "liver"), (1, 2))
    assert (source.boxes and source.boxes.path, source.validation, source.problems) == (boxes, frozenset(), {})
    assert all(case.mask is None for case in source.cases)


def test_channels_are_numbered(tmp_path: Path) -> None:
    table(tmp_path, "x")
    touch(*(tmp_path / f"{case}_{channel:04}.nii.gz" for case in "ab" for channel in (0, 1)))
    source = find_folder(tmp_path)
    assert (names(source), source.channels) == (["a", "b"], ("channel 0", "channel 1"))
    assert [file.path.name for file in source.cases[0].images] == ["a_0000.nii.gz", "a_0001.nii.gz"]
    (tmp_path / "b_0001.nii.gz").unlink()
    source = find_folder(tmp_path)
    assert names(source) == ["a"]
    assert source.problems == {"b": f"it has 1 of 2 channels in {tmp_path}"}
    (tmp_path / "a_0001.nii.gz").rename(tmp_path / "a_0002.nii.gz")
    with pytest.raises(ValueError, match="channels should be numbered 0000, 0001, ...; they are 0000, 0002"):
        find_folder(tmp_path)


@pytest.mark.parametrize("numbers", [(2019, 2020), (0, 1, 2)])
def test_numbered_cases_are_no_channels(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    """Without a 0000 of each, or where the table names them as cases."""
    cases = [f"scan_{number:04}" for number in numbers]
    table(tmp_path, "x", case=cases[0])
    touch(*(tmp_path / f"{case}.nii.gz" for case in cases))
    source = find_folder(tmp_path)
    assert (names(source), source.channels) == (cases, ("image",))


def test_boxes_of_no_image_are_told_before_any_is_read(tmp_path: Path) -> None:
    file = table(tmp_path, "x")
    touch(tmp_path / "anna.nii.gz", tmp_path / "bert.nii.gz")
    file.write_text(HEADER + "anna.nii.gz,0,x,1,2,1,2\nberta,0,x,1,2,1,2\nberta,1,x,1,2,1,2\n")
    with pytest.raises(
        ValueError, match=r"boxes.csv: line 3: there is no image of case 'berta'; did you mean 'bert'"
    ):
        find_folder(tmp_path)


def test_masks_of_some(tmp_path: Path) -> None:
    table(tmp_path, "x")
    touch(*(tmp_path / f"{name}.nii.gz" for name in "abc"), *(tmp_path / f"masks/{name}.nii.gz" for name in "bcd"))
    source = find_folder(tmp_path)
    assert {case.name for case in source.cases if case.mask} == {"b", "c"}
    assert (source.validation, source.labels) == ({"c"}, (1,))
    assert source.problems == {"d": f"{tmp_path} has no image for {tmp_path / 'masks' / 'd.nii.gz'}"}
    assert find_folder(tmp_path, validation=["b"]).validation == {"b"}
    table(tmp_path, "x", "y")
    with pytest.raises(
        ValueError, match=r"nothing says which of their labels is x, y: call classes by their numbers"
    ):
        find_folder(tmp_path)


def test_classes_that_are_numbers_are_the_labels(tmp_path: Path) -> None:
    touch(tmp_path / "a.nii.gz", tmp_path / "masks/a.nii.gz")
    table(tmp_path, "10", "2")
    source = find_folder(tmp_path)
    assert (source.classes, source.labels) == (("2", "10"), (2, 10))
    table(tmp_path, "10.0", "2.0", "2")  # as pandas writes them
    assert find_folder(tmp_path).labels == (2, 10)
    for wrong, message in (
        ("0", "boxes.csv: class 0 is the background"),
        ("300", "nothing says which of their labels is 2, 300"),
        ("02", r"boxes.csv: label '2' \(2\): two classes"),
    ):
        table(tmp_path, "2", wrong)
        with pytest.raises(ValueError, match=message):
            find_folder(tmp_path)


def test_numbers_that_no_mask_could_hold_are_names(tmp_path: Path) -> None:
    touch(tmp_path / "a.nii.gz")
    table(tmp_path, "10200004", "5" * 5000)
    assert find_folder(tmp_path).labels == (1, 2)


def test_classes_that_look_alike_are_refused(tmp_path: Path) -> None:
    touch(tmp_path / "a.nii.gz")
    table(tmp_path, "liver", "liver", "Liver")
    with pytest.raises(
        ValueError, match=r"boxes.csv: line 4: class 'Liver', and 'liver' before: are they the same"
    ):
        find_folder(tmp_path)
    table(tmp_path, *(f"class {number}" for number in range(256)))
    with pytest.raises(ValueError, match=r"names 256 classes, and at most 255 can be: is the column 'class' right"):
        find_folder(tmp_path)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([{"class": "b", "case": "a"}, {"Class": "a", "case": "a"}], ("a", "b")),
        ({"boxes": [{"class": 2, "case": "a"}, {"class": 1.0, "case": "a"}]}, ("1", "2")),
        (
            {
                "images": [],
                "categories": [{"id": 1, "name": "a"}, {"id": 2.0, "name": "b"}, {"id": "3", "name": "c"}],
                "annotations": [{"category_id": 2}, {"category_id": 3}],
            },
            ("b", "c"),
        ),
    ],
)
def test_json_and_coco_name_classes(tmp_path: Path, content: object, expected: tuple[str, ...]) -> None:
    file = tmp_path / "boxes.json"
    file.write_text(json.dumps(content))
    found = table_beside(tmp_path)
    assert found is not None
    assert found.classes() == expected
    touch(tmp_path / "a.nii.gz")
    assert find_folder(tmp_path).classes == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEADER, "holds no box at all"),
        (HEADER + "a,0,,1,2,1,2\n", "boxes.csv: line 2: class is '': a name or a whole number is needed"),
        ("case,label\na,0\n", "boxes.csv: line 1: there is no class; there is case, label"),
        (
            '[{"case": "a", "class": true}, {"case": "a", "class": ["x"]}]',
            r"2 problems:\n  boxes\[0\]: class is True",
        ),
        ('[{"slice": 0}]', r"boxes\[0\]: there is no case and no class; there is slice"),
        ('{"images": [], "annotations": [1], "categories": []}', "a COCO file has lists of images"),
        ('{"images": [], "annotations": []}', "a COCO file has lists of images"),
        ("", "is empty; it should hold boxes"),
    ],
)
def test_a_table_without_classes(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "boxes.csv").write_text(content)
    touch(tmp_path / "a.nii.gz")
    with pytest.raises(ValueError, match=message):
        find_folder(tmp_path)


def test_what_is_not_there(tmp_path: Path) -> None:
    table(tmp_path, "x")
    with pytest.raises(FileNotFoundError, match="holds no image: .nii, .nii.gz, .mhd, .mha, .png are read$"):
        find_folder(tmp_path)
    touch(tmp_path / "a.JPG")
    with pytest.raises(FileNotFoundError, match=r"\.png are read; convert others to PNG$"):
        find_folder(tmp_path)
    touch(tmp_path / "a.nii.gz")
    with pytest.raises(FileNotFoundError, match="fold 1: there is no splits_final.json"):
        find_folder(tmp_path, fold=1)
    touch(tmp_path / "a.nii")
    with pytest.raises(ValueError, match=r"holds both a.nii and a.nii.gz: remove one of them"):
        find_folder(tmp_path)
    (tmp_path / "boxes.json").write_text("[]")
    with pytest.raises(ValueError, match=r"holds both boxes.csv and boxes.json: remove one of them"):
        find_folder(tmp_path)


def test_every_layout_takes_the_table_beside_it(tmp_path: Path) -> None:
    folders = {"nnunet": nnunet(tmp_path / "nnunet"), "decathlon": decathlon(tmp_path / "decathlon")}
    folders["folder"] = folders["nnunet"]
    folders["promise12"] = tmp_path / "promise12"
    case(folders["promise12"], 0)
    for layout, folder in folders.items():
        assert LAYOUTS[layout].source_at(folder).boxes is None
    for layout, folder in folders.items():
        boxes = table(folder, "PZ")
        found = LAYOUTS[layout].source_at(folder)
        assert found.boxes is not None
        assert (found.boxes.path, found.boxes.text) == (boxes, boxes.read_text())
        assert found.classes != ("PZ",)


def test_a_layout_with_dataset_json_alone_says_which_takes_images_and_boxes(tmp_path: Path) -> None:
    table(tmp_path, "x")
    touch(tmp_path / "a.nii.gz")
    with pytest.raises(FileNotFoundError, match="images and boxes without one are for `ringfence prepare folder`"):
        LAYOUTS["nnunet"].source_at(tmp_path)


def test_coco_and_file_names_tell_cases_from_channels(tmp_path: Path) -> None:
    touch(*(tmp_path / f"scan_{number:04}.nii.gz" for number in (0, 1)))
    table(tmp_path, "x", case="scan_0000.nii.gz")
    assert names(find_folder(tmp_path)) == ["scan_0000", "scan_0001"]
    (tmp_path / "boxes.csv").unlink()
    images = [{"id": 1, "file_name": "png/scan_0001_7.png"}]
    coco = {"images": images, "categories": [{"id": 1, "name": "x"}], "annotations": [{"category_id": 1}]}
    (tmp_path / "boxes.json").write_text(json.dumps(coco))
    assert names(find_folder(tmp_path)) == ["scan_0000", "scan_0001"]
    images.append({"id": 2, "file_name": "scan_0002/7.png"})
    (tmp_path / "boxes.json").write_text(json.dumps(coco))
    with pytest.raises(ValueError, match=r"boxes.json: images\[1\]: there is no image of case 'scan_0002'"):
        find_folder(tmp_path)


def as_coco(folder: Path, *file_names: str) -> None:
    """Instead of boxes.csv."""
    (folder / "boxes.csv").unlink(missing_ok=True)
    images = [{"id": index, "file_name": name} for index, name in enumerate(file_names)]
    content = {"images": images, "categories": [{"id": 1, "name": "x"}], "annotations": [{"category_id": 1}]}
    (folder / "boxes.json").write_text(json.dumps(content))


def test_a_wrong_name_of_a_png_is_its_own(tmp_path: Path) -> None:
    """im_077.png is no slice of a case im where all images are single ones; beside a volume it still is."""
    touch(*(tmp_path / f"im_{number:03}.png" for number in (6, 7, 11)))
    as_coco(tmp_path, "im_006.png", "im_077.png")
    with pytest.raises(
        ValueError, match=r"images\[1\]: there is no image of case 'im_077'; did you mean 'im_007'\?"
    ):
        find_folder(tmp_path)
    touch(tmp_path / "zz.nii.gz")
    as_coco(tmp_path, "zz_3.png", "im_077.png", "im_007.png")
    with pytest.raises(ValueError, match="2 problems") as caught:
        find_folder(tmp_path)
    assert "there is no image of case 'im'; " in str(caught.value)
    assert "'im_007'; im_007.png was taken for a picture, because zz.nii.gz lies beside it" in str(caught.value)


def test_a_png_that_was_taken_for_a_picture_is_named_where_it_is_missed(tmp_path: Path) -> None:
    table(tmp_path, "x", case="a.png")
    touch(*(tmp_path / name for name in ("a.png", "b.png", "b_overlay.png", "c.nii")))
    message = "there is no image of case '{}'; {}.png was taken for a picture, because {}"
    with pytest.raises(ValueError, match=message.format("a.png", "a", "c.nii lies beside it")):
        find_folder(tmp_path)
    table(tmp_path, "x", case="c")
    touch(tmp_path / "masks/a.png")
    problem = f"{tmp_path} has no image for {tmp_path / 'masks/a.png'}"
    assert find_folder(tmp_path).problems == {
        "a": f"{problem}: a.png was taken for a picture, because c.nii lies beside it"
    }
    (tmp_path / "c.nii").unlink()
    table(tmp_path, "x", case="b_overlay")
    with pytest.raises(ValueError, match=message.format("b_overlay", "b_overlay", "its name ends in _overlay")):
        find_folder(tmp_path)


def test_as_many_in_grey_as_in_colour(tmp_path: Path) -> None:
    table(tmp_path, "x")
    for name, mode in (("a", "RGB"), ("b", "L"), ("c", "RGB"), ("d", "L")):
        Image.new(mode, (4, 3)).save(tmp_path / f"{name}.png")
    words = "has 1 channel, and 2 of 4 have 3: save all in grey, or all in colour"
    assert find_folder(tmp_path).problems == {name: f"{tmp_path / name}.png {words}" for name in "bd"}


def test_masks_beside_the_images_are_no_images(tmp_path: Path) -> None:
    """Nor do they count as grey ones; but a case that the table names is one, whatever it is called."""
    table(tmp_path, "x")
    for name, mode in (("a", "RGB"), ("a_mask", "L"), ("b", "RGB"), ("b_Segmentation", "L"), ("c_label", "RGB")):
        Image.new(mode, (4, 3)).save(tmp_path / f"{name}.png")
    source = find_folder(tmp_path)
    assert (names(source), source.channels) == (["a", "b", "c_label"], ("red", "green", "blue"))
    assert source.problems == {
        mask: f"{tmp_path / mask}.png is called as the mask of case '{name}': masks belong in "
        f"{tmp_path / 'masks' / name}.png"
        for name, mask in (("a", "a_mask"), ("b", "b_Segmentation"))
    }
    table(tmp_path, "x", case="a_mask")
    assert find_folder(tmp_path).problems["a_mask"].endswith("save all in grey, or all in colour")


def test_names_and_numbers_are_not_mixed(tmp_path: Path) -> None:
    touch(tmp_path / "a.nii.gz")
    table(tmp_path, "organ", "1")
    with pytest.raises(
        ValueError, match=r"boxes.csv: classes are 1, organ: call all of them by names, or all by num"
    ):
        find_folder(tmp_path)


def test_how_many_channels_there_are_is_in_the_headers(tmp_path: Path) -> None:
    """Nothing but headers is there; what cannot be read is said when its turn comes."""
    table(tmp_path, "x")
    for name, shape in (("a", (4, 3, 2, 2)), ("b", (5, 5, 5, 2)), ("c", (4, 3, 2))):
        image = nibabel.Nifti1Image(np.zeros(shape, np.uint8), np.eye(4))
        (tmp_path / f"{name}.nii").write_bytes(image.to_bytes()[:348])
    touch(tmp_path / "d.nii")
    source = find_folder(tmp_path)
    assert (names(source), source.channels) == (["a", "b", "d"], ("channel 0", "channel 1"))
    assert source.problems == {"c": f"{tmp_path / 'c.nii'} has 1 channel, and most images beside it have 2"}


def test_coloured_pngs_by_their_headers(tmp_path: Path) -> None:
    table(tmp_path, "x", case="a_0000")
    for name in ("a_0000", "a_0001"):
        file = tmp_path / f"{name}.png"
        Image.new("RGB", (4, 3)).save(file)
        file.write_bytes(file.read_bytes()[:33])
    source = find_folder(tmp_path)
    assert (names(source), source.channels) == (["a_0000", "a_0001"], ("red", "green", "blue"))
    (tmp_path / "boxes.csv").unlink()
    content = {"images": [{"id": 1, "file_name": "a_0001.png"}], "categories": [{"id": 1, "name": "x"}]}
    (tmp_path / "boxes.json").write_text(json.dumps(content | {"annotations": [{"category_id": 1}]}))
    assert names(find_folder(tmp_path)) == ["a_0000", "a_0001"]  # and not slice 1 of a
