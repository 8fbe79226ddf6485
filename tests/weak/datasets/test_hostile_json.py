"""dataset.json and splits_final.json from anywhere: found cases, or one line that names the file."""

from __future__ import annotations

import copy
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from downloads import DECATHLON, NNUNET, decathlon, names, nnunet

from ringfence.weak.datasets import find_folder

VALUES = [None, True, False, 0, -1, 3.7, 2**70, 1e308, "", "\0", "a" * 300, "../x", "/etc/passwd", "²", [], {}, [[]], {"a": 1}, "\x1b[31m", "a\nb"]  # fmt: skip


@pytest.mark.parametrize("text", ["[" * 3000, '{"a":' * 3000, '{"labels": 1e999}', '{"a": ' + "9" * 400 + "}", '{"a": 1, "a": 2}', "NaN", '{"name": "\\ud800"}'], ids=lambda text: text[:20])  # fmt: skip
@pytest.mark.parametrize("file", ["dataset.json", "splits_final.json"])
def test_json_that_no_reader_should_follow(tmp_path: Path, text: str, file: str) -> None:
    """D11: depth, numbers, names that come twice."""
    nnunet(tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match=file) as caught:
        find_folder(tmp_path)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "name", ["a" * 300 + ".nii.gz", "d/" * 2000 + "a.nii.gz", "a\0.nii.gz", "", "é" * 130 + ".nii.gz"]
)
def test_names_that_no_file_has_name_their_field(tmp_path: Path, name: str) -> None:
    """64 of them ended in a bare [Errno 36]."""
    decathlon(tmp_path, DECATHLON | {"training": [{"image": name}]})
    with pytest.raises(ValueError, match="in 'training' should be the name of a file in its own folder") as caught:
        find_folder(tmp_path)
    assert len(str(caught.value)) < 300


def test_a_name_as_long_as_names_may_be_is_only_missing(tmp_path: Path) -> None:
    """Also where the look for nnU-Net v1's name makes it longer."""
    long = "a" * 248
    decathlon(tmp_path, DECATHLON | {"training": [*DECATHLON["training"], {"image": f"{long}.nii.gz"}]})
    assert "is not there" in find_folder(tmp_path).problems[long]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"channel_names": {"0": 3}}, "'channel_names' has '0': 3"),
        ({"channel_names": ["T2"]}, "'channel_names' is ['T2']; names and values are needed"),
        ({"channel_names": {"٣": "T2"}}, "'channel_names' has '٣'"),
        ({"labels": {"background": 0, "PZ": 1.5}}, "label 'PZ' is 1.5"),
        ({"labels": None}, "'labels' is None; names and values are needed"),
        ({"file_ending": 3}, "file_ending 3 is not read"),
        ({"name": ["x"]}, "'name' is ['x']; a text is needed"),
    ],
    ids=str,
)
def test_fields_are_what_they_must_be(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    nnunet(tmp_path, NNUNET | change)
    with pytest.raises(ValueError, match=r"dataset\.json cannot be used") as caught:
        find_folder(tmp_path)
    assert message in str(caught.value)


@pytest.mark.skipif(os.name != "posix", reason="names of files are text elsewhere")
def test_a_case_whose_name_is_no_text_is_a_problem_of_its_own(tmp_path: Path) -> None:
    nnunet(tmp_path)
    broken = os.fsdecode(b"x\xff")
    for channel in (0, 1):
        (tmp_path / f"imagesTr/{broken}_{channel:04}.nii.gz").write_bytes(b"")
    source = find_folder(tmp_path)
    assert names(source) == ["a", "b", "c"]
    assert source.problems["x\\udcff"] == "its name is not UTF-8: rename its files"


def changed(value: Any, dice: random.Random) -> Any:
    """A value with something in it replaced, removed or doubled."""
    if isinstance(value, dict) and value and dice.random() < 0.8:
        key = dice.choice(list(value))
        if dice.random() < 0.1:
            return {one: inner for one, inner in value.items() if one != key}
        return {**value, (key if dice.random() < 0.9 else str(dice.choice(VALUES))): changed(value[key], dice)}
    if isinstance(value, list) and value and dice.random() < 0.8:
        place = dice.randrange(len(value))
        return [*value[:place], changed(value[place], dice), *value[place + dice.randrange(2) :]]
    return copy.deepcopy(dice.choice(VALUES))


@pytest.mark.parametrize("layout", ["nnunet", "decathlon"])
def test_whatever_it_says_is_a_source_or_one_line(tmp_path: Path, layout: str) -> None:
    """Seeded mutations of the structure; the long run has more."""
    dice, good = random.Random(0), NNUNET if layout == "nnunet" else DECATHLON
    (nnunet if layout == "nnunet" else decathlon)(tmp_path)
    for _ in range(400):
        facts = good
        for _ in range(dice.randint(1, 3)):
            facts = changed(facts, dice)
        (tmp_path / "dataset.json").write_text(json.dumps(facts))
        try:
            find_folder(tmp_path)
            lines = 1
        except (ValueError, FileNotFoundError) as error:
            lines = len(str(error).splitlines())
        assert lines == 1, facts
