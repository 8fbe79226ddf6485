"""Annotations from a user's own files: boxes, bounds on sizes and scribbles, for training without any mask."""

from ringfence.weak.annotations.annotation import (
    BoxAnnotation,
    ScribblePoint,
    SizeAnnotation,
    annotations_from_boxes,
)
from ringfence.weak.annotations.boxes import read_boxes
from ringfence.weak.annotations.from_masks import boxes_from_masks, slice_boxes_from_masks
from ringfence.weak.annotations.grid import (
    place_boxes,
    place_objects,
    place_sizes,
    place_volume_boxes,
    place_volume_sizes,
)
from ringfence.weak.annotations.joining import left_out
from ringfence.weak.annotations.scribbles import place_scribbles, place_volume_scribbles, read_scribbles
from ringfence.weak.annotations.sizes import read_sizes
from ringfence.weak.annotations.written import write_boxes_csv

__all__ = [
    "BoxAnnotation",
    "ScribblePoint",
    "SizeAnnotation",
    "annotations_from_boxes",
    "boxes_from_masks",
    "left_out",
    "place_boxes",
    "place_objects",
    "place_scribbles",
    "place_sizes",
    "place_volume_boxes",
    "place_volume_scribbles",
    "place_volume_sizes",
    "read_boxes",
    "read_scribbles",
    "read_sizes",
    "slice_boxes_from_masks",
    "write_boxes_csv",
]
