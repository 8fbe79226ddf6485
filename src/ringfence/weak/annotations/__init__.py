"""Annotations from a user's own files: boxes and bounds on sizes, for training without any mask."""

from ringfence.weak.annotations.annotation import BoxAnnotation, SizeAnnotation, annotations_from_boxes
from ringfence.weak.annotations.boxes import read_boxes
from ringfence.weak.annotations.csv_table import write_boxes_csv
from ringfence.weak.annotations.from_masks import boxes_from_masks
from ringfence.weak.annotations.grid import place_boxes, place_sizes, place_volume_boxes, place_volume_sizes
from ringfence.weak.annotations.sizes import read_sizes

__all__ = [
    "BoxAnnotation",
    "SizeAnnotation",
    "annotations_from_boxes",
    "boxes_from_masks",
    "place_boxes",
    "place_sizes",
    "place_volume_boxes",
    "place_volume_sizes",
    "read_boxes",
    "read_sizes",
    "write_boxes_csv",
]
