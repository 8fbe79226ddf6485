"""Data sets as they are downloaded: each layout is one file and one entry in the registry."""

from __future__ import annotations

from ringfence.weak.datasets.decathlon import find_decathlon
from ringfence.weak.datasets.folder import find_folder
from ringfence.weak.datasets.layout import Layout, Option
from ringfence.weak.datasets.nnunet import find_nnunet
from ringfence.weak.datasets.promise12 import find_promise12
from ringfence.weak.datasets.registry import LAYOUTS, layout_named
from ringfence.weak.datasets.source import Source, SourceCase, SourceVolume, every_fifth, with_validation

__all__ = [
    "LAYOUTS",
    "Layout",
    "Option",
    "Source",
    "SourceCase",
    "SourceVolume",
    "every_fifth",
    "find_decathlon",
    "find_folder",
    "find_nnunet",
    "find_promise12",
    "layout_named",
    "with_validation",
]
