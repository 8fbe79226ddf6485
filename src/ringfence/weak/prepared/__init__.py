"""The set to train on: its format, its preprocessing, and building it."""

from ringfence.weak.prepared.build import PreparationFailed, prepare, prepare_source
from ringfence.weak.prepared.preparation import Preparation
from ringfence.weak.prepared.prepared_set import Case, PreparedSet, Split, read_prepared
from ringfence.weak.prepared.preprocessing import Preprocessing

__all__ = [
    "Case",
    "Preparation",
    "PreparationFailed",
    "PreparedSet",
    "Preprocessing",
    "Split",
    "prepare",
    "prepare_source",
    "read_prepared",
]
