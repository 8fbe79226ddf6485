"""Where the boxes of a training come from: a file that is named, the one that came with the set, or the masks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ringfence.weak.annotations import BoxAnnotation, left_out, read_boxes
from ringfence.weak.prepared.prepared_set import PreparedSet
from ringfence.weak.tasks.settings import BoxDataSettings

FROM_MASKS: Final = "masks"
"""Instead of the name of a file: boxes are those around the masks."""


@dataclass(frozen=True)
class DrawnBoxes:
    """Boxes from a file.

    Attributes:
        file: where they stand.
        drawn: all of them.
        between: those that nobody drew: of slices left out between two boxes of an object (``data.gap``).
    """

    file: Path
    drawn: list[BoxAnnotation]
    between: list[BoxAnnotation] = field(default_factory=list)

    @property
    def every(self) -> list[BoxAnnotation]:
        """Those that were drawn, and those between them."""
        return [*self.drawn, *self.between]


def boxes_file(data: BoxDataSettings, prepared: PreparedSet) -> Path | None:
    """The file that boxes are read from; None if they are taken from the masks."""
    if data.boxes == FROM_MASKS:
        return None
    if data.boxes is not None:
        return Path(data.boxes)
    return prepared.boxes.path_in(prepared.path) if prepared.boxes else None


def drawn_boxes(data: BoxDataSettings, prepared: PreparedSet) -> DrawnBoxes | None:
    """The boxes of the file, checked against the set; None if they are taken from the masks."""
    file = boxes_file(data, prepared)
    if file is None:
        if data.tighten:
            raise ValueError(
                f"data.tighten is {data.tighten}, and there is no file of boxes (data.boxes): those around masks "
                "are tight"
            )
        return None
    try:
        boxes = read_boxes(file, prepared)
    except ValueError as error:
        if data.boxes is None and all(case.masked for case in prepared.of("train")):
            raise ValueError(
                f"{error}\nThese boxes came with the set; --data.boxes {FROM_MASKS} takes those around the masks"
            ) from None
        raise
    return DrawnBoxes(file, boxes, left_out(boxes, data.gap))
