"""A case as it is trained on: slices, or one volume; with all that is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ringfence.segmentation.boxes import covered
from ringfence.weak.annotations import (
    BoxAnnotation,
    boxes_from_masks,
    place_boxes,
    place_objects,
    place_volume_boxes,
    slice_boxes_from_masks,
)
from ringfence.weak.prepared.prepared_set import Case


@dataclass(frozen=True)
class CaseSamples:
    """The samples of one case, N of them: its slices, or the whole of it as one.

    Attributes:
        image: uint8 ``[N, channels, *space]``.
        mask: bool ``[N, classes, *space]``; all False where nobody drew one.
        case: where it came from; None for images that were never in a file.
        size: height and width in the prepared set.
        drawn: whether there is a mask.
        annotated: boxes from a file of annotations, those of this case; none where boxes come from the mask.
        margin: pixels by which boxes may be too wide at either end.
        smallest: pixels; smaller parts of a mask get no box.
    """

    image: Tensor
    mask: Tensor
    case: Case | None = None
    size: tuple[int, int] = (0, 0)
    drawn: bool = True
    annotated: Sequence[BoxAnnotation] = ()
    margin: int = 0
    smallest: int = 1

    @property
    def name(self) -> str:
        """The case's name."""
        return self.case.title if self.case else "the image"

    @property
    def volume(self) -> bool:
        """Whether its one sample is a volume; its samples are slices otherwise."""
        return self.image.ndim == 5

    @property
    def boxes(self) -> Tensor:
        """int64 ``[N, classes, objects, axes, 2]``: first pixel and one past the last of every object.

        From the file of annotations, or one for each connected part of the mask; empty boxes (0, 0) fill up. In
        volumes, an object has a box in each of its slices, one slice deep, unless the file has boxes in 3-D.
        """
        return self._placed[0]

    @property
    def whole(self) -> Tensor:
        """bool ``[N, classes, objects, axes]``: whether every line (plane) across a box meets the object.

        That is, perpendicular to an axis. A box that is one slice deep promises nothing along its depth.
        """
        return self._placed[1]

    @cached_property
    def object_boxes(self) -> Tensor:
        """As ``boxes``, with one box in space for each object of a volume."""
        if not self.volume:
            return self.boxes
        if self.case is not None and self.annotated:
            return torch.from_numpy(place_objects(self.annotated, self.case, self.size, self.mask.shape[1]))[None]
        return boxes_from_masks(self.boxed_mask, self.margin)

    @cached_property
    def _placed(self) -> tuple[Tensor, Tensor]:
        if self.case is not None and self.annotated:
            place = place_volume_boxes if self.volume else place_boxes
            placed = place(self.annotated, self.case, self.size, self.mask.shape[1])
            boxes, whole = map(torch.from_numpy, placed)
            return (boxes[None], whole[None]) if self.volume else (boxes, whole)
        if not self.drawn:
            raise ValueError(f"{self.name} has neither a mask nor a box: give boxes by --data.boxes FILE")
        found = slice_boxes_from_masks if self.volume else boxes_from_masks
        boxes = found(self.mask, self.margin, self.smallest)
        whole = torch.ones(boxes.shape[:-1], dtype=torch.bool)
        if self.volume:
            whole[..., 0] = boxes[..., 0, 1] == boxes[..., 0, 0]  # all but of empty ones
        return boxes, whole

    @cached_property
    def boxed_mask(self) -> Tensor:
        """The mask without the parts that are too small for a box: where there is none, nothing is to be found."""
        if self.smallest == 1 or self.annotated or not self.drawn:
            return self.mask
        return self.mask & covered(self.boxes, self.mask.shape[2:])

    @property
    def margins(self) -> Tensor:
        """int64 ``[N, axes]``: by how much boxes may be too wide at either end, along each axis.

        Boxes from a file were rounded outwards if slices were resized: by a pixel more, then.
        """
        resized = bool(self.annotated) and self.case is not None and self.case.frame(self.size).resized
        in_plane = 2 * [self.margin + int(resized)]
        margin = [self.margin, *in_plane] if self.volume else in_plane
        return torch.tensor(margin).expand(len(self.image), -1)
