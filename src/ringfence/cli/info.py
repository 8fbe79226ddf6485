"""`ringfence info`: versions and hardware."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def run(arguments: Sequence[str]) -> str:
    """One line a fact."""
    argparse.ArgumentParser(
        prog="ringfence info", description="Versions and hardware, for a bug report."
    ).parse_args(arguments)
    from ringfence.environment import environment

    return "\n".join(f"{name:<18} {value}" for name, value in environment().items())
