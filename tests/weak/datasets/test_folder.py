"""A folder with dataset.json: which layout it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from downloads import decathlon, names, touch

from ringfence.weak.datasets import find_folder


def test_a_folder_that_is_neither(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError,
        match=r"no dataset.json; write one, or put boxes.csv into it, with the images .`ringfence prepare folder`., or describe your own layout",
    ):
        find_folder(tmp_path)
    decathlon(tmp_path / "Task05")
    with pytest.raises(FileNotFoundError, match=r"there is one in .*Task05: name that"):
        find_folder(tmp_path)
    with pytest.raises(FileNotFoundError, match="is not a folder: unpack the download"):
        find_folder(tmp_path / "Task05/dataset.json")
    for text, message in (("{", "is not JSON"), ("[]", "should hold names"), ("{}", "neither 'channel_names'")):
        (tmp_path / "dataset.json").write_text(text)
        with pytest.raises(ValueError, match=message):
            find_folder(tmp_path)


def test_endings_in_capitals(tmp_path: Path) -> None:
    touch(tmp_path / "imagesTr/a_0000.NII.GZ", tmp_path / "labelsTr/a.nii.gz")
    facts = {"channel_names": {"0": "CT"}, "labels": {"background": 0, "x": 1}, "file_ending": ".nii.gz"}
    (tmp_path / "dataset.json").write_text(json.dumps(facts))
    source = find_folder(tmp_path)
    assert (names(source), source.problems) == (["a"], {})
