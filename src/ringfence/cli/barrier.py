"""`ringfence barrier`: ψ_t and λ at given points."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence


def run(arguments: Sequence[str]) -> str:
    """The table; drawn as well if asked."""
    options = _parser().parse_args(arguments)
    from ringfence.report.barrier import barrier_figure, barrier_table

    table = barrier_table(options.z, options.t)
    if options.plot:
        barrier_figure(options.plot, options.t)
        return f"{table}\ndrawn: {options.plot}"
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ringfence barrier",
        description="Print the standard barrier, its extension psi_t and the multiplier lambda = psi_t' for every "
        "t and z; with --plot, draw the first two as well.",
    )
    parser._negative_number_matcher = re.compile(r"-\.?\d|-inf")  # argparse knows -1, but not -1e-3
    parser.add_argument("--t", type=float, nargs="+", default=[1.0, 5.0], help="sharpness, > 0 (default: 1 5)")
    parser.add_argument(
        "--z",
        type=float,
        nargs="+",
        default=[-2.0, -1.0, -0.1, 0.0, 1.0],
        help="residuals, <= 0 is satisfied (default: -2 -1 -0.1 0 1)",
    )
    parser.add_argument("--plot", metavar="FILE", help="draw into FILE (.png, .svg or .pdf)")
    return parser
