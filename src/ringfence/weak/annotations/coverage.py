"""How much there is to learn a class from: those with boxes in one case alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ringfence.hints import one_line
from ringfence.weak.annotations.annotation import BoxAnnotation
from ringfence.weak.prepared.prepared_set import PreparedSet


def cases_with_boxes(boxes: Iterable[BoxAnnotation], prepared: PreparedSet) -> dict[str, set[str]]:
    """The names of the training cases that have a box of a class, by the class's name."""
    training = {case.name for case in prepared.of("train")}
    found: dict[str, set[str]] = {name: set() for name in prepared.classes}
    for one in boxes:
        if one.case in training:
            found[prepared.classes[one.label - 1]].add(one.case)
    return found


def in_one_case_alone(cases: Mapping[str, set[str]], training: int) -> list[str]:
    """A line for each class that a single one of several training cases has.

    Args:
        cases: the names of the cases that have a class, by its name; see ``cases_with_boxes``.
        training: how many training cases there are.
    """
    if training < 2:
        return []
    return [
        f"Only {one_line(next(iter(names)))}, of {training} training cases, has a box of {one_line(name)}: one "
        "case is little to learn a class from. Is it called so in all of them?"
        for name, names in cases.items()
        if len(names) == 1
    ]
