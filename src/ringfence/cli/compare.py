"""`ringfence compare TASK`: every method on one task."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Any, Final

from ringfence.cli import Interrupted
from ringfence.cli.experiment import Experiment
from ringfence.cli.quick_start import quick_start
from ringfence.cli.report import written_report
from ringfence.extras import require
from ringfence.hints import hint
from ringfence.weak.experiments.settings import BoxCompareSettings, SyntheticSettings

HELP: Final = """usage: ringfence compare TASK [options]

Train every method on one task, alike, and compare them.

tasks:
  synthetic  find the darker of two discs from its size and centroid alone (the paper's first experiment)
  promise12  find the prostate in MR images from boxes alone (the paper's second)
  boxes      find the objects of any prepared set from boxes alone

ringfence compare TASK --help shows a task's options."""

SYNTHETIC: Final = Experiment(
    "ringfence compare synthetic",
    """Train every method, and full supervision, to find the darker of two discs, given constraints on its size and
    centroid and not a single labelled pixel; print Dice, satisfaction and stability beside the paper's numbers, and
    draw the curves.""",
    """examples: `ringfence compare synthetic` (minutes on two CPU cores);
    `ringfence compare synthetic --preset synthetic-paper` (the paper's size, for a GPU);
    `--seeds 0 1 2 --methods log_barrier penalty`; `--log_barrier.t 5`;
    `--print_config > my.yaml` and then `--config my.yaml`; after Ctrl-C, `--out THAT_FOLDER --resume`.""",
    SyntheticSettings,
    ("synthetic-small", "synthetic-paper"),
    "synthetic",
)
BOXES: Final = Experiment(
    "ringfence compare boxes",
    """Train every method, and full supervision, on a prepared set (`ringfence prepare LAYOUT SRC DST`), given boxes
    and not a single labelled pixel; print Dice by patient, satisfaction and stability, and draw the curves.""",
    """examples: `ringfence compare boxes --data.prepared DST` (for a GPU); `--preset boxes-small` (without one);
    `--methods log_barrier full_supervision --seeds 0 1 2`; `--constraints.strips.width 10`;
    `--print_config > my.yaml` and then `--config my.yaml`; after Ctrl-C, `--out THAT_FOLDER --resume`.""",
    BoxCompareSettings,
    ("boxes", "boxes-small", "promise12", "promise12-small"),
    "boxes",
)
PROMISE12: Final = Experiment(
    "ringfence compare promise12",
    """The same as `ringfence compare boxes`, with the settings of the paper's second experiment, and beside the
    paper's numbers.""",
    """examples: `ringfence compare promise12 --data.prepared DST` (for a GPU);
    `--methods log_barrier full_supervision --seeds 0 1 2`; `--constraints.strips.width 10`;
    `--print_config > my.yaml` and then `--config my.yaml`; after Ctrl-C, `--out THAT_FOLDER --resume`.""",
    BoxCompareSettings,
    ("promise12", "promise12-small", "boxes", "boxes-small"),
    "promise12",
)
TASKS: Final[dict[str, Experiment[Any]]] = {"synthetic": SYNTHETIC, "promise12": PROMISE12, "boxes": BOXES}


def run(arguments: Sequence[str]) -> str:
    """Train, report; the table and the files' names."""
    if not arguments or arguments[0] in ("-h", "--help"):
        if not arguments:
            raise ValueError("which task? `ringfence compare synthetic` is the paper's first experiment")
        return HELP
    task, rest = arguments[0], list(arguments[1:])
    if task not in TASKS:
        raise ValueError(f"there is no task '{task}'; {hint(task, TASKS)}")
    if rest and not rest[0].startswith("-"):  # a preset, as `ringfence train` takes it
        rest[:1] = ["--preset", rest[0]]
    settings, folder, resume = TASKS[task].parsed(rest)
    with quick_start(settings.training.device, "ringfence compare", compiles=settings.training.compile):
        for package in ("torchmetrics", "rich", "matplotlib"):
            require(package, "ringfence compare", "train")
        from ringfence.weak.experiments.compare import compare
        from ringfence.weak.ranks.world import world_of_environment

    try:
        compare(settings, folder, resume=resume)
    except KeyboardInterrupt:
        # a run that was being added to would go on with more than what was added
        added = ["--methods", *settings.methods, "--seeds", *map(str, settings.seeds)] if resume else []
        raise Interrupted(
            f"Every finished epoch is kept; go on with: "
            f"{' '.join(['ringfence compare', task, '--out', quote(str(folder)), '--resume', *added])}"
        ) from None
    if not world_of_environment().first:
        raise SystemExit(0)  # rank 0 makes the report
    return written_report(folder)
