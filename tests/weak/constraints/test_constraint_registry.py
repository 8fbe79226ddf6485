"""Constraints by name: those that are there, a new file, a user's own class, and what every mistake is told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import ringfence as rf
from ringfence import weak
from ringfence.weak import constraints
from ringfence.weak.constraints.registry import kinds, make_constraints, settings_of
from ringfence.weak.constraints.strips import Strips

OWN = """
from dataclasses import dataclass
import ringfence as rf
from ringfence import weak
from ringfence.weak.constraints.strips import Strips

@dataclass(frozen=True)
class Few(weak.Constraint):
    most: float = 3.0
    def __post_init__(self):
        if self.most < 0:
            raise ValueError(f"most must not be negative, got {self.most}")
        if self.most > 100:
            raise RuntimeError("the moon is full\\nof cheese")
    def residual(self, region, targets, unit):
        return rf.at_most(region.size, self.most)

class Plain(weak.Constraint):
    def __init__(self, most, *, least=0.0):
        self.most = most
    def residual(self, region, targets, unit):
        return rf.at_most(region.size, self.most)

class Bare(weak.Constraint):
    def residual(self, region, targets, unit):
        return rf.at_most(region.size, 1.0)

class Greedy(Bare):
    def __init__(self, **anything):
        self.anything = anything

class Unfinished(weak.Constraint):
    pass

class NotOne:
    pass

