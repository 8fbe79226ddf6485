"""PROMISE12 in zips and folders: which cases are found, and what is refused."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
from downloads import case, names, pack, touch

from ringfence.weak.datasets import find_promise12


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


def test_a_missing_partner_is_a_failure_of_its_case(tmp_path: Path) -> None:
    case(tmp_path, 1)
    touch(tmp_path / "Case03.mhd", tmp_path / "Case04_segmentation.mhd")
    source = find_promise12(tmp_path)
    assert names(source) == ["Case01"]
    assert list(source.problems) == ["Case03", "Case04"]
    assert "no Case03_segmentation.mhd for" in source.problems["Case03"]
    assert "no Case04.mhd for" in source.problems["Case04"]


def test_what_is_no_file_is_found_by_its_name(tmp_path: Path) -> None:
    """D13: it costs its case once that is read; a pipe in the place of the download is refused at once."""
    case(tmp_path / "a", 1)
    (tmp_path / "a/Case01.mhd").unlink()
    os.mkfifo(tmp_path / "a/Case01.mhd")
    assert names(find_promise12(tmp_path / "a")) == names(find_promise12(tmp_path)) == ["Case01"]
    os.mkfifo(tmp_path / "pipe.zip")
    with pytest.raises(ValueError, match=r"pipe.zip is a pipe"):
        find_promise12(tmp_path / "pipe.zip")


def test_what_is_no_download_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty: no CaseNN.mhd and CaseNN_segmentation.mhd in it"):
        find_promise12(tmp_path / "empty")
    (tmp_path / "d.zip").write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(ValueError, match=r"d.zip is not a zip, or a damaged one .*: download it again"):
        find_promise12(tmp_path / "d.zip")


@pytest.mark.parametrize(
    "name", ["../Case00.mhd", "a/../../Case00.mhd", "/tmp/Case00.mhd", "C:/Case00.mhd", "..\\x"]
)
def test_a_zip_that_reaches_out_of_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr(name, "")
    with pytest.raises(ValueError, match=r"evil.zip holds a file named .* outside its own folder"):
        find_promise12(tmp_path / "evil.zip")


@pytest.mark.parametrize(("place", "value"), [(6, 200), (46, 0), (28, 0), (24, 255), (12, 255)])
def test_an_odd_zip_is_one_line(tmp_path: Path, place: int, value: int) -> None:
    """D11: an odd version, a null byte in a name, an empty name, and sizes that are not so."""
    case(tmp_path / "a", 1)
    pack(tmp_path / "z.zip", tmp_path / "a")
    data = bytearray((tmp_path / "z.zip").read_bytes())
    data[data.index(b"PK\1\2") + place] = value
    (tmp_path / "z.zip").write_bytes(data)
    try:
        source = find_promise12(tmp_path / "z.zip")
        for volume in (one for found in source.cases for one in found.images):
            volume.stamps()
            with volume.reading() as content:
                content.read(1000)
    except (ValueError, OSError) as error:
        problem = str(error)
    else:
        problem = "".join(source.problems.values()) or "z.zip"
    assert "z.zip" in problem
    assert "\n" not in problem
