"""The command line: parses, calls, prints errors once. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence

import ringfence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status. A user's mistake is one line on stderr, never a traceback."""
    options = _parser().parse_args(arguments)
    try:
        print(options.run(options), flush=True)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor will the exit complain
        return 0
    except (ValueError, TypeError, OSError, ModuleNotFoundError) as error:
        print(f"ringfence {options.command}: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ringfence",
        description="Hard limits on what a neural network may output: log-barrier extensions and their peers.",
        epilog="In Python: import ringfence as rf; fence = rf.LogBarrier(t=5.0, mu=1.1). See the README.",
    )
    parser.add_argument("--version", action="version", version=f"ringfence {ringfence.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    barrier = commands.add_parser(
        "barrier",
        help="show the barrier and its multiplier at given points, or draw it",
        description="Print the standard barrier, its extension psi_t and the multiplier lambda = psi_t' for every "
        "t and z; with --plot, draw the first two as well.",
    )
    barrier._negative_number_matcher = re.compile(r"-\.?\d|-inf")  # argparse knows -1, but not -1e-3
    barrier.add_argument("--t", type=float, nargs="+", default=[1.0, 5.0], help="sharpness, > 0 (default: 1 5)")
    barrier.add_argument(
        "--z",
        type=float,
        nargs="+",
        default=[-2.0, -1.0, -0.1, 0.0, 1.0],
        help="residuals, <= 0 is satisfied (default: -2 -1 -0.1 0 1)",
    )
    barrier.add_argument("--plot", metavar="FILE", help="draw into FILE (.png, .svg or .pdf)")
    barrier.set_defaults(run=_barrier)

    info = commands.add_parser("info", help="versions and hardware, for a bug report")
    info.set_defaults(run=_info)
    return parser


def _barrier(options: argparse.Namespace) -> str:
    from ringfence.report.barrier import barrier_figure, barrier_table

    table = barrier_table(options.z, options.t)
    if options.plot:
        barrier_figure(options.plot, options.t)
        return f"{table}\ndrawn: {options.plot}"
    return table


def _info(options: argparse.Namespace) -> str:
    from ringfence.report.environment import environment

    return "\n".join(f"{name:<18} {value}" for name, value in environment().items())
