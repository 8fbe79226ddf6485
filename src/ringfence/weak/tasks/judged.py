"""The cases that a training is judged by after every epoch."""

from __future__ import annotations

from typing import Final

from ringfence.weak.prepared.prepared_set import Case, PreparedSet

FEWEST: Final = 4
"""Cases to judge by, if there are as many."""
PART: Final = 5
"""Every so many-th at most: to look at all that is trained on would take as long as to train on it."""


def judged_cases(prepared: PreparedSet) -> tuple[Case, ...]:
    """Those for validation; without any, a fifth of those for training, or four if that is more.

    Somebody may have no mask at all: constraints are counted on images that are trained on then, and there is no
    Dice.
    """
    cases = prepared.of("train")
    return prepared.of("validation") or cases[:: max(1, min(PART, len(cases) // FEWEST))]
