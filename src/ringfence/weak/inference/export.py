"""Masks of new images as files, in the place, size and format that the images came in."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence.files import WriteFailed, checksum, move_all
from ringfence.folders import UNFINISHED as PART
from ringfence.weak.inference.allocator import keep_memory
from ringfence.weak.inference.image_cases import ImageCase, channels_fault, check_channels, find_cases
from ringfence.weak.inference.lanes import leave_cores
from ringfence.weak.inference.model import Model, load_model
from ringfence.weak.inference.model_file import ModelCard
from ringfence.weak.inference.output import UNFINISHED, Failure, Output, Prediction, Predictions
from ringfence.weak.inference.overlays import overlay_sheet
from ringfence.weak.inference.predictor import Predictor, Segmented, segment
from ringfence.weak.prepared.preprocessing import normalised
from ringfence.weak.ranks.cases import Crew
from ringfence.weak.volumes import (
    NIFTI,
    OVERLAY,
    Volume,
    is_png,
    largest_parts,
    read_channels,
    upright,
    write_volume,
)

__all__ = ["Failure", "Output", "Prediction", "Predictions", "predict", "predict_cases"]


def predict_cases(
    cases: Iterable[ImageCase], predictor: Predictor, out: Output, readers: int = 1
) -> Iterator[Prediction | Failure]:
    """Predict case after case into ``out``; one that cannot be read is passed over, with its reason.

    Each case's files appear together when all of them are written. While the network works, the next cases are
    read, and the last ones written.

    Args:
        cases: to predict.
        predictor: of the model.
        out: where masks go.
        readers: threads that read, and as many that write.
    """
    writers = 1 if out.overlays else readers  # matplotlib is not made for several
    left, stop = iter(cases), None
    read: deque[tuple[ImageCase, Future[tuple[Volume, NDArray[np.uint8]]]]] = deque()
    written: deque[Future[Prediction | Failure]] = deque()
    with _threads(readers) as reading, _threads(writers) as writing:
        while True:
            while len(read) <= readers and (case := next(left, None)) is not None:
                read.append((case, reading.submit(_read, case, predictor.card)))
            if not read:
                break
            case, reader = read.popleft()
            try:
                volume, grey = reader.result()
                steps = volume.spacing[1:] if volume.spacing_known else None
                found = segment(predictor, grey, steps, probabilities=out.probabilities, doubts=out.overlays)
            except (ValueError, OSError) as error:
                written.append(writing.submit(Failure, case.name, str(error)))
            except BaseException as error:  # Ctrl-C: what is ready is written before
                stop = error
                break
            else:
                written.append(writing.submit(_write, case, predictor.card, volume, grey[:, 0], found, out))
                del volume, grey, found, reader  # they need not be kept until the next have come
            while written and (written[0].done() or len(written) > writers):
                yield written.popleft().result()
        while written:
            yield written.popleft().result()
        if stop is not None:
            raise stop


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that end what they are at when the work stops, and begin nothing more."""
    threads = ThreadPoolExecutor(count)
    try:
        yield threads
    finally:
        threads.shutdown(cancel_futures=True)


def _read(case: ImageCase, card: ModelCard) -> tuple[Volume, NDArray[np.uint8]]:
    """The first channel's volume, and all channels in 0..255 ``[slices, channels, height, width]``."""
    fault = channels_fault(case, card)
    if fault:
        raise ValueError(fault)
    volumes = read_channels(case.files)
    if len(volumes) != len(card.channels):
        raise ValueError(f"the model takes {len(card.channels)} channels, and {case.name} has {len(volumes)}")
    first = volumes[0]
    if not first.voxels.size:
        raise ValueError(f"{first.path} has no voxels")
    return first, np.stack(
        [normalised(volume.voxels, card.preprocessing.percentiles) for volume in volumes], axis=1
    )


def _write(
    case: ImageCase,
    card: ModelCard,
    volume: Volume,
    grey: NDArray[np.uint8],
    found: Segmented,
    out: Output,
) -> Prediction | Failure:
    """Write a case's files beside, then move them: a mask's header last, since it names its data."""
    mask = largest_parts(found.mask) if out.largest else found.mask
    final = out.mask_of(case)
    # a PNG holds no fractions, and its picture may not be called as its mask
    shares = NIFTI[-1] if is_png(final) else final.name[len(case.name) :]
    picture = f"{case.name}{OVERLAY if is_png(final) else ''}.png"
    counts = np.bincount(mask.ravel(), minlength=1 + len(card.classes))[1:]
    voxels = {name: int(count) for name, count in zip(card.classes, counts, strict=True)}
    spacing = volume.spacing if volume.spacing_known else None
    made = Prediction(case.name, final, voxels, spacing, found.quality)
    try:
        with TemporaryDirectory(prefix=PART, dir=out.folder) as beside:
            part = Path(beside)
            write_volume(part / final.name, np.array([0, *card.labels], dtype=np.uint8)[mask], volume)
            if found.probabilities is not None:
                for name, share in zip(_file_names(card.classes), found.probabilities, strict=True):
                    write_volume(part / f"{case.name}_{name}_probability{shares}", share, volume)
            out.tell(part, made)
            if out.overlays:
                _draw(part / picture, made, volume, grey, mask, found.doubts)
            move_all(
                sorted(part.iterdir(), key=lambda one: (one.name == final.name, one.suffix == ".mhd")), out.folder
            )
    except WriteFailed as error:
        raise OSError(str(error).replace(f"{PART}{beside.rpartition(PART)[2]}{os.sep}", "")) from error
    except OSError as error:
        raise WriteFailed(final, error) from error
    except ValueError as error:  # what the format cannot hold; a disk that is full is no case's fault
        return Failure(case.name, str(error))
    return made


