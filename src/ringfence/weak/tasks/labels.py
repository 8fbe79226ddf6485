"""What all labels of a set say together: contradictions are refused, and what looks odd is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from ringfence.options import inside
from ringfence.weak.annotations import BoxAnnotation
from ringfence.weak.annotations.contradictions import check_agreement
from ringfence.weak.annotations.coverage import in_one_case_alone
from ringfence.weak.annotations.mirrored import look_for_mirrored
from ringfence.weak.annotations.tightening import tightened
from ringfence.weak.constraints.constraint import Constraint
from ringfence.weak.constraints.scribbles import Scribbles
from ringfence.weak.constraints.size import Size
from ringfence.weak.prepared.prepared_set import Case, PreparedSet
from ringfence.weak.tables.problems import Problems


def check_labels(
    boxes: Sequence[BoxAnnotation] | None,
    constraints: Iterable[Constraint],
    prepared: PreparedSet,
    *,
    tight: bool = True,
    tighten: float = 0.0,
) -> tuple[str, ...]:
    """Refuse labels that contradict each other or the masks; lines about what looks odd, but may be right.

    Args:
        boxes: from a file, those of slices that were left out among them; None where they are taken from masks.
        constraints: with their files read.
        prepared: the set that all are for.
        tight: whether boxes are meant to touch their objects.
        tighten: by how much they will be made smaller (``tightened``): what is left of them must agree, too.
    """
    smaller = tightened(boxes or (), tighten)
    if boxes is not None and not tight:
        boxes = [replace(one, tight=False) for one in boxes]
    constraints = list(constraints)
    sizes = [bound for one in constraints if isinstance(one, Size) for bound in one.annotated]
    scribbles = [point for one in constraints if isinstance(one, Scribbles) for point in one.annotated]
    check_agreement((boxes, sizes, scribbles), prepared)
    if boxes is None:
        return ()
    if tighten:
        with inside(f"with boxes made smaller (data.tighten {tighten}; 0 leaves them as they are): "):
            smaller = [replace(one, tight=one.tight and tight) for one in smaller]
            check_agreement((smaller, sizes, scribbles), prepared)
    verdict = look_for_mirrored(boxes, prepared)
    problems = Problems(
        f"boxes for {prepared.path} are not where their objects are; rows and columns count as stored"
    )
    for line in verdict.wrong:
        problems.note(line)
    problems.check()
    return verdict.odd


def lonely_classes(train: Mapping[str, Tensor], cases: Sequence[Case], classes: Sequence[str]) -> list[str]:
    """A line for each class with boxes in one of several training cases alone.

    Args:
        train: the samples' ``box`` and ``case``.
        cases: the training cases.
        classes: their names.
    """
    box, number = train["box"], train["case"]
    boxed = (box[..., 1] > box[..., 0]).all(dim=-1).any(dim=2)
    whose = number.where(number >= 0, -1 - number)
    found = {
        name: {cases[one].name for one in whose[there].unique().tolist()}
        for name, there in zip(classes, boxed.unbind(dim=1), strict=True)
    }
    return in_one_case_alone(found, len(cases))
