"""The set to train on: its format and its preprocessing."""

from ringfence.weak.prepared.prepared_set import Case, PreparedSet, Split, read_prepared
from ringfence.weak.prepared.preprocessing import Preprocessing

__all__ = ["Case", "PreparedSet", "Preprocessing", "Split", "read_prepared"]
