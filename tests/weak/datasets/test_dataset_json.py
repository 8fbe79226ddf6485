"""The split of a folder with dataset.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from downloads import names, nnunet

from ringfence.weak.datasets import find_folder


def test_the_data_sets_own_split(tmp_path: Path) -> None:
    nnunet(tmp_path)
    file = tmp_path / "splits_final.json"
    file.write_text(json.dumps([{"train": ["a", "b"], "val": ["c"]}, {"train": ["b", "c"], "val": ["a"]}]))
    assert find_folder(tmp_path).validation == {"c"}
    assert find_folder(tmp_path, fold=1).validation == {"a"}
    assert find_folder(tmp_path, validation=["b"]).validation == {"b"}
    with pytest.raises(ValueError, match=r"fold 2: .*splits_final.json has 2, from 0 to 1"):
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
    with pytest.raises(FileNotFoundError, match=r"fold 0: there is no .*splits_final.json"):
        find_folder(tmp_path, fold=0)


def test_a_validation_case_of_the_split_needs_a_mask(tmp_path: Path) -> None:
    nnunet(tmp_path, masks="a")
    (tmp_path / "splits_final.json").write_text(json.dumps([{"train": ["a"], "val": ["b"]}]))
    source = find_folder(tmp_path)
    assert names(source) == ["a", "c"]  # c has only boxes, and nobody held it out
    assert "where a mask is needed" in source.problems["b"]
