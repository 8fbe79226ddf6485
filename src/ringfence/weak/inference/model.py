"""A trained model in memory: an array in, a mask and probabilities out, without files."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence.weak.inference.card import ModelCard
from ringfence.weak.inference.model_file import model_at, read_model
from ringfence.weak.inference.predictor import Predictor, segment
from ringfence.weak.inference.quality import Quality
from ringfence.weak.prepared.preprocessing import normalised
from ringfence.weak.volumes import largest_parts


@dataclass(frozen=True, repr=False)
class Segmentation:
    """What a model finds in an image.

    Attributes:
        mask: uint8, shaped as the image without its channels: the classes' labels, 0 for background.
        probabilities: float32 ``[classes, *mask.shape]``, of the foreground classes.
        classes: their names.
        labels: their values in the mask.
        spacing: millimetres between voxels, if they were given.
        quality: how sure the model is of each class, and whether flips and turns change its mind.
    """

    mask: NDArray[np.uint8]
    probabilities: NDArray[np.float32]
    classes: tuple[str, ...]
    labels: tuple[int, ...]
    spacing: tuple[float, ...] | None = None
    quality: Quality | None = None

    @property
    def voxels(self) -> dict[str, int]:
        """How many voxels each class has."""
        return {
            name: int((self.mask == label).sum()) for name, label in zip(self.classes, self.labels, strict=True)
        }

    @property
    def millilitres(self) -> dict[str, float] | None:
        """The volume of each class, if the spacing of a volume is known."""
        if self.spacing is None or len(self.spacing) != 3:
            return None
        return {name: count * math.prod(self.spacing) / 1000.0 for name, count in self.voxels.items()}

    def __repr__(self) -> str:
        volumes = self.millilitres or {}
        found = [
            f"{name} {count:,} voxels" + (f" ({volumes[name]:.1f} ml)" if volumes else "")
            for name, count in self.voxels.items()
        ]
        return f"Segmentation {list(self.mask.shape)}: {', '.join(found)}"

    def _repr_html_(self) -> str:
        volumes = self.millilitres or {}
        lines = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{count:,}</td>"
            f"<td>{f'{volumes[name]:.1f}' if volumes else '–'}</td></tr>"
            for name, count in self.voxels.items()
        )
        return f"<table><tr><th>class</th><th>voxels</th><th>ml</th></tr>{lines}</table>"


class Model:
    """A trained model: ``model.predict(image, spacing)`` is a ``Segmentation``.

    Args:
        predictor: the network and its card, on a device.
        path: where it came from.
        trust: the class path of the network, if it is not a known one.
    """

    def __init__(self, predictor: Predictor, path: Path, trust: str | None = None) -> None:
        self.predictor, self.path, self.trust = predictor, path, trust

    @property
    def card(self) -> ModelCard:
        """What it is, and expects."""
        return self.predictor.card

    def predict(
        self, image: NDArray[Any], spacing: Sequence[float] | None = None, *, largest: bool = False
    ) -> Segmentation:
        """Segment an image, as `ringfence predict` does a file.

        Args:
            image: any real numbers: a volume ``[slices, height, width]`` or a slice ``[height, width]``; several
                channels come first. Of any size: the model resizes it, and its answer back.
            spacing: millimetres between voxels along the same axes; for volumes in millilitres, and needed by a
                model that was trained at a common spacing.
            largest: keep the largest connected part of each class alone.
        """
        array = np.asarray(image)
        if array.dtype.kind in "US" or array.dtype == object:
            raise TypeError(
                f"image is an array of numbers; for a file such as {image} there is ringfence.weak.predict"
            )
        grey, single = self._grey(array)
        steps = None if spacing is None else _checked_spacing(spacing, 2 if single else 3)
        if steps is None and (pixel := self.card.preprocessing.spacing) is not None:
            raise ValueError(f"this model was trained on pixels of {pixel:g} mm: give the image's spacing, too")
        found = segment(self.predictor, grey, steps and steps[-2:], probabilities=True)
        probabilities = found.probabilities
        assert probabilities is not None  # noqa: S101 - they are wanted
        mask = largest_parts(found.mask) if largest else found.mask
        labelled = np.array([0, *self.card.labels], dtype=np.uint8)[mask]
        if single:
            labelled, probabilities = labelled[0], probabilities[:, 0]
        return Segmentation(labelled, probabilities, self.card.classes, self.card.labels, steps, found.quality)

    def _grey(self, image: NDArray[Any]) -> tuple[NDArray[np.uint8], bool]:
        """In 0..255 ``[slices, channels, height, width]``; and whether it was a single slice."""
        channels = len(self.card.channels)
        several = image.ndim == 4 or (image.ndim == 3 and channels > 1 and len(image) == channels)
        if image.ndim not in (2, 3, 4) or (len(image) if several else 1) != channels or not image.size:
            names = f"{channels} channel{'s' * (channels > 1)} ({', '.join(self.card.channels)})"
            first = f"{channels}, " * (channels > 1)
            shapes = f"[{first}slices, height, width] or [{first}height, width]"
            last = channels > 1 and image.ndim in (3, 4) and image.shape[-1] == channels
            hint = "; channels seem to be last: np.moveaxis(image, -1, 0)" if last else ""
            raise ValueError(f"image is {list(image.shape)}; this model takes {names}: {shapes}{hint}")
        if image.dtype.kind not in "iufb":
            raise ValueError(f"image must be finite real numbers, got {image.dtype}")
        if not bool(np.isfinite(image).all()):
            raise ValueError(f"image must be finite real numbers, got {image.dtype} with NaN or infinities")
        image = image.astype(np.uint8) if image.dtype == bool else image
        maps = image if several else image[None]
        single = maps.ndim == 3
        maps = maps[:, None] if single else maps
        percentiles = self.card.preprocessing.percentiles
        return np.stack([normalised(one, percentiles) for one in maps], axis=1), single

    def __repr__(self) -> str:
        card = self.card
        kind = "slices" if card.patch is None else f"volumes, in patches of {' × '.join(map(str, card.patch))}"
        size = " × ".join(map(str, card.preprocessing.size))
        if card.preprocessing.spacing is not None:
            size += f", pixels of {card.preprocessing.spacing:g} mm"
        return (
            f"Model {self.path}: {card.class_path.rpartition('.')[2]} of {kind} at {size}, "
            f"{', '.join(card.channels)} -> {', '.join(card.classes)}, trained by {card.method or '?'}"
        )


def load_model(
    path: str | Path,
    *,
    device: str = "auto",
    flips: bool = True,
    batch: int | None = None,
    trust: str | None = None,
) -> Model:
    """A model of `ringfence train`, ready to predict.

    Args:
        path: its file, ``model.safetensors``, or the folder of its training.
        device: auto, cpu or cuda; auto takes a GPU if there is one.
        flips: average over the flips and turns that the model was judged with.
        batch: how many slices or patches the network gets at once; default: 16 or 2.
        trust: the class path of a network that may be imported although it is not a known one: naming it runs its
            code.
    """
    file = model_at(path)
    network, card = read_model(file, trust)
    return Model(Predictor(network, card, device=device, flips=flips, batch=batch), file, trust)


def _checked_spacing(spacing: Sequence[float], axes: int) -> tuple[float, ...]:
    steps = tuple(float(step) for step in spacing)
    if len(steps) != axes or not all(math.isfinite(step) and step > 0 for step in steps):
        raise ValueError(f"spacing must be {axes} lengths above 0, one for each axis; got {list(spacing)}")
    return steps
