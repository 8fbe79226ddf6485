"""`ringfence prepare LAYOUT SRC DST`: a data set as downloaded becomes one to train on."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringfence.cli import Interrupted
from ringfence.cli.parser import Parser
from ringfence.extras import require
from ringfence.hints import one_line

if TYPE_CHECKING:
    from ringfence.weak.building import Preparation
    from ringfence.weak.building.needs import Needs
    from ringfence.weak.datasets import Layout, Source
    from ringfence.weak.ranks.cases import Crew

HELP: Final = """usage: ringfence prepare LAYOUT SRC DST [options]

Read a data set of medical volumes as it was downloaded, check every case, and write a compact set to train on.

layouts:
{layouts}

or one of your own, a ringfence.weak.datasets.Layout, as my_module.MY_LAYOUT, also from the current folder

examples:
  ringfence prepare {first} Downloads/{first} data/{first}
  ringfence prepare my_module.MY_LAYOUT Downloads/mine data/mine --size 320 320

ringfence prepare LAYOUT --help shows a layout's options."""

ENDING: Final = """Every volume is normalised between percentiles of its own, and its slices are resized: to one
size or, where cases differ in it, to one spacing. Every case is tried. If any fails, each is listed with what is
wrong, the exit status is 2, and DST is not a prepared set yet: repair them and run the same command again, which
does only what is missing (as it does after Ctrl-C), or finish without them by --skip-failures. DST must be new,
empty, or begun by this same command."""


def run(arguments: Sequence[str]) -> str:
    """Prepare; a summary."""
    from ringfence.weak.datasets import LAYOUTS, layout_named
    from ringfence.weak.datasets.source import check_places

    if not arguments:
        raise ValueError(f"which layout? `ringfence prepare LAYOUT SRC DST`, where LAYOUT is {_either(LAYOUTS)}")
    name, *rest = arguments
    if name in ("-h", "--help"):
        width = max(map(len, LAYOUTS))
        lines = (f"  {layout.name:<{width}}  {layout.description}" for layout in LAYOUTS.values())
        return HELP.format(layouts="\n".join(lines), first=next(iter(LAYOUTS)))
    layout = layout_named(name)
    options = _parser(name, layout).parse_args(rest)
    check_places(options.source, options.out)
    for package in ("rich", "nibabel"):
        require(package, "ringfence prepare", "train")
    own = {option.name: getattr(options, option.name) for option in layout.options}
    given = {name: value for name, value in own.items() if value is not None}
    from ringfence.weak.ranks.cases import crew_of

    with crew_of(options.workers) as crew:
        found = layout.source_at(options.source, validation=options.validation, **given)
        return _prepared(layout, found, options, crew)


def _parser(name: str, layout: Layout) -> argparse.ArgumentParser:
    parser = Parser(
        prog=f"ringfence prepare {name}",
        usage=f"ringfence prepare {name} SRC DST [options]",
        description=layout.help or layout.description,
        epilog=ENDING,
        allow_abbrev=False,
    )
    size = "{} {}".format(*layout.size) if layout.size else "the medians of the cases, up to a multiple of 16"
    parser.add_argument("source", metavar="SRC", type=Path, help=layout.source)
    parser.add_argument("out", metavar="DST", type=Path, help="the folder to write")
    parser.add_argument(
        "--size", nargs=2, type=_side, metavar=("H", "W"), help=f"of every prepared slice (default: {size})"
    )
    spacing = "the median of the cases, if all are known and differ" if layout.spacing == "auto" else layout.spacing
    parser.add_argument(
        "--spacing",
        type=_spacing,
        metavar="MM|auto|none",
        help="between rows and between columns of prepared slices, which lie in the middle of --size; none: whole "
        f"slices are resized to --size, whatever their extent (default: {spacing}). Slices stay as far apart as "
        "they are",
    )
    parser.add_argument(
        "--percentiles",
        nargs=2,
        type=float,
        metavar=("LOW", "HIGH"),
        help="of a volume's voxels, which become black and white (default: 0.5 99.5)",
    )
    parser.add_argument(
        "--validation", nargs="+", metavar="NAME", help="these cases, and no others, are for validation"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="processes that do the cases (default: 1), with the limit of memory for all of them together; under "
        "torchrun or srun each process takes its part. The files are the same",
    )
    parser.add_argument("--skip-failures", action="store_true", help="finish without the cases that fail")
    for option in layout.options:
        parser.add_argument(
            f"--{option.name.replace('_', '-')}",
            dest=option.name,
            type=option.type,
            metavar=option.metavar,
            help=option.help,
        )
    return parser


def _side(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if not 8 <= value <= 4096:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of pixels between 8 and 4096")
    return value


def _spacing(text: str) -> str | float:
    if text in ("auto", "none"):
        return text
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1e-6 <= value <= 1e6:
        raise argparse.ArgumentTypeError(f"'{text}' is neither auto nor none nor a number of millimetres")
    return value


def _prepared(layout: Layout, source: Source, options: argparse.Namespace, crew: Crew) -> str:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ringfence.weak.building import build
    from ringfence.weak.building.common_spacing import grid_of
    from ringfence.weak.prepared.preprocessing import PERCENTILES
    from ringfence.weak.prepared.spacing import missing_spacing

    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    silent = not (console.is_terminal and crew.world.first)
    with Progress(*columns, console=console, transient=True, disable=silent) as bar:
        task = bar.add_task(escape(one_line(source.name)), total=len(source.cases))
        try:
            done = build.prepare_source(
                source,
                options.out,
                **grid_of(layout, tuple(options.size) if options.size else None, options.spacing),
                percentiles=tuple(options.percentiles) if options.percentiles else PERCENTILES,
                skip_failures=options.skip_failures,
                tell=lambda case: bar.update(task, advance=1, description=escape(one_line(case))),
                before=_say,
                crew=crew,
            )
        except KeyboardInterrupt:
            raise Interrupted(
                f"What is ready in {options.out} is kept; the same command again does only what is missing"
            ) from None
    return "\n".join([str(done), *missing_spacing(done.prepared), _next(done)]) if crew.world.first else ""


def _say(needs: Needs) -> None:
    if needs.cases:
        print(needs, file=sys.stderr, flush=True)


def _next(done: Preparation) -> str:
    prepared = done.prepared
    if not prepared.of("train"):
        return "no case is for training: to train, name fewer for validation"
    known = prepared.boxes or all(case.masked for case in prepared.cases)
    boxes = "" if known else " --data.boxes BOXES.csv"
    return f"next: ringfence train {shlex.quote(str(prepared.path))}{boxes}"


def _either(names: Sequence[str] | dict[str, Layout]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"
