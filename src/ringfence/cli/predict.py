"""`ringfence predict CHECKPOINT IMAGES OUT`: segment new images with a trained model."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.cli import Interrupted
from ringfence.extras import require

if TYPE_CHECKING:
    from ringfence.weak.inference.predictor import Failure, Prediction

DESCRIPTION = """Segment new images with a model that `ringfence train` wrote. Images may have any
in-plane size; masks have the same, with exactly their geometry, in their format."""

OPTIONS = ("probabilities", "overlays", "largest", "flips")
"""That decide what is written."""

EPILOG = """examples:
  ringfence predict runs/mine/model.pt scans/ masks/
  ringfence predict model.pt patient.nii.gz out/ --overlays --probabilities
  ringfence predict model.pt imagesTs/ masks/ --no-flips --device cuda

Several channels are files CASE_0000.nii.gz, CASE_0001.nii.gz, ... (as nnU-Net has them), or
the fourth axis of a NIfTI. Files that end in _segmentation are somebody's masks, and left alone.
An image that cannot be used is passed over and named at the end, and the exit status is 2.
After Ctrl-C, or once such an image is repaired, the same command does only what is missing."""


def run(arguments: Sequence[str]) -> str:
    """Predict; what was written, and where."""
    options = _parser().parse_args(arguments)
    for package in ("rich", "monai", *(["matplotlib"] if options.overlays else [])):
        require(package, "ringfence predict", "train")
    from rich.console import Console
    from rich.progress import track

    from ringfence.files import checksum
    from ringfence.weak.inference.image_cases import check_channels, find_cases
    from ringfence.weak.inference.model_file import load_model
    from ringfence.weak.inference.predictor import Failure, Output, Prediction, Predictor, predict_cases

    network, card = load_model(options.checkpoint, options.trust)
    predictor = Predictor(network, card, device=options.device, flips=options.flips, batch=options.batch)
    cases = find_cases(Path(options.images))
    check_channels(cases, card)
    out = Output(Path(options.out), options.probabilities, options.overlays, options.largest)
    asked = {
        "CHECKPOINT": checksum(Path(options.checkpoint)),
        "IMAGES": str(Path(options.images).resolve()),
        "options": " ".join(name for name in OPTIONS if getattr(options, name)),
    }
    out.open(asked)
    left = out.missing(cases)
    before = len(cases) - len(left)
    console = Console(stderr=True)
    results: list[Prediction | Failure] = []
    try:
        for result in track(
            predict_cases(left, predictor, out),
            f"predicting on {predictor.device.type}",
            total=len(left),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        ):
            results.append(result)
    except KeyboardInterrupt:
        done = before + sum(isinstance(result, Prediction) for result in results)
        raise Interrupted(
            f"{done} of {len(cases)} cases are finished in {out.folder}; the same command again does the others"
        ) from None
    made = [result for result in results if isinstance(result, Prediction)]
    failed = [result for result in results if isinstance(result, Failure)]
    text = _summary(made, before, len(cases), out.folder)
    if failed:
        print(text, flush=True)
        raise ValueError(
            "\n  ".join(
                [f"{len(failed)} of {len(cases)} cases failed:", *(f"{one.name}: {one.reason}" for one in failed)]
            )
        )
    out.close()
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ringfence predict",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a model.pt that `ringfence train` wrote")
    parser.add_argument(
        "images", metavar="IMAGES", help="a volume (.nii.gz, .nii, .mhd, .mha), or a folder of them"
    )
    parser.add_argument(
        "out", metavar="OUT", help="a new or empty folder for the masks, or one where this was begun"
    )
    parser.add_argument(
        "--probabilities", action="store_true", help="write CASE_CLASS_probability (float32) for each class, too"
    )
    parser.add_argument(
        "--overlays", action="store_true", help="draw CASE.png, too: slices with the mask tinted and outlined"
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
        help="do not average over mirror images, even if the model was judged so: less work, often a bit worse",
    )
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto takes a GPU if there is one"
    )
    parser.add_argument(
        "--batch",
        type=int,
        metavar="N",
        help="slices at once (default: 16), or patches of a model of volumes (default: 2); fewer need less memory",
    )
    parser.add_argument(
        "--trust",
        metavar="CLASS_PATH",
        help="import the model's network from here, if it is neither MONAI's nor torch's: that runs its code",
    )
    return parser


def _summary(made: Sequence[Prediction], before: int, cases: int, folder: Path) -> str:
    """What was found in each case, and where the masks are."""
    width = max((len(one.name) for one in made), default=0)
    lines = [f"  {one.name:<{width}}  {_found(one)}" for one in made]
    earlier = f", {before} of them before" if before else ""
    return "\n".join([*lines, f"{before + len(made)} of {cases} cases segmented in {folder}{earlier}"])


def _found(one: Prediction) -> str:
    """Voxels of each class, and millilitres where they are known."""
    parts = []
    for name, count in one.voxels.items():
        volume = f" ({count * math.prod(one.spacing) / 1000:.1f} ml)" if one.spacing else ""
        parts.append(f"{name} {count:,} voxels{volume}" if count else f"{name}: nothing found")
    return ", ".join(parts)
