"""The command line: parses, calls, prints errors once. Nothing heavy is imported before a command needs it.

One command a file: each has ``run(arguments)``, which returns what to print and raises on a user's mistake.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

import ringfence
from ringfence import memory
from ringfence.cli.parser import Parser
from ringfence.files import WriteFailed
from ringfence.hints import nearest, printable

COMMANDS: Final = {
    "prepare": "make a data set of medical volumes, as downloaded, ready to train on",
    "plan": "look at a prepared set, and derive how to train on it, with reasons",
    "train": "train a segmentation model on prepared images, from boxes",
    "predict": "segment new images with a trained model: masks in the images' own place and size",
    "evaluate": "score masks against the truth: 3D Dice and HD95 of every case, and a summary",
    "agree": "compare the masks of two models or more, without the truth: which cases to look at",
    "compare": "train every method on one task and compare them: tables, curves, pictures",
    "report": "make the tables and figures of a comparison anew",
    "barrier": "show the barrier and its multiplier at given points, or draw it",
    "info": "versions and hardware, for a bug report",
}


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """Ctrl-C, with what to say about it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status. A user's mistake is one message on stderr, never a traceback."""
    parser = _parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help(sys.stderr)
        return 2
    parsed = parser.parse_args(arguments)
    command = parsed.command
    if parsed.memory:
        os.environ[memory.VARIABLE] = parsed.memory
    try:
        memory.limit()  # says so if it is no size
        said = import_module(f"ringfence.cli.{command}").run(parsed.arguments)
        if said:  # of several processes, one speaks
            print(said, flush=True)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor will the exit complain
        return 0
    except (KeyboardInterrupt, Interrupted) as stop:
        print(f"\nringfence {command}: stopped{f'. {stop}' if str(stop) else ''}", file=sys.stderr)
        return 130
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise  # a fault of ours, or of the user's network: its traceback says more
        _complain(command, "not enough memory for that; make something smaller")
        return 2
    except (ValueError, TypeError, OSError, ModuleNotFoundError) as error:
        _complain(command, reason(error))
        return 2
    return 0


def reason(error: Exception) -> str:
    """What an error says to a user; Python's own of files begin with a number."""
    if isinstance(error, WriteFailed) or not isinstance(error, OSError) or error.filename is None:
        return str(error) or type(error).__name__
    if error.errno in (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return str(WriteFailed(error.filename, error))
    return f"{error.filename}: {error.strerror or error}"


def _complain(command: str, what: str) -> None:
    print(f"ringfence {command}: {printable(what)}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ringfence",
        usage="ringfence [-h] [--version] COMMAND ...",
        description="Hard limits on what a neural network may output: log-barrier extensions and their peers.",
        epilog="\n".join(
            [
                "commands:",
                *(f"  {name:<10} {text}" for name, text in COMMANDS.items()),
                "",
                "ringfence COMMAND --help shows a command's options. No file may ask for more memory than --memory",
                f"or {memory.VARIABLE} allow (before COMMAND, as in --memory 4GB; default: half of the machine's).",
                "In Python: import ringfence as rf; fence = rf.LogBarrier(t=5.0, mu=1.1). See the README.",
            ]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ringfence {ringfence.__version__}")
    parser.add_argument("--memory", metavar="SIZE", help=argparse.SUPPRESS)
    parser.add_argument("command", type=_command, metavar="COMMAND", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _command(name: str) -> str:
    if name not in COMMANDS:
        near = nearest(name, COMMANDS)
        hint = f"did you mean '{near}'?" if near else f"there are: {', '.join(COMMANDS)}"
        raise argparse.ArgumentTypeError(f"no command '{name}'; {hint}")
    return name
