"""Masks of new images from a trained model, in the place, size and format that the images came in."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ringfence.files import write_text
from ringfence.weak.inference.image_cases import ImageCase, channels_fault
from ringfence.weak.inference.model_file import ModelCard
from ringfence.weak.inference.overlays import overlay_sheet
from ringfence.weak.prepared.prepared_set import normalised, resized
from ringfence.weak.training.augmentation import padded
from ringfence.weak.training.flips import mean_answer, mirror_axes
from ringfence.weak.training.networks import Tempered
from ringfence.weak.volumes.orientation import upright
from ringfence.weak.volumes.parts import largest_parts
from ringfence.weak.volumes.volume import Volume, read_channels, volume_name, write_volume

SLICES, PATCHES = 16, 2
"""That the network gets at once unless told otherwise."""
UNFINISHED, PART = "unfinished.json", ".unfinished-"
"""Says what a folder of masks will hold; a case's files while they are written."""
OVERLAP: Final = 0.5
"""Of neighbouring patches, as a share of their size."""


@dataclass(frozen=True)
class Prediction:
    """What was written for a case.

    Attributes:
        name: the case's.
        file: its mask.
        voxels: of each class, by name.
        spacing: millimetres along z, y, x; None if the header does not know.
    """

    name: str
    file: Path
    voxels: dict[str, int]
    spacing: tuple[float, float, float] | None


