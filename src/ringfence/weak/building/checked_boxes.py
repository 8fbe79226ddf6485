"""The table of boxes beside the images, checked against the cases that were made of them."""

from __future__ import annotations

from pathlib import Path

from ringfence.weak.annotations import read_boxes
from ringfence.weak.datasets import Source
from ringfence.weak.datasets.box_table import BoxTable
from ringfence.weak.datasets.images import KIND
from ringfence.weak.prepared.prepared_set import MANIFEST, PreparedSet


class BoxesRefused(ValueError):  # noqa: N818 - the table is wrong, not the program
    """A table of boxes that does not fit the cases, each box at fault in a line."""


def checked_table(
    source: Source, prepared: PreparedSet, *, before: bool
) -> tuple[BoxTable | None, tuple[str, ...]]:
    """The table if it fits the set, and remarks; one that does not fit is refused.

    In a folder with dataset.json it may be for something else: where all training cases have masks, it is passed
    over, with a remark.

    Args:
        source: the data set, with its table.
        prepared: the cases.
        before: whether an earlier call kept a table: then it is for this set.
    """
    table = source.boxes
    if table is None:
        return None, ()
    try:
        read_boxes(table.path, prepared, table.text)
    except ValueError as error:
        if source.kind != KIND and not before and all(case.masked for case in prepared.of("train")):
            return None, (
                f"{error}\n{table.path.name} is not kept with the set: training takes boxes around the masks. To "
                "train on your own, repair them and run the same command again",
            )
        raise BoxesRefused(
            f"{error}\nAll cases are ready in {prepared.path}, which is {left_as(prepared.path)}. Repair the "
            "boxes and run the same command again, which does only what is missing"
        ) from None
    return table, ()


def left_as(folder: Path) -> str:
    """What a folder is for which a set could not be finished."""
    return "still the set of an earlier call" if (folder / MANIFEST).exists() else "not a prepared set yet"
