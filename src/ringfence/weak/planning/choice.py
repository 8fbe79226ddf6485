"""One setting of a plan, and why it is what it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Device = Literal["cpu", "cuda"]
"""What trains."""


@dataclass(frozen=True)
class Choice:
    """One setting of a plan.

    Attributes:
        name: of the setting, dotted.
        value: what it is set to.
        reason: why, in a line.
    """

    name: str
    value: Any
    reason: str
