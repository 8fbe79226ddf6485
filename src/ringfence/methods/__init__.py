"""The methods, one per file, behind the same verbs."""

from ringfence.methods.augmented_lagrangian import AugmentedLagrangian
from ringfence.methods.base import Method
from ringfence.methods.lagrangian import Lagrangian
from ringfence.methods.log_barrier import LogBarrier
from ringfence.methods.multipliers.nupi import NuPI
from ringfence.methods.penalty import Penalty
from ringfence.methods.relu_lagrangian import ReLULagrangian

__all__ = ["AugmentedLagrangian", "Lagrangian", "LogBarrier", "Method", "NuPI", "Penalty", "ReLULagrangian"]