@dataclass(frozen=True)
class Failure:
    """A case that has no mask, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Output:
    """Where predictions go, what is written besides masks, and whether only each class's largest part is kept."""

    folder: Path
    probabilities: bool = False
    overlays: bool = False
    largest: bool = False

    def open(self, asked: Mapping[str, str] | None = None) -> None:
        """Make the folder; one that already holds something is refused, and nothing is changed.

        Args:
            asked: what masks are made from, and how. A folder where the same was begun is gone on with then; until
                ``close``, a file in it says so.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise FileExistsError(f"{self.folder} is a file; masks need a folder. Nothing was changed")
        if self.folder.is_dir() and any(self._content()):
            self._check_begun(asked)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(f"{self.folder} cannot be made ({error.strerror}): choose another folder") from None
        if not os.access(self.folder, os.W_OK):
            raise PermissionError(f"{self.folder} cannot be written to: choose another folder")
        for part in self.folder.glob(f"{PART}*"):  # of a process that was killed
            shutil.rmtree(part, ignore_errors=True)
        if asked is not None:
            write_text(self.folder / UNFINISHED, json.dumps(dict(asked), indent=1) + "\n")

    def close(self) -> None:
        """Everything that was asked for is there."""
        (self.folder / UNFINISHED).unlink(missing_ok=True)

    def missing(self, cases: Iterable[ImageCase]) -> list[ImageCase]:
        """The cases whose masks are not there yet."""
        return [case for case in cases if not self.mask_of(case).exists()]

    def mask_of(self, case: ImageCase) -> Path:
        """Where a case's mask is once all its files are there: it comes last."""
        first = case.files[0]
        return self.folder / f"{case.name}{first.name[len(volume_name(first) or '') :].lower()}"

    def _content(self) -> Iterator[Path]:
        """What the folder holds, but for what is left where nothing was finished."""
        return (
            file for file in self.folder.iterdir() if file.name != UNFINISHED and not file.name.startswith(PART)
        )

    def _check_begun(self, asked: Mapping[str, str] | None) -> None:
        try:
            begun = json.loads((self.folder / UNFINISHED).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            begun = None
        if asked is None or not isinstance(begun, dict):
            raise FileExistsError(f"{self.folder} already holds files: name a new folder. Nothing was changed")
        other = [name for name, value in asked.items() if begun.get(name) != value]
        if other:
            raise FileExistsError(
                f"{self.folder} holds masks of a command that was not finished, with other {', '.join(other)}: "
                "repeat that one, or name a new folder. Nothing was changed"
            )


class Predictor:
    """softmax(network(x)) at the images' own size.

    Args:
        network: of a model file.
        card: of the same.
        device: auto takes a GPU if there is one.
        flips: average over the image and its mirror images, those that the model was judged with.
        batch: how many slices or patches the network gets at once.
    """

    def __init__(
        self,
        network: Tempered,
        card: ModelCard,
        *,
        device: str = "auto",
        flips: bool = True,
        batch: int | None = None,
    ) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise ValueError("--device cuda: torch sees no GPU; use auto or cpu")
        if batch is not None and batch < 1:
            raise ValueError(f"--batch: {batch} must be at least 1")
        found = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(found if device == "auto" else device)
        self.card, self._mirrors = card, mirror_axes(card.mirrors if flips else ())
        self.batch = batch or (SLICES if card.patch is None else PATCHES)
        self._network = network.to(self.device).eval()

    @torch.inference_mode()
    def __call__(self, image: NDArray[np.uint8], size: tuple[int, int]) -> Iterator[Tensor]:
        """Probabilities ``[some slices, 1 + K, *size]`` in the slices' order.

        Args:
            image: ``[slices, channels, height, width]`` at the model's size.
            size: height and width wanted.
        """
        for answer in self._slices(image) if self.card.patch is None else self._volume(image, self.card.patch):
            if not bool(answer.isfinite().all()):
                raise ValueError("the network's answer is not finite: are the model's weights?")
            if answer.shape[-2:] != tuple(size):
                answer = F.interpolate(answer, size, mode="bilinear", antialias=True)
            yield answer

    def _slices(self, image: NDArray[np.uint8]) -> Iterator[Tensor]:
        for first in range(0, len(image), self.batch):
            some = torch.from_numpy(image[first : first + self.batch]).to(self.device)
            yield self._answer(some.float() / 255.0)

    def _volume(self, image: NDArray[np.uint8], patch: tuple[int, int, int]) -> Iterator[Tensor]:
        from monai.inferers.utils import sliding_window_inference

        volume = torch.from_numpy(image).transpose(0, 1).unsqueeze(0).float() / 255.0
        space = volume.shape[2:]
        whole = sliding_window_inference(
            # MONAI would put half of what is missing before the volume; training put all of it after the end
            padded(volume, [max(length, least) for length, least in zip(space, patch, strict=True)]),
            patch,
            self.batch,
            self._answer,
            overlap=OVERLAP,
            mode="gaussian",
            sw_device=self.device,
            device=torch.device("cpu"),  # a whole volume's probabilities may be more than a GPU holds
        )
        if not isinstance(whole, Tensor):
            raise TypeError(f"the network should answer with a tensor, not {type(whole).__name__}")
        whole = whole[0, :, : space[0], : space[1], : space[2]]
        for some in whole.transpose(0, 1).split(SLICES):
            yield some.to(self.device)

    def _answer(self, images: Tensor) -> Tensor:
        return mean_answer(self._network, images, self._mirrors)


def predict_cases(cases: Iterable[ImageCase], predictor: Predictor, out: Output) -> Iterator[Prediction | Failure]:
    """Predict case after case into ``out``; one that cannot be read is passed over, with its reason.

    Each case's files appear together when all of them are written.
    """
    for case in cases:
        try:
            volume, grey = _read(case, predictor.card)
            mask, shares = _segment(predictor, grey, volume, keep=out.probabilities)
        except (ValueError, OSError) as error:
            yield Failure(case.name, str(error))
            continue
        mask = largest_parts(mask) if out.largest else mask
        yield _write(case, predictor.card, volume, grey[:, 0], mask, shares, out)


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
    return first, np.stack([normalised(volume.voxels) for volume in volumes], axis=1)


def _segment(
    predictor: Predictor, grey: NDArray[np.uint8], volume: Volume, *, keep: bool
) -> tuple[NDArray[np.uint8], NDArray[np.float32] | None]:
    """The likeliest class of each voxel and, if kept, probabilities of the foreground classes ``[K, z, y, x]``."""
    depth, height, width = volume.voxels.shape
    mask = np.zeros((depth, height, width), dtype=np.uint8)
    shares = None
    if keep:
        shares = np.zeros((len(predictor.card.classes), depth, height, width), dtype=np.float32)
    done = 0
    for answer in predictor(resized(grey, predictor.card.size), (height, width)):
        here = slice(done, done + len(answer))
        mask[here] = answer.argmax(dim=1).to(torch.uint8).cpu().numpy()
        if shares is not None:
            shares[:, here] = answer[:, 1:].transpose(0, 1).cpu().numpy()
        done = here.stop
    return mask, shares


def _write(
    case: ImageCase,
    card: ModelCard,
    volume: Volume,
    grey: NDArray[np.uint8],
    mask: NDArray[np.uint8],
    shares: NDArray[np.float32] | None,
    out: Output,
) -> Prediction:
    """Write a case's files beside, then move them: a mask's header last, since it names its data."""
    final = out.mask_of(case)
    ending = final.name[len(case.name) :]
    counts = np.bincount(mask.ravel(), minlength=1 + len(card.classes))[1:]
    voxels = {name: int(count) for name, count in zip(card.classes, counts, strict=True)}
    try:
        with TemporaryDirectory(prefix=PART, dir=out.folder) as beside:
            part = Path(beside)
            write_volume(part / final.name, np.array([0, *card.labels], dtype=np.uint8)[mask], volume)
            if shares is not None:
                for name, share in zip(_file_names(card.classes), shares, strict=True):
                    write_volume(part / f"{case.name}_{name}_probability{ending}", share, volume)
            if out.overlays:
                _draw(part / f"{case.name}.png", case.name, card, volume, grey, mask)
            for file in sorted(part.iterdir(), key=lambda one: (one.name == final.name, one.suffix == ".mhd")):
                os.replace(file, out.folder / file.name)
    except (OSError, RuntimeError) as error:  # SimpleITK's: the last line of it says why
        reason = str(error).strip().splitlines()[-1]
        raise OSError(f"{final} cannot be written: {reason}") from error
    return Prediction(case.name, final, voxels, volume.spacing if volume.spacing_known else None)


def _draw(
    path: Path, name: str, card: ModelCard, volume: Volume, grey: NDArray[np.uint8], mask: NDArray[np.uint8]
) -> None:
    flip = upright(volume)
    overlay_sheet(
        path,
        np.flip(grey, flip),
        np.flip(mask, flip),
        card.classes,
        title=f"{name}: {len(mask)} slices",
        aspect=volume.spacing[1] / volume.spacing[2],
    )


def _file_names(classes: Iterable[str]) -> list[str]:
    """Classes as parts of file names, all different."""
    names = [re.sub(r"[^\w.-]+", "-", name) for name in classes]
    return names if len(set(names)) == len(names) else [f"{name}-{k}" for k, name in enumerate(names, start=1)]
