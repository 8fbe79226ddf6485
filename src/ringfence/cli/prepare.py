"""`ringfence prepare LAYOUT SRC DST`: a data set as downloaded becomes one to train on."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringfence.cli import Interrupted, _Parser
from ringfence.extras import require

if TYPE_CHECKING:
    from ringfence.weak.datasets import Source
    from ringfence.weak.prepared.build import Preparation
    from ringfence.weak.prepared.prepared_set import Case

HELP: Final = """usage: ringfence prepare LAYOUT SRC DST [options]

Read a data set of medical volumes as it was downloaded, check every case, and write a compact set to train on.

layouts:
  promise12  the prostate MR challenge: CaseNN.mhd and CaseNN_segmentation.mhd, in zips or folders
  folder     nnU-Net v2 or Medical Segmentation Decathlon: a folder with dataset.json

examples:
  ringfence prepare promise12 Downloads/promise12 data/promise12
  ringfence prepare folder Downloads/Task05_Prostate data/prostate --size 320 320

ringfence prepare LAYOUT --help shows a layout's options."""

ENDING: Final = """Every case is tried. If any fails, each is listed with what is wrong, the exit status is 2, and
DST is no prepared set yet: repair them and run the same command again, which does only what is missing (as it does
after Ctrl-C), or finish without them by --skip-failures. DST must be new, empty, or begun by this same command."""

PROMISE12: Final = """Prepare PROMISE12: MetaImage with .raw or .zraw, of any in-plane size. Every volume is
normalised between percentiles of its own, and its slices are resized. The validation patients are the authors': 02
16 19 24 25 26 30 31 32 48. Cases without a mask, as in the challenge's test set, fail."""

FOLDER: Final = """Prepare a folder with dataset.json: nnU-Net v2 (imagesTr/CASE_0000.nii.gz, labelsTr/CASE.nii.gz)
or Medical Segmentation Decathlon (what it lists under 'training'), with any number of channels and classes. Every
volume is normalised between percentiles of its own, and its slices along the third axis are resized. Cases without
a mask are welcome, for training from boxes. The split is that of splits_final.json if it is there; else every fifth
of the cases with a mask, by name, is for validation."""


def run(arguments: Sequence[str]) -> str:
    """Prepare; a summary."""
    layouts = {"promise12": _promise12, "folder": _folder}
    if not arguments:
        raise ValueError(
            "which layout? `ringfence prepare promise12 SRC DST` or `ringfence prepare folder SRC DST`"
        )
    layout, *rest = arguments
    if layout in ("-h", "--help"):
        return HELP
    if layout not in layouts:
        raise ValueError(f"there is no layout '{layout}'; there are: {', '.join(layouts)}")
    return layouts[layout](rest)


def _promise12(arguments: Sequence[str]) -> str:
    parser = _parser(
        "promise12", PROMISE12, "a zip of the challenge, or a folder with its zips or files", "256 256"
    )
    options = parser.parse_args(arguments)
    _check_places(options)
    _require()
    from ringfence.weak.datasets import find_promise12, with_validation
    from ringfence.weak.datasets.promise12 import SIZE

    options.size = options.size or SIZE
    source = find_promise12(options.source)
    if options.validation:
        names = [f"Case{name}" if name.isdecimal() else name for name in options.validation]
        source = with_validation(source, names)
    return _prepared(source, options)


def _folder(arguments: Sequence[str]) -> str:
    size = "the medians of the cases, up to a multiple of 16"
    parser = _parser("folder", FOLDER, "the folder that holds dataset.json", size)
    parser.add_argument("--fold", type=int, metavar="N", help="which split of splits_final.json (default: 0)")
    options = parser.parse_args(arguments)
    _check_places(options)
    _require()
    from ringfence.weak.datasets import find_folder

    return _prepared(find_folder(options.source, options.fold, options.validation), options)


def _parser(layout: str, description: str, source: str, size: str) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"ringfence prepare {layout}",
        usage=f"ringfence prepare {layout} SRC DST [options]",
        description=description,
        epilog=ENDING,
        allow_abbrev=False,
    )
    parser.add_argument("source", metavar="SRC", type=Path, help=source)
    parser.add_argument("out", metavar="DST", type=Path, help="the folder to write")
    parser.add_argument(
        "--size", nargs=2, type=_side, metavar=("H", "W"), help=f"of every prepared slice (default: {size})"
    )
    parser.add_argument(
        "--validation", nargs="+", metavar="NAME", help="these cases, and no others, are for validation"
    )
    parser.add_argument("--skip-failures", action="store_true", help="finish without the cases that fail")
    return parser


def _side(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if not 8 <= value <= 4096:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of pixels between 8 and 4096")
    return value


def _check_places(options: argparse.Namespace) -> None:
    source, out = options.source.resolve(), options.out.resolve()
    if not source.exists():
        raise FileNotFoundError(f"{options.source} does not exist")
    if out == source or source in out.parents:
        raise ValueError(
            f"{options.out} is inside {options.source}: downloads stay as they are, name another folder"
        )


def _require() -> None:
    for package in ("rich", "yaml", "SimpleITK", "nibabel"):
        require(package, "ringfence prepare", "train")


def _prepared(source: Source, options: argparse.Namespace) -> str:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ringfence.weak.prepared.build import prepare

    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(source.name, total=len(source.cases))
        try:
            done = prepare(
                source,
                options.out,
                size=tuple(options.size) if options.size else None,
                skip_failures=options.skip_failures,
                tell=lambda case: bar.update(task, advance=1, description=case),
            )
        except KeyboardInterrupt:
            raise Interrupted(
                f"What is ready in {options.out} is kept; the same command again does only what is missing"
            ) from None
    return _summary(done, source)


def _summary(done: Preparation, source: Source) -> str:
    prepared = done.prepared
    height, width = prepared.size
    masked = sum(case.masked for case in prepared.cases)
    lines = [
        f"{prepared.name}: {_counted(prepared.cases)}{f', {done.kept} of them ready before' if done.kept else ''}",
        f"  train       {_counted(prepared.of('train'))}",
        f"  validation  {_counted(prepared.of('validation'))} ({source.split})",
        f"  masks       {masked} with, {len(prepared.cases) - masked} without",
        f"  size        {height} × {width}",
        f"  channels    {', '.join(prepared.channels)}",
        f"  classes     {', '.join(prepared.classes)}",
        f"  folder      {prepared.path}",
    ]
    if done.failures:
        lines += ["left out (--skip-failures):", *(f"  {line}" for line in done.failures)]
    if not prepared.of("train"):
        return "\n".join([*lines, "no case is for training: to train, name fewer for validation"])
    boxes = "" if all(case.masked for case in prepared.cases) else " --data.boxes BOXES.csv"
    return "\n".join([*lines, f"next: ringfence train --data.prepared {shlex.quote(str(prepared.path))}{boxes}"])


def _counted(cases: Sequence[Case]) -> str:
    slices = sum(case.shape[0] for case in cases)
    return f"{len(cases)} case{'' if len(cases) == 1 else 's'}, {slices} slice{'' if slices == 1 else 's'}"
