"""Data sets as downloaded: what is found where, how it is split, and what is said of what is not whole."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.weak.datasets import find_folder, find_promise12, with_validation
from ringfence.weak.datasets.source import SourceCase, SourceVolume, every_fifth


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)


def case(folder: Path, number: int) -> None:
    stems = (f"Case{number:02}", f"Case{number:02}_segmentation")
    touch(*(folder / f"{stem}{ending}" for stem in stems for ending in (".mhd", ".raw")))


def pack(archive: Path, folder: Path, under: str = "") -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w") as opened:
        for file in sorted(folder.iterdir()):
            opened.write(file, f"{under}{file.name}")


def names(source: Any) -> list[str]:
    return [one.name for one in source.cases]


def test_promise12_in_zips_in_folders_and_in_both(tmp_path: Path) -> None:
    for number in (1, 2, 16):
        case(tmp_path / f"loose{number}", number)
    pack(tmp_path / "download/TrainingData_Part1.zip", tmp_path / "loose1", "TrainingData_Part1/")
    pack(tmp_path / "download/deep/Part2.zip", tmp_path / "loose2")
    case(tmp_path / "download/unpacked", 16)
    source = find_promise12(tmp_path / "download")
    assert names(source) == ["Case01", "Case02", "Case16"]
    assert source.validation == {"Case02", "Case16"}
    assert (source.classes, source.labels, source.problems) == (("prostate",), (1,), {})
    assert str(source.cases[0].images[0]).endswith("TrainingData_Part1.zip/TrainingData_Part1/Case01.mhd")
    assert names(find_promise12(tmp_path / "download/TrainingData_Part1.zip")) == ["Case01"]


def test_a_folder_with_cases_is_not_searched_deeper(tmp_path: Path) -> None:
    case(tmp_path, 1)
    case(tmp_path / "native", 1)
    case(tmp_path / "native", 13)
    assert names(find_promise12(tmp_path)) == ["Case01"]


def test_a_case_in_two_places_is_refused_with_both(tmp_path: Path) -> None:
    case(tmp_path / "a", 7)
    pack(tmp_path / "z.zip", tmp_path / "a")
    with pytest.raises(ValueError, match=r"Case07 is there twice: .*a/Case07.mhd and .*z.zip/Case07.mhd"):
        find_promise12(tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_the_challenge_s_test_cases_have_the_same_names(tmp_path: Path, packed: bool) -> None:
    case(tmp_path / "loose", 7)
    case(tmp_path / "loose", 8)
    touch(tmp_path / "unmasked/Case07.mhd", tmp_path / "unmasked/Case07.raw")
    pack(tmp_path / "src/TestData.zip", tmp_path / "unmasked", "TestData/")
    if packed:
        pack(tmp_path / "src/TrainingData_Part1.zip", tmp_path / "loose", "TrainingData_Part1/")
    else:
        case(tmp_path / "src/training", 7)
        case(tmp_path / "src/training", 8)
    source = find_promise12(tmp_path / "src")
    assert (names(source), source.problems) == (["Case07", "Case08"], {})
    assert "raining" in str(source.cases[0].images[0])
    case(tmp_path / "src/again", 7)
    with pytest.raises(
        ValueError, match=r"Case07 is there 3 times: .*TestData.zip/TestData/Case07.mhd.* each once"
    ):
        find_promise12(tmp_path / "src")


def test_endings_in_capitals(tmp_path: Path) -> None:
    touch(tmp_path / "imagesTr/a_0000.NII.GZ", tmp_path / "labelsTr/a.nii.gz")
    facts = {"channel_names": {"0": "CT"}, "labels": {"background": 0, "x": 1}, "file_ending": ".nii.gz"}
    (tmp_path / "dataset.json").write_text(json.dumps(facts))
    source = find_folder(tmp_path)
    assert (names(source), source.problems) == (["a"], {})


def test_a_missing_partner_is_a_failure_of_its_case(tmp_path: Path) -> None:
    case(tmp_path, 1)
    touch(tmp_path / "Case03.mhd", tmp_path / "Case04_segmentation.mhd")
    source = find_promise12(tmp_path)
    assert names(source) == ["Case01"]
    assert list(source.problems) == ["Case03", "Case04"]
    assert "no Case03_segmentation.mhd for" in source.problems["Case03"]
    assert "no Case04.mhd for" in source.problems["Case04"]


def test_what_is_no_download_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty: no CaseNN.mhd and CaseNN_segmentation.mhd in it"):
        find_promise12(tmp_path / "empty")
    (tmp_path / "d.zip").write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(ValueError, match=r"d.zip is no zip, or a damaged one .*: download it again"):
        find_promise12(tmp_path / "d.zip")


@pytest.mark.parametrize(
    "name", ["../Case00.mhd", "a/../../Case00.mhd", "/tmp/Case00.mhd", "C:/Case00.mhd", "..\\x"]
)
def test_a_zip_that_reaches_out_of_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr(name, "")
    with pytest.raises(ValueError, match=r"evil.zip holds a file named .* outside its own folder"):
        find_promise12(tmp_path / "evil.zip")


def test_what_a_file_was_is_noticed(tmp_path: Path) -> None:
    case(tmp_path / "a", 1)
    volume = SourceVolume(tmp_path / "a/Case01.mhd")
    before = volume.stamps()
    assert [stamp[0] for stamp in before] == ["Case01.mhd", "Case01.raw"]
    assert volume.stamps() == before
    (tmp_path / "a/Case01.raw").write_text("other")
    assert volume.stamps() != before


@given(st.sets(st.integers(0, 999), max_size=60), st.integers(0, 20))
def test_every_fifth_with_a_mask(numbers: set[int], without: int) -> None:
    """Against counting by hand; a case without a mask is never for validation."""
    volume = SourceVolume(Path("x"))
    cases = [SourceCase(f"{number:03}", (volume,), volume) for number in numbers]
    cases += [SourceCase(f"no{number}", (volume,), None) for number in range(without)]
    chosen = every_fifth(reversed(cases))
    expected = {f"{number:03}" for place, number in enumerate(sorted(numbers), start=1) if place % 5 == 0}
    if 2 <= len(numbers) < 5:
        expected = {f"{max(numbers):03}"}
    assert chosen == expected


def test_validation_as_given(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        case(tmp_path, number)
    source = find_promise12(tmp_path)
    assert with_validation(source, ["Case03"]).validation == {"Case03"}
    with pytest.raises(ValueError, match=r"--validation: there is no case Case33; did you mean Case03\?"):
        with_validation(source, ["Case33"])


NNUNET: dict[str, Any] = {
    "channel_names": {"0": "T2", "1": "ADC"},
    "labels": {"background": 0, "PZ": 1, "TZ": 2},
    "numTraining": 3,
    "file_ending": ".nii.gz",
}


def nnunet(folder: Path, facts: dict[str, Any] = NNUNET, masks: str = "abc") -> Path:
    for name in "abc":
        touch(*(folder / f"imagesTr/{name}_{channel:04}.nii.gz" for channel in (0, 1)))
    touch(*(folder / f"labelsTr/{name}.nii.gz" for name in masks))
    (folder / "dataset.json").write_text(json.dumps(facts))
    return folder


def test_nnunet(tmp_path: Path) -> None:
    touch(tmp_path / "d/imagesTr/._a_0000.nii.gz")  # as macOS leaves them
    source = find_folder(nnunet(tmp_path / "d"))
    assert (source.channels, source.classes, source.labels) == (("T2", "ADC"), ("PZ", "TZ"), (1, 2))
    assert names(source) == ["a", "b", "c"]
    assert [image.path.name for image in source.cases[1].images] == ["b_0000.nii.gz", "b_0001.nii.gz"]
    assert source.validation == {"c"}
    assert not source.problems
    assert source.name == "d"


def test_nnunet_without_masks(tmp_path: Path) -> None:
    source = find_folder(nnunet(tmp_path / "none", masks=""))
    assert [one.mask for one in source.cases] == [None] * 3
    assert source.validation == set()
    source = find_folder(nnunet(tmp_path / "some", masks="ab"))
    assert source.validation == {"b"}
    with pytest.raises(ValueError, match=r"--validation: c has no mask"):
        find_folder(tmp_path / "some", validation=["c"])


def test_nnunet_that_is_not_whole(tmp_path: Path) -> None:
    nnunet(tmp_path, NNUNET | {"numTraining": 5}, masks="abcd")
    (tmp_path / "imagesTr/b_0001.nii.gz").unlink()
    source = find_folder(tmp_path)
    assert names(source) == ["a", "c"]
    assert source.problems["b"] == "imagesTr holds its channels _0000; channel_names asks for _0000, _0001"
    assert "imagesTr has no image for" in source.problems["d"]
    assert source.problems["dataset.json"] == "numTraining is 5, and imagesTr holds 3 cases"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": {"background": 0, "whole": [1, 2]}}, r"label 'whole' is a region of several \(\[1, 2\]\)"),
        ({"labels": {"background": 0, "PZ": 1, "ignore": 2}}, "label 'ignore' .*not supported"),
        ({"labels": {"background": 0, "PZ": "x"}}, "label 'PZ' is 'x'; it should be a whole number"),
        ({"labels": {"background": 0, "PZ": 1, "TZ": 1}}, "label 'TZ' .*two classes"),
        ({"labels": {"background": 0}}, "it names no class"),
        ({"labels": [0, 1]}, "cannot be used"),
        ({"channel_names": {"0": "T2", "2": "ADC"}}, "channel_names should be numbered 0, 1, ...; they are 0, 2"),
        ({"file_ending": ".png"}, "file_ending '.png' is not read"),
        ({"dataset": {}}, "lists its files under 'dataset'"),
    ],
)
def test_nnunet_that_cannot_be_used(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_folder(nnunet(tmp_path, NNUNET | change))


def test_the_data_sets_own_split(tmp_path: Path) -> None:
    nnunet(tmp_path)
    file = tmp_path / "splits_final.json"
    file.write_text(json.dumps([{"train": ["a", "b"], "val": ["c"]}, {"train": ["b", "c"], "val": ["a"]}]))
    assert find_folder(tmp_path).validation == {"c"}
    assert find_folder(tmp_path, fold=1).validation == {"a"}
    assert find_folder(tmp_path, validation=["b"]).validation == {"b"}
    with pytest.raises(ValueError, match=r"--fold 2: .*splits_final.json has 2, from 0 to 1"):
        find_folder(tmp_path, fold=2)
    with pytest.raises(ValueError, match="give one of them"):
        find_folder(tmp_path, fold=1, validation=["b"])
    file.write_text(json.dumps([{"train": ["a", "b"], "val": ["b", "c"]}]))
    with pytest.raises(ValueError, match=r"splits_final.json, fold 0: b is in both train and val"):
        find_folder(tmp_path)
    file.write_text(json.dumps([{"train": ["a"], "val": ["z"]}]))
    source = find_folder(tmp_path)
    assert names(source) == ["a"]
    assert source.problems["b"] == "it is in neither split of splits_final.json, fold 0"
    assert source.problems["z"] == "splits_final.json names it, and it is not there"
    for wrong in ("{}", '[{"train": 3}]', "[[]]", '[{"train": [1], "val": []}]'):
        file.write_text(wrong)
        with pytest.raises(ValueError, match=r"should be a list of {\"train\": \[names\]"):
            find_folder(tmp_path)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"--fold 0: there is no .*splits_final.json"):
        find_folder(tmp_path, fold=0)


def test_a_validation_case_of_the_split_needs_a_mask(tmp_path: Path) -> None:
    nnunet(tmp_path, masks="a")
    (tmp_path / "splits_final.json").write_text(json.dumps([{"train": ["a"], "val": ["b"]}]))
    source = find_folder(tmp_path)
    assert names(source) == ["a", "c"]  # c has only boxes, and nobody held it out
    assert "where a mask is needed" in source.problems["b"]


DECATHLON: dict[str, Any] = {
    "name": "PROSTATE",
    "modality": {"0": "T2", "1": "ADC"},
    "labels": {"0": "background", "2": "TZ", "1": "PZ"},
    "training": [{"image": f"./imagesTr/p_{n}.nii.gz", "label": f"./labelsTr/p_{n}.nii.gz"} for n in (0, 1)],
}


def decathlon(folder: Path, facts: dict[str, Any] = DECATHLON) -> Path:
    touch(*(folder / f"{kind}Tr/p_{n}.nii.gz" for n in (0, 1) for kind in ("images", "labels")))
    (folder / "dataset.json").write_text(json.dumps(facts))
    return folder


def test_decathlon(tmp_path: Path) -> None:
    source = find_folder(decathlon(tmp_path))
    assert (source.name, source.channels, source.classes) == ("PROSTATE", ("T2", "ADC"), ("PZ", "TZ"))
    assert source.labels == (1, 2)
    assert names(source) == ["p_0", "p_1"]
    assert source.validation == {"p_1"}
    (tmp_path / "labelsTr/p_0.nii.gz").unlink()
    (tmp_path / "imagesTr/p_0.nii.gz").rename(tmp_path / "imagesTr/p_0_0000.nii.gz")
    source = find_folder(tmp_path)
    assert names(source) == ["p_1"]
    assert "p_0.nii.gz and" in source.problems["p_0"]
    assert "that is nnU-Net v1" in source.problems["p_0"]


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ([], "'training' lists no case"),
        ([{"image": "../x.nii.gz"}], r"'../x.nii.gz' in 'training' should be the name of a file in its own folder"),
        ([{"image": "/x.nii.gz"}], "in its own folder"),
        ([{"label": "x"}], "'image' is missing"),
        (["x.png"], "'x.png' in 'training' is no volume"),
        (2 * DECATHLON["training"], "lists p_0 more than once"),
    ],
)
def test_decathlon_that_cannot_be_used(tmp_path: Path, training: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_folder(decathlon(tmp_path, DECATHLON | {"training": training}))


def test_a_folder_that_is_neither(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no dataset.json; nnU-Net v2 and the Decathlon have one"):
        find_folder(tmp_path)
    decathlon(tmp_path / "Task05")
    with pytest.raises(FileNotFoundError, match=r"there is one in .*Task05: name that"):
        find_folder(tmp_path)
    with pytest.raises(FileNotFoundError, match="is no folder: unpack the download"):
        find_folder(tmp_path / "Task05/dataset.json")
    for text, message in (("{", "is no JSON"), ("[]", "should hold names"), ("{}", "neither 'channel_names'")):
        (tmp_path / "dataset.json").write_text(text)
        with pytest.raises(ValueError, match=message):
            find_folder(tmp_path)
