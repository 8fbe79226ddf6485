"""The fields that every format has in common: case, class, slice, numbers. A ValueError says what is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ringfence.hints import hint, listed, shown
from ringfence.weak.prepared.prepared_set import Case, PreparedSet
from ringfence.weak.volumes.formats import volume_name

Fields = Mapping[str, Any]
"""One box or one bound: names in lower case, values as the file has them (text, or JSON's)."""


def is_empty(value: Any) -> bool:
    """Whether a field holds nothing."""
    return value is None or (isinstance(value, str) and not value.strip())


def check_present(names: Iterable[str], fields: Iterable[str]) -> None:
    """Refuse fields without one of these names."""
    there = [shown(name)[1:-1] for name in fields if name]
    missing = [name for name in names if name not in there]
    if missing:
        raise ValueError(f"there is no {' and no '.join(missing)}; there is {listed(there) or 'nothing'}")


def number(fields: Fields, name: str) -> float:
    """A finite number."""
    value = fields[name]
    if is_empty(value):
        raise ValueError(f"{name} is empty; a number is needed")
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError
        if isinstance(value, str) and "_" in value:  # Python's own way to write a thousand
            raise ValueError
        found = float(value)
    except (ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"{name} is {shown(value)}, which is not a number that can be used")
    return found


def whole(fields: Fields, name: str) -> int:
    """A whole number; ``3.0`` is one."""
    found = number(fields, name)
    if found != int(found):
        raise ValueError(f"{name} is {shown(fields[name])}; a whole number is needed")
    return int(found)


def is_left_out(fields: Fields, prepared: PreparedSet) -> bool:
    """Whether it is about a case that failed, and that the set was prepared without."""
    name = str(fields.get("case") or "").strip()
    return name in prepared.left_out or volume_name(Path(name)) in prepared.left_out


def case_of(fields: Fields, prepared: PreparedSet) -> Case:
    """The case that is named."""
    value = fields["case"]
    if is_empty(value):
        raise ValueError("case is empty; the name of a case of the prepared set is needed")
    return case_named(str(value).strip(), prepared)


def case_named(name: str, prepared: PreparedSet) -> Case:
    """The case of this name."""
    for known in (name, volume_name(Path(name))):  # or as its file is called
        for case in prepared.cases:
            if case.name.strip() == known:
                return case
    raise ValueError(
        f"case {shown(name)} is not in {prepared.path}; {hint(name, (c.name for c in prepared.cases))}"
    )


def label_of(fields: Fields, prepared: PreparedSet) -> int:
    """The number 1, 2, ... of the class, which is given by its name or by its label in the source's masks."""
    value = fields["class"]
    if is_empty(value):
        raise ValueError(f"class is empty; a name or a number is needed: {_classes(prepared)}")
    name = str(value).strip()
    if name in _names(prepared):
        return label_named(name, prepared)
    try:
        label = whole(fields, "class")
    except ValueError:
        return label_named(name, prepared)
    if label not in prepared.labels:
        background = " (0 is the background)" if label == 0 else ""
        raise ValueError(f"class is {shown(value)}{background}; {prepared.path} has {_classes(prepared)}")
    return prepared.labels.index(label) + 1


def label_named(name: str, prepared: PreparedSet) -> int:
    """The number 1, 2, ... of the class of this name."""
    names = _names(prepared)
    if name not in names:
        raise ValueError(f"class {shown(name)} is not one of {prepared.path}; {hint(name, names)}")
    return names.index(name) + 1


def slice_of(fields: Fields, case: Case) -> int:
    """The number of a slice of the case, from 0."""
    return checked_slice(whole(fields, "slice"), case)


def checked_slice(found: int, case: Case) -> int:
    """This number, if the case has such a slice."""
    slices = case.shape[0]
    if not 0 <= found < slices:
        which = (
            "which has one slice, 0"
            if slices == 1
            else f"whose {slices} slices are numbered from 0 to {slices - 1}"
        )
        raise ValueError(f"slice {shown(found)} is not in {case.title}, {which}")
    return found


def place_name(case: str, number: int | None) -> str:
    """Where something is, for a message."""
    return case if number is None else f"slice {number} of {case}"


def _names(prepared: PreparedSet) -> list[str]:
    return [name.strip() for name in prepared.classes]


def _classes(prepared: PreparedSet) -> str:
    return listed(f"{label} {name}" for label, name in zip(prepared.labels, prepared.classes, strict=True))
