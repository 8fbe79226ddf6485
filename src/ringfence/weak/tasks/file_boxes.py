"""Where the boxes of a training come from: a file that is named, the one that came with the set, or the masks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringfence.hints import listed
from ringfence.weak.annotations import BoxAnnotation, left_out, read_boxes
from ringfence.weak.prepared.prepared_set import PreparedSet
from ringfence.weak.tasks.settings import BoxDataSettings

MASKS: Final = "masks"
"""Instead of the name of a file: boxes are those around the masks."""


@dataclass(frozen=True)
class FileBoxes:
    """Boxes from a file.

    Attributes:
        file: where they stand.
        boxes: all of them, those between among them.
        between: those that nobody drew: of slices left out between two boxes of an object (``data.gap``).
    """

    file: Path
    boxes: list[BoxAnnotation]
    between: list[BoxAnnotation]


def boxes_file(data: BoxDataSettings, prepared: PreparedSet) -> Path | None:
    """The file that boxes are read from; None if they are taken from the masks."""
    if data.boxes == MASKS:
        return None
    if data.boxes is not None:
        return Path(data.boxes)
    return prepared.boxes.path_in(prepared.path) if prepared.boxes else None


def file_boxes(data: BoxDataSettings, prepared: PreparedSet) -> FileBoxes | None:
    """The boxes of the file, checked against the set; None if they are taken from the masks."""
    unmasked = [case.title for case in prepared.of("train") if not case.masked]
    if data.boxes == MASKS and unmasked:
        raise ValueError(f"data.boxes {MASKS}: {listed(unmasked)} has no mask to take them from")
    try:
        file = boxes_file(data, prepared)
        boxes = None if file is None else read_boxes(file, prepared)
    except (ValueError, FileNotFoundError) as error:
        if data.boxes is None and not unmasked:
            raise type(error)(
                f"{error}\nThese boxes came with the set; data.boxes {MASKS} takes those around the masks"
            ) from None
        raise
    if file is None or boxes is None:
        if data.tighten:
            raise ValueError(
                f"data.tighten is {data.tighten}, and there is no file of boxes (data.boxes): those around masks "
                "are tight"
            )
        return None
    between = left_out(boxes, data.gap)
    return FileBoxes(file, [*boxes, *between], between)
