"""Data sets as they are downloaded: each file of this package finds the cases of one layout."""

from __future__ import annotations

from ringfence.weak.datasets.folder import find_folder
from ringfence.weak.datasets.promise12 import find_promise12
from ringfence.weak.datasets.source import Source, SourceCase, SourceVolume, with_validation

__all__ = ["Source", "SourceCase", "SourceVolume", "find_folder", "find_promise12", "with_validation"]