def function():
    pass
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in the current folder."""
    (tmp_path / "few_and_others.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    yield "few_and_others"
    sys.modules.pop("few_and_others", None)


def refused(asked: dict[str, Any]) -> str:
    with pytest.raises((ValueError, TypeError)) as caught:
        make_constraints(asked)
    return str(caught.value)


def test_a_kind_is_named_as_its_file_and_says_what_each_setting_is() -> None:
    assert len(kinds()) >= 9
    for name, kind in kinds().items():
        assert kind.__module__ == f"ringfence.weak.constraints.{name}"
        assert kind.kind == name
        assert (kind.__doc__ or "").count("<=") >= 1
        for setting, help_ in settings_of(kind).items():
            assert help_, f"{name}.{setting}"


def test_settings_are_given_to_the_kind_and_null_leaves_one_out() -> None:
    made = make_constraints({"strips": {"width": 3}, "outside": {}, "box_size": None})
    assert list(made) == ["strips", "outside"]
    assert made["strips"] == Strips(width=3)
    assert make_constraints({"thin": {"class_path": "strips", "init_args": {"width": 1}}}) == {"thin": Strips(1)}


def test_a_constraint_is_taken_as_it_is() -> None:
    mine = Strips(7)
    assert make_constraints({"whatever": mine, "outside": {}})["whatever"] is mine


def test_a_new_file_in_the_folder_is_found_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "brand_new.py").write_text(
        OWN.replace("class Few(weak.Constraint):", "class Few(weak.Constraint):\n    kind = 'brand_new'\n")
    )
    monkeypatch.setattr(constraints, "__path__", [*constraints.__path__, str(tmp_path)])
    kinds.cache_clear()
    try:
        assert set(kinds()) >= {"brand_new", "strips"}  # and not Strips again, which it imports
        assert kinds()["strips"] is Strips
        (made,) = make_constraints({"brand_new": {"most": 2.0}}).values()
        region = rf.segmentation.Region(torch.zeros(1, 2, 4, 4))
        assert made.residual(region, {}, "pixels").f.item() == 6.0
        assert refused({"brand_new": {"most": -1}}) == "constraints.brand_new.most must not be negative, got -1"
    finally:
        sys.modules.pop("ringfence.weak.constraints.brand_new", None)
        vars(constraints).pop("brand_new", None)
        kinds.cache_clear()
    monkeypatch.undo()
    assert "brand_new" not in kinds()


def test_a_class_of_ones_own_by_its_path(own: str) -> None:
    made = make_constraints(
        {
            "few": {"class_path": f"{own}.Few", "init_args": {"most": 5.0}},
            "default": {"class_path": f"{own}.Few", "init_args": None},
            "plain": {"class_path": f"{own}.Plain", "init_args": {"most": 2.0}},
            "bare": {"class_path": f"{own}.Bare"},
            "greedy": {"class_path": f"{own}.Greedy", "init_args": {"whatever": 1}},
        }
    )
    assert all(isinstance(one, weak.Constraint) for one in made.values())
    assert [made[name].most for name in ("few", "default", "plain")] == [5.0, 3.0, 2.0]  # type: ignore[attr-defined]
    assert made["greedy"].anything == {"whatever": 1}  # type: ignore[attr-defined]
    assert made["few"].files == ()
    assert made["few"].targets(weak.CaseSamples(torch.zeros(1), torch.zeros(1))) == {}
    assert "" not in sys.path or sys.path.count("") == 1


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "constraints: there is none; there are: "),
        ({"strips": None}, "constraints: there is none; there are: "),
        ({"stripes": {}}, "constraints: there is no kind 'stripes'; did you mean 'strips'? (a class of your own"),
        ({"xyzzy": {}}, "constraints: there is no kind 'xyzzy'; there is absent, box_size, "),
        ({"strips": {"wdth": 3}}, "constraints.strips.wdth: there is no such setting; did you mean 'width'?"),
        ({"absent": {"wdth": 3}}, "constraints.absent.wdth: there is no such setting; Absent has none"),
        ({"strips": {"width": 0}}, "constraints.strips.width must be a whole number, at least 1, got 0"),
        ({"strips": {"width": "5"}}, "constraints.strips.width must be a whole number, at least 1, got '5'"),
        ({"strips": 5}, "constraints.strips: settings are a mapping, such as {}; got 5"),
        (
            {"strips": {"width": 5, "class_path": "strips"}},
            "constraints.strips: beside class_path there is init_args",
        ),
        ({"box_size": {"high": 0}}, "constraints.box_size.high must be positive and finite"),
        ({"box_size": {"low": 0.8, "high": 0.5}}, "constraints.box_size.low 0.8 is above high 0.5"),
        ({"box_size": {"low": "a"}}, "constraints.box_size.low must be a number, got str"),
        ({"size": {}}, "constraints.size.slack or file: give one of the two, got slack None and file None"),
        (
            {"size": {"slack": 0.1, "file": "a"}},
            "constraints.size.slack or file: give one of the two, got slack 0.1",
        ),
        ({"size": {"slack": 1.5}}, "constraints.size.slack is a fraction from 0 to 1, got 1.5"),
        ({"size": {"slack": 0.1, "boxed": False}}, "constraints.size.boxed: there is no such setting"),
        ({"centroid": {"slack": -1.0}}, "constraints.centroid.slack must be positive and finite"),
        ({"slanted_strips": {"angles": [0.0]}}, "constraints.slanted_strips.angles are degrees from -45 to 45"),
        ({"slanted_strips": {"angles": []}}, "constraints.slanted_strips.angles are degrees from -45 to 45"),
        ({"slanted_strips": {"angles": [50]}}, "constraints.slanted_strips.angles are degrees from -45 to 45"),
        ({"slanted_strips": {"angles": ["steep"]}}, "constraints.slanted_strips.angles are degrees from -45 to 45"),
        ({"slanted_strips": {"width": 0}}, "constraints.slanted_strips.width must be a whole number"),
        ({"compactness": {"ratio": 0.5}}, "constraints.compactness.ratio must be at least 1, which a disc has"),
        ({"inclusion": {"inner": "a"}}, "constraints.inclusion.inner and outer are two classes, got 'a' and ''"),
        ({"inclusion": {"inner": "a", "outer": "a"}}, "constraints.inclusion.inner and outer are two classes"),
        ({"separation": {}}, "constraints.separation.first and second are two classes, got '' and ''"),
    ],
)
def test_mistakes(asked: dict[str, Any], message: str) -> None:
    assert refused(asked).startswith(message)


@pytest.mark.parametrize("angles", [30.0, "30"])
def test_an_angle_is_a_list_of_them(angles: Any) -> None:
    assert refused({"slanted_strips": {"angles": angles}}).startswith(
        "constraints.slanted_strips.angles are degrees"
    )


@pytest.mark.parametrize(
    ("path", "arguments", "message"),
    [
        (
            "few_and_others.Feww",
            {},
            "constraints.mine.class_path: few_and_others has no 'Feww'; did you mean 'Few'?",
        ),
        ("few_and_other.Few", {}, "constraints.mine.class_path: there is no module 'few_and_other'"),
        ("Few", {}, "constraints.mine.class_path: 'Few' needs its module"),
        (7, {}, "constraints.mine.class_path: '7' needs its module"),
        (
            "few_and_others.NotOne",
            {},
            "constraints.mine.class_path: 'few_and_others.NotOne' is not a ringfence.weak.",
        ),
        (
            "few_and_others.function",
            {},
            "constraints.mine.class_path: 'few_and_others.function' is not a ringfence.",
        ),
        (
            "few_and_others.Few",
            {"msot": 1},
            "constraints.mine.msot: there is no such setting; did you mean 'most'?",
        ),
        ("few_and_others.Few", {"most": -1}, "constraints.mine: most must not be negative, got -1"),
        ("few_and_others.Few", {"most": "a"}, "constraints.mine: '<' not supported"),
        (
            "few_and_others.Few",
            {"most": 101},
            "constraints.mine: Few does not take {'most': 101}: the moon is full",
        ),
        ("few_and_others.Plain", {}, "constraints.mine: "),
        ("few_and_others.Bare", {"most": 1}, "constraints.mine.most: there is no such setting; Bare has none"),
        ("few_and_others.Unfinished", {}, "constraints.mine: Can't instantiate abstract class Unfinished"),
    ],
)
def test_mistakes_with_ones_own(own: str, path: Any, arguments: dict[str, Any], message: str) -> None:
    said = refused({"mine": {"class_path": path, "init_args": arguments}})
    assert said.startswith(message)
    assert "cheese" not in said


def test_a_module_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "it_fails.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    said = refused({"mine": {"class_path": "it_fails.Mine"}})
    assert said == "constraints.mine.class_path: 'it_fails' cannot be imported: ZeroDivisionError: division by zero"
