"""Cross-validation within the cases for training: choices are made there, and those for validation stay unseen."""

from __future__ import annotations

from dataclasses import replace

from ringfence.weak.prepared.prepared_set import Case, PreparedSet, Split


def with_fold(prepared: PreparedSet, fold: int, folds: int) -> PreparedSet:
    """The set with a part of its training cases for validation, and its own validation cases for nothing.

    By name, every ``folds``-th case from the ``fold``-th on is in the part: whole cases, and nothing is drawn at
    random. Cases without a mask are trained on in all folds, unless none has one: then they are split alike, and
    what needs no mask is measured.

    Args:
        prepared: the set.
        fold: which part, from 0.
        folds: how many parts there are, at least 2.
    """
    cases = prepared.of("train")
    judged = [case for case in cases if case.masked] or list(cases)
    if folds > len(judged):
        what = "cases with a mask" if judged[:1] and judged[0].masked else "cases"
        raise ValueError(
            f"data.folds {folds}: {prepared.path} has {len(judged)} {what} for training, and each fold needs one"
        )
    held_out = {case.name for case in sorted(judged, key=lambda case: case.name)[fold::folds]}

    def split(case: Case) -> Split:
        if case.split == "train":
            return "validation" if case.name in held_out else "train"
        return "unused"

    return replace(prepared, cases=tuple(replace(case, split=split(case)) for case in prepared.cases))
