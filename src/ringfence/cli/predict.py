"""`ringfence predict CHECKPOINT IMAGES OUT`: segment new images with a trained model."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringfence.cli import Interrupted
from ringfence.extras import require
from ringfence.weak.volumes.formats import ENDINGS

if TYPE_CHECKING:
    from ringfence.weak.inference.export import Failure, Prediction
    from ringfence.weak.ranks.cases import Crew

DESCRIPTION = """Segment new images with a model that `ringfence train` wrote. Images may have any
in-plane size; masks have the same, with exactly their geometry, in their format."""

EPILOG = """examples:
  ringfence predict runs/mine/model.safetensors scans/ masks/
  ringfence predict model.safetensors patient.nii.gz out/ --overlays --probabilities
  ringfence predict model.safetensors imagesTs/ masks/ --no-flips --device cuda

Several channels are files CASE_0000.nii.gz, CASE_0001.nii.gz, ... (as nnU-Net has them), or
the fourth axis of a NIfTI, or the colours of a PNG. Files that end in _segmentation are
somebody's masks, and left alone, and so are PNGs beside other volumes.
An image that cannot be used is passed over and named at the end, and the exit status is 2.
After Ctrl-C, or once such an image is repaired, the same command does only what is missing.
Under torchrun or srun each process takes its part of the cases. Masks are the same in any way.
OUT/predictions.csv has what was found, and how sure the model is: uncertainty (0 is sure, a half a coin
toss) and, where flips are averaged, how far they agree (1 is fully). docs/quality.md says what that is worth."""


def run(arguments: Sequence[str]) -> str:
    """Predict; what was written, and where."""
    options = _parser().parse_args(arguments)
    for package in ("rich", "monai", *(["matplotlib"] if options.overlays else [])):
        require(package, "ringfence predict", "train")
    from ringfence.weak.inference.allocator import keep_memory
    from ringfence.weak.ranks.cases import crew_of

    keep_memory()
    with crew_of(options.workers) as crew:
        crew.take_gpu()
        return _predicted(options, crew)


def _predicted(options: argparse.Namespace, crew: Crew) -> str:
    from rich.console import Console
    from rich.progress import Progress

    from ringfence.weak.inference.export import predict
    from ringfence.weak.inference.lanes import leave_cores
    from ringfence.weak.inference.model import load_model
    from ringfence.weak.inference.model_file import imported_from

    if options.trust and crew.world.first:
        print(f"--trust: {imported_from(options.trust)}", file=sys.stderr)
    model = load_model(
        options.checkpoint, device=options.device, flips=options.flips, batch=options.batch, trust=options.trust
    )
    if crew.workers == 1 and model.predictor.device.type == "cpu":  # several workers share the cores themselves
        leave_cores()
    console, finished = Console(stderr=True), 0
    with Progress(console=console, transient=True, disable=not (console.is_terminal and crew.world.first)) as bar:
        task = bar.add_task(f"predicting on {model.predictor.device.type}", total=None)

        def each(result: Prediction | Failure, total: int) -> None:
            nonlocal finished
            finished += 1
            bar.update(task, total=total, advance=1)

        try:
            done = predict(
                model,
                options.images,
                options.out,
                probabilities=options.probabilities,
                overlays=options.overlays,
                largest=options.largest,
                each=each,
                crew=crew,
            )
        except KeyboardInterrupt:
            raise Interrupted(
                f"What is finished in {options.out} stays ({finished} case{'s' * (finished != 1)} of this call); "
                "the same command again does the others"
            ) from None
    if done.failed:
        if crew.world.first:
            print(done.summary, flush=True)
        raise ValueError(
            "\n  ".join(
                [
                    f"{len(done.failed)} of {done.cases} cases failed:",
                    *(f"{one.name}: {one.reason}" for one in done.failed),
                ]
            )
        )
    return str(done) if crew.world.first else ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ringfence predict",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help="a model.safetensors (or older model.pt) that `ringfence train` wrote",
    )
    parser.add_argument("images", metavar="IMAGES", help=f"a volume ({', '.join(ENDINGS)}), or a folder of them")
    parser.add_argument(
        "out", metavar="OUT", help="a new or empty folder for the masks, or one where this was begun"
    )
    parser.add_argument(
        "--probabilities", action="store_true", help="write CASE_CLASS_probability (float32) for each class, too"
    )
    parser.add_argument(
        "--overlays",
        action="store_true",
        help="draw CASE.png, too: slices with the mask tinted and outlined, and where the model is unsure",
    )
    parser.add_argument(
        "--largest",
        action="store_true",
        help="keep the largest connected part of each class alone: for organs that are one piece",
    )
    parser.add_argument(
        "--no-flips",
        action="store_false",
        dest="flips",
        help="do not average over flips and turns, even if the model was judged so: less work, often a bit worse",
    )
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto takes a GPU if there is one"
    )
    parser.add_argument(
        "--batch",
        type=int,
        metavar="N",
        help="slices at once (default: 16), or patches of a model of volumes (default: 2); fewer need less memory. "
        "A CPU takes one for each core at most",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="processes that do the cases (default: 1, on all cores); beside a GPU, threads that read and write. "
        "The limit of memory is for all of them together",
    )
    parser.add_argument(
        "--trust",
        metavar="CLASS_PATH",
        help="import this network, if the model's is not one that is known to be safe: that runs its code",
    )
    return parser
