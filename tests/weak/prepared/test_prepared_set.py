"""The prepared set on disk: its manifest in both formats, and what it looks like as text and in a notebook."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prepared_sets import make_prepared
from ringfence.weak.building import Preparation
from ringfence.weak.prepared import PreparedSet, Preprocessing, read_prepared
from ringfence.weak.prepared.prepared_set import MANIFEST


def manifest(prepared: PreparedSet) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((prepared.path / MANIFEST).read_text())
    return facts


def refused(path: Path) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the caller looks at the message
        read_prepared(path)
    assert str(caught.value).startswith(f"{path / MANIFEST} cannot be used: ")
    return str(caught.value).removeprefix(f"{path / MANIFEST} cannot be used: ")


def test_the_manifest_holds_the_preprocessing(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path)
    other = replace(prepared, preprocessing=Preprocessing(prepared.size, (1, 98)))
    other.write_manifest()
    assert manifest(other)["format"] == "ringfence prepared set 2"
    assert manifest(other)["preprocessing"] == {"version": 1, "size": [24, 20], "percentiles": [1.0, 98.0]}
    assert read_prepared(tmp_path) == other != prepared
    assert other.size == (24, 20)


def test_the_first_format_still_reads(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path)
    facts = manifest(prepared) | {"format": "ringfence prepared set 1", "size": [24, 20]}
    del facts["preprocessing"], facts["labels"]  # the oldest had no labels either
    (tmp_path / MANIFEST).write_text(json.dumps(facts))
    assert read_prepared(tmp_path) == prepared
    assert read_prepared(tmp_path).preprocessing == Preprocessing((24, 20), (0.5, 99.5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"format": "ringfence prepared set 3"},
            "its format is 'ringfence prepared set 3', and this version reads",
        ),
        ({"format": None}, "its format is None"),
        ({"preprocessing": {"version": 9}}, "preprocessing has version 9, and this ringfence knows 1 to 2"),
        ({"preprocessing": None}, "preprocessing is None; names and values are needed"),
        ({"cases": [{}]}, "cases[0]: there is no 'split'"),
        ({"labels": [0]}, "labels [0]: each of class 1 has one of its own, from 1 to 255"),
    ],
    ids=str,
)
def test_what_cannot_be_used_says_why(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    facts = manifest(make_prepared(tmp_path)) | change
    (tmp_path / MANIFEST).write_text(json.dumps(facts))
    assert refused(tmp_path).startswith(message)


def test_a_newer_format_says_what_to_do(tmp_path: Path) -> None:
    facts = manifest(make_prepared(tmp_path)) | {"format": "ringfence prepared set 3"}
    (tmp_path / MANIFEST).write_text(json.dumps(facts))
    assert refused(tmp_path).endswith(": get a newer ringfence, or prepare the set again")


def test_a_patient_in_both_splits_is_refused(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path)
    twice = (*prepared.cases, replace(prepared.cases[0], split="validation"))
    replace(prepared, cases=twice).write_manifest()
    with pytest.raises(ValueError, match="case0 is there more than once; no patient may be in both splits"):
        read_prepared(tmp_path)


def test_it_reads_as_a_summary(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path, cases=4, masked=False, classes=2, channels=2)
    lines = [
        "ellipsoids: 4 cases, 24 slices",
        "  train       3 cases, 18 slices",
        "  validation  1 case, 6 slices",
        "  masks       1 with, 3 without",
        "  size        24 × 20",
        "  channels    channel 0, channel 1",
        "  classes     class 1, class 2",
        f"  folder      {tmp_path}",
    ]
    assert str(prepared).splitlines() == lines
    done = Preparation(prepared, ("P9: no image",), kept=2, split="every fifth")
    lines[0] += ", 2 of them ready before"
    lines[2] += " (every fifth)"
    assert str(done).splitlines() == [*lines, "left out:", "  P9: no image"]


def test_names_are_escaped_in_a_notebook(tmp_path: Path) -> None:
    prepared = replace(make_prepared(tmp_path), name="<b>mine", classes=("<script>",))
    for shown in (prepared._repr_html_(), Preparation(prepared, ("a <i>",))._repr_html_()):
        assert shown.startswith("<table><caption>&lt;b&gt;mine: 4 cases")
        assert "&lt;script&gt;" in shown
        assert "<script>" not in shown
        assert "<i>" not in shown
