"""Tables and figures of comparisons, from the files that runs leave.

Names are imported when first touched: what draws the barrier need not load all that trains.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.report.comparison import Comparison, read_comparison
    from ringfence.report.write import write_report

_HOMES = {"Comparison": "comparison", "read_comparison": "comparison", "write_report": "write"}

__all__ = ["Comparison", "read_comparison", "write_report"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"ringfence.report.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'ringfence.report' has no attribute '{name}'")


def __dir__() -> list[str]:
    return list(__all__)
