"""JSON and YAML of unknown origin: as Python and PyYAML read them, or refused in a line, in little time and memory."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ringfence.documents import DEPTH, parse_json, parse_yaml, read_json, read_yaml

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN)
def test_plain_values_read_back(value: Any) -> None:
    assert parse_json(json.dumps(value), "a") == value
    assert parse_json("\ufeff" + json.dumps(value, ensure_ascii=False), "a") == value


@given(PLAIN)
def test_yaml_reads_as_pyyaml_does(value: Any) -> None:
    text = yaml.safe_dump(value, allow_unicode=True)
    assert parse_yaml(text, "a") == yaml.safe_load(text)


@given(st.text(max_size=60))
def test_any_text_is_a_value_or_one_line(text: str) -> None:
    for parse in (parse_json, parse_yaml):
        said = ""
        try:
            parse(text, "file")
        except ValueError as error:
            said = str(error)
        assert not said or said.startswith("file")
        assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 3000, "levels deep"),
        ("[" * 100 + "]" * 100, "more than 64 levels deep"),
        ('{"a": ' * 3000, "levels deep"),
        ('{"a": 1e999}', "'1e999' is too large"),
        ('{"a": -1e999}', "'-1e999' is too large"),
        ('{"a": NaN}', "NaN is no number"),
        ('{"a": Infinity}', "Infinity is no number"),
        ('{"a": %s}' % ("9" * 400), "is too large"),
        ('{"a": %s}' % 2**63, "is too large"),
        ('{"a": 1, "a": 2}', "'a' is there twice"),
        ('"\\ud800"', "half a character"),
        ("[1,", "line 1, column 4: this is not JSON"),
        ("", "line 1, column 1: this is not JSON"),
    ],
)
def test_json_that_is_refused(text: str, words: str) -> None:
    """D11: RecursionError, OverflowError and their like were tracebacks."""
    with pytest.raises(ValueError, match=words) as caught:
        parse_json(text, "file.json")
    assert str(caught.value).startswith("file.json")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: " + "[" * 3000, "more than 64 levels deep"),
        ("\n".join(" " * n + "a:" for n in range(200)), "more than 64 levels deep"),
        ("a: " + "9" * 400, "is too large"),
        (f"a: {2**63}", "is no number that can be used"),
        ("a: .inf", "is no number that can be used"),
        ("a: .nan", "is no number that can be used"),
        ("a: 1.0e+999", "is no number that can be used"),
        ("a: " + ":".join(["1"] * 100_000), "is too large"),
        ("a: &a [*a]", "the alias [*]a is inside of what it stands for"),
        ("a: 2020-99-99", "is not YAML: month must be in 1..12"),
        ("a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("a: \0", "special characters are not allowed"),
        ("a: [1", "is not YAML"),
        ("x" * 1_000_001, "has 1,000,001 characters, and settings at most 1,000,000"),
    ],
)
def test_yaml_that_is_refused(text: str, words: str) -> None:
    """D8, D11."""
    with pytest.raises(ValueError, match=words) as caught:
        parse_yaml(text, "file.yaml")
    assert str(caught.value).startswith("file.yaml")


def test_aliases_that_stand_for_gigabytes_are_refused_at_once() -> None:
    """D8: under 1 kB, and still running after 60 s."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    begun = time.perf_counter()
    with pytest.raises(ValueError, match="bomb.yaml stands for more than 100,000 values"):
        parse_yaml("\n".join(lines), "bomb.yaml")
    assert time.perf_counter() - begun < 10  # of minutes
    assert parse_yaml("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: *a", "fine") == {
        "a": {"x": 1},
        "b": {"x": 1, "y": 2},
        "c": {"x": 1},
    }


def test_as_deep_as_allowed() -> None:
    value: Any = 1.5
    for _ in range(DEPTH):
        value = [value]
    assert parse_json(json.dumps(value), "a") == value
    assert parse_yaml(json.dumps(value), "a") == value
    with pytest.raises(ValueError, match="levels deep"):
        parse_json(json.dumps([value]), "a")
    with pytest.raises(ValueError, match="levels deep"):
        parse_yaml(json.dumps([value]), "a")


def test_files(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1.5}')
    (tmp_path / "a.yaml").write_text("a: 1.5")
    assert read_json(tmp_path / "a.json") == read_yaml(tmp_path / "a.yaml") == {"a": 1.5}
    assert math.isfinite(read_json(tmp_path / "a.json")["a"])
    (tmp_path / "b.json").write_bytes(b"\xff\xfe{\0}\0")
    for read in (read_json, read_yaml):
        with pytest.raises(ValueError, match=r"b.json is not text in UTF-8 \(byte 0\)"):
            read(tmp_path / "b.json")


def test_a_long_document_takes_no_quadratic_time() -> None:
    """D8: 20,000 names of which the last comes twice took six seconds, ten times as many ten minutes."""
    names = ", ".join(f'"a{n}": 0' for n in range(200_000))
    with pytest.raises(ValueError, match="'a7' is there twice"):
        parse_json(f'{{{names}, "a7": 1}}', "file")
    with pytest.raises(ValueError, match="is too large"):
        parse_yaml('a: !!int "' + ":".join(["1"] * 400_000) + '"', "file")
    with pytest.raises(ValueError, match="file cannot be used"):
        parse_yaml("a: !!int 0x" + "f" * 90, "file")


def test_a_text_that_would_take_more_than_the_limit_is_not_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D8: 39 MB of empty lists took 1.5 GB."""
    (tmp_path / "a.json").write_text("[" + "[], " * 1000 + "[]]")
    monkeypatch.setenv("RINGFENCE_MEMORY", "100kB")
    with pytest.raises(ValueError, match=r"a.json would take 160 kB of memory, and the limit is 100 kB"):
        read_json(tmp_path / "a.json")
