"""The Decathlon's layout: which cases are found, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from downloads import DECATHLON, decathlon, names

from ringfence.weak.datasets import find_folder


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
        (["x.jpg"], "'x.jpg' in 'training' is not a volume"),
        (2 * DECATHLON["training"], "lists p_0 more than once"),
    ],
)
def test_decathlon_that_cannot_be_used(tmp_path: Path, training: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_folder(decathlon(tmp_path, DECATHLON | {"training": training}))
