"""Hard limits on what a neural network may output: log-barrier extensions and their peers for PyTorch.

>>> import ringfence as rf
>>> fence = rf.LogBarrier(t=5.0, mu=1.1)

``loss = task_loss + fence(size=rf.between(size, low, high))``, and ``fence.step()`` after each epoch.

Names are imported when first touched, so that the command line answers without loading torch and the core works
without torchmetrics or Lightning.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence import lightning as lightning
    from ringfence import segmentation as segmentation
    from ringfence import weak as weak
    from ringfence.barrier import log_barrier, log_barrier_dual, standard_log_barrier
    from ringfence.certificate import Certificate
    from ringfence.methods import (
        AugmentedLagrangian,
        Lagrangian,
        LogBarrier,
        Method,
        NuPI,
        Penalty,
        ReLULagrangian,
    )
    from ringfence.monitor import Monitor as Monitor
    from ringfence.residuals import Residual, at_least, at_most, between, equal, surrogate

__version__ = "0.1.0"

_HOMES = {
    "log_barrier": "barrier",
    "log_barrier_dual": "barrier",
    "standard_log_barrier": "barrier",
    "Residual": "residuals",
    "between": "residuals",
    "at_most": "residuals",
    "at_least": "residuals",
    "equal": "residuals",
    "surrogate": "residuals",
    "Method": "methods",
    "LogBarrier": "methods",
    "Penalty": "methods",
    "Lagrangian": "methods",
    "ReLULagrangian": "methods",
    "AugmentedLagrangian": "methods",
    "NuPI": "methods",
    "Certificate": "certificate",
    "Monitor": "monitor",
}

# What `from ringfence import *` gives: everything that needs torch alone, so not Monitor and lightning.
__all__ = [
    "AugmentedLagrangian",
    "Certificate",
    "Lagrangian",
    "LogBarrier",
    "Method",
    "NuPI",
    "Penalty",
    "ReLULagrangian",
    "Residual",
    "at_least",
    "at_most",
    "between",
    "equal",
    "log_barrier",
    "log_barrier_dual",
    "segmentation",
    "standard_log_barrier",
    "surrogate",
]


def __getattr__(name: str) -> Any:
    if name in ("lightning", "segmentation", "weak"):
        return import_module(f"ringfence.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'ringfence' has no attribute '{name}'")
    value = getattr(import_module(f"ringfence.{_HOMES[name]}"), name)
    # `log_barrier` the function, not `ringfence.methods.log_barrier` the module: keep what was asked for
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "Monitor", "lightning", "weak", "__version__"]
