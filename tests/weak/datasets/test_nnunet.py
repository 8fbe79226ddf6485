"""nnU-Net v2's raw layout: which cases are found, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from downloads import NNUNET, names, nnunet, touch

from ringfence.weak.datasets import find_folder


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
    with pytest.raises(ValueError, match=r"validation: c has no mask"):
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
        ({"file_ending": ".jpg"}, "file_ending '.jpg' is not read"),
        ({"dataset": {}}, "lists its files under 'dataset'"),
    ],
)
def test_nnunet_that_cannot_be_used(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_folder(nnunet(tmp_path, NNUNET | change))
