"""What can be measured, differentiably, on a segmentation network's output."""

from ringfence.segmentation.neighbours import boundary_length, contact
from ringfence.segmentation.region import Region
from ringfence.segmentation.slanted import pairs_of
from ringfence.segmentation.strips import Strips
from ringfence.segmentation.turning import answer_of_turned, boxes_in_sight, turned

__all__ = [
    "Region",
    "Strips",
    "answer_of_turned",
    "boundary_length",
    "boxes_in_sight",
    "contact",
    "pairs_of",
    "turned",
]
