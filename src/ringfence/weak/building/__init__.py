"""From a data set as downloaded to a prepared one."""

from ringfence.weak.building.build import PreparationFailed, prepare, prepare_source
from ringfence.weak.building.checked_boxes import BoxesRefused
from ringfence.weak.building.preparation import Preparation

__all__ = ["BoxesRefused", "Preparation", "PreparationFailed", "prepare", "prepare_source"]