def _draw(
    path: Path,
    made: Prediction,
    volume: Volume,
    grey: NDArray[np.uint8],
    mask: NDArray[np.uint8],
    doubts: NDArray[np.uint8] | None,
) -> None:
    flip = upright(volume)
    overlay_sheet(
        path,
        np.flip(grey, flip),
        np.flip(mask, flip),
        list(made.voxels),
        title=f"{made.name}: {len(mask)} slice{'s' * (len(mask) != 1)}",
        aspect=volume.spacing[1] / volume.spacing[2],
        doubts=None if doubts is None else np.flip(doubts, flip),
    )


def _file_names(classes: Iterable[str]) -> list[str]:
    """Classes as parts of file names, all different."""
    names = [re.sub(r"[^\w.-]+", "-", name) for name in classes]
    return names if len(set(names)) == len(names) else [f"{name}-{k}" for k, name in enumerate(names, start=1)]


def predict(
    model: Model | str | Path,
    images: str | Path,
    out: str | Path,
    *,
    probabilities: bool = False,
    overlays: bool = False,
    largest: bool = False,
    each: Callable[[Prediction | Failure, int], None] = lambda result, total: None,
    crew: Crew | None = None,
) -> Predictions:
    """Segment files: a volume, or every volume of a folder, into ``out``.

    A folder where the same was begun is gone on with; one that holds anything else is refused. A case that cannot
    be read is passed over, with its reason.

    Args:
        model: of ``load_model``, or its file.
        images: a volume (.nii.gz, .nii, .mhd, .mha, .png), or a folder of them.
        out: a new or empty folder for the masks, or one where this was begun.
        probabilities: write those of each class, too.
        overlays: draw a picture of each case, too.
        largest: keep the largest connected part of each class alone.
        each: called after every case, with its result and the number of cases there were to do.
        crew: ``Crew(workers=4)``: processes that do the cases; beside a GPU, threads that read and write. Each
            process reads the model's file. Masks are the same.
    """
    model = model if isinstance(model, Model) else load_model(model)
    cases = find_cases(Path(images), len(model.card.channels))
    check_channels(cases, model.card)
    output = Output(Path(out), probabilities, overlays, largest)
    options = {
        "probabilities": probabilities,
        "overlays": overlays,
        "largest": largest,
        "flips": model.predictor.flips,
    }
    asked = {
        "CHECKPOINT": checksum(model.path),
        "IMAGES": os.path.realpath(images),
        "options": " ".join(name for name, wanted in options.items() if wanted),
    }
    crew = crew or Crew()
    crew.check_same(cases=[case.name for case in cases], **asked | {"IMAGES": Path(images).name})
    made: list[Prediction] = []
    failed: list[Failure] = []
    with output.opened(asked) if crew.world.first else nullcontext():
        crew.check_sees(output.folder / UNFINISHED)
        left = crew.from_first(output.missing(cases))
        with closing(_results(model, output, left, crew)) as results:
            for result in results:
                if isinstance(result, Failure):
                    failed.append(result)
                else:
                    made.append(result)
                each(result, len(left))
        if crew.world.first:
            output.close(finished=not failed)
    return Predictions(output.folder, tuple(made), tuple(failed), len(cases) - len(left))


def _results(
    model: Model, out: Output, cases: list[ImageCase], crew: Crew
) -> Generator[Prediction | Failure, None, None]:
    predictor = model.predictor
    if crew.workers == 1 or predictor.device.type != "cpu":  # a GPU has one network, and several readers
        return Crew(world=crew.world).results(_by_predictor, (predictor, out, crew.workers), cases)
    options = {"device": "cpu", "flips": predictor.flips, "batch": predictor.wanted, "trust": model.trust}
    return crew.results(_by_file, (model.path, options, out), cases)


Work = Callable[[Iterable[ImageCase]], Iterator[Prediction | Failure]]


def _by_predictor(predictor: Predictor, out: Output, readers: int) -> Work:
    return partial(predict_cases, predictor=predictor, out=out, readers=readers)


def _by_file(path: Path, options: dict[str, Any], out: Output) -> Work:
    """In a process of its own."""
    keep_memory()
    predictor = load_model(path, **options).predictor
    leave_cores()
    return _by_predictor(predictor, out, 1)
