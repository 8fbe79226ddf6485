"""`ringfence plan PREPARED`: the settings that follow from a set, with their reasons."""

from __future__ import annotations

from argparse import BooleanOptionalAction
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from ringfence.cli.parser import Parser
from ringfence.extras import require
from ringfence.files import write_text


def run(arguments: Sequence[str]) -> str:
    """The plan; with --out, its file."""
    parser = Parser(
        prog="ringfence plan",
        description="""Look at a prepared set and its boxes, and derive how to train on it: slices or volumes, the
        network, strips, and the barrier, each with its reason. `ringfence train PREPARED` does that by
        itself; a plan that was written to a file can be changed, and given to it instead.""",
        allow_abbrev=False,
    )
    parser.add_argument("prepared", metavar="PREPARED", help="the folder that `ringfence prepare` wrote")
    parser.add_argument(
        "--boxes",
        metavar="FILE",
        help="of boxes (CSV, JSON, COCO), or the word masks; default: those that came with the set, else masks",
    )
    parser.add_argument(
        "--volumes",
        action=BooleanOptionalAction,
        help="train on volumes, in patches that follow from the set, or on slices; default: whichever suits it",
    )
    parser.add_argument(
        "--patch",
        metavar=("SLICES", "ROWS", "COLUMNS"),
        type=int,
        nargs=3,
        help="train on volumes, in patches of this size",
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to train on it")
    parser.add_argument("--out", metavar="FILE", type=Path, help="write it as YAML, for `ringfence train FILE`")
    options = parser.parse_args(arguments)
    for package in ("yaml", "jsonargparse"):
        require(package, "ringfence plan", "train")
    if options.out is not None and options.out.exists():
        raise ValueError(f"{options.out} is there already: name a new file")
    from ringfence.weak.experiments.planned import as_yaml, plan
    from ringfence.weak.tasks.settings import BoxDataSettings

    data = BoxDataSettings(
        prepared=options.prepared, boxes=options.boxes, volumes=options.volumes, patch=options.patch
    )
    made = plan(data, options.device)
    boxes = f" --data.boxes {quote(options.boxes)}" if options.boxes else ""
    patch = f" --data.patch {' '.join(map(str, options.patch))}" if options.patch else ""
    volumes = "" if options.volumes is None else f" --data.volumes {str(options.volumes).lower()}"
    after = f"next: ringfence train {quote(options.prepared)}{boxes}{volumes}{patch}"
    if options.out is not None:
        write_text(options.out, as_yaml(made))
        after = f"next: ringfence train {quote(str(options.out))}"
    return f"{made}\n{after}"
