"""A network's answer about images at their own size: probabilities, and the likeliest class of each voxel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ringfence import memory
from ringfence.hints import first_line
from ringfence.weak.inference.card import ModelCard
from ringfence.weak.inference.footprint import FLOAT, affordable
from ringfence.weak.inference.lanes import Lanes
from ringfence.weak.networks.build import Tempered
from ringfence.weak.prepared.preprocessing import resized
from ringfence.weak.tasks.samples import padded
from ringfence.weak.training.flip_averaging import flip_averaged
from ringfence.weak.training.settings import flip_axes

SLICES, PATCHES = 16, 2
"""That the network gets at once by default."""
OVERLAP: Final = 0.5
"""Of neighbouring patches, as a fraction of their size."""


class Predictor:
    """softmax(network(x)) at the images' own size.

    Args:
        network: of a model file.
        card: of the same.
        device: auto takes a GPU if there is one.
        flips: average over the flips that the model was judged with.
        batch: how many slices or patches the network gets at once; a CPU's cores take them one by one.
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
        self.card, self.flips, self._axes = card, flips, flip_axes(card.flips if flips else ())
        self.wanted = batch
        self.batch = batch or (SLICES if card.patch is None else PATCHES)
        if self.device.type == "cpu":
            cores = torch.get_num_threads()
            shape = (len(card.channels), *(card.preprocessing.size if card.patch is None else card.patch))
            lanes = affordable(network, shape, min(batch or cores, cores))  # a GPU has a memory of its own
            self.batch = batch or max(self.batch, lanes)
            self._probabilities: Callable[[Tensor], Tensor] = partial(Lanes(network, lanes), axes=self._axes)
        else:
            network = network.to(self.device).eval()
            self._probabilities = partial(flip_averaged, network, axes=self._axes)

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

        space = (len(image), *image.shape[2:])
        whole_space = [max(length, least) for length, least in zip(space, patch, strict=True)]
        maps = len(self.card.channels) + 2 + 2 * (1 + len(self.card.classes))  # images, weights, sums and means
        memory.check(
            FLOAT * math.prod(whole_space) * maps, f"predicting {' × '.join(map(str, whole_space))} voxels"
        )
        volume = torch.from_numpy(image).transpose(0, 1).unsqueeze(0).float() / 255.0
        whole = sliding_window_inference(
            # MONAI would put half of what is missing before the volume; training put all of it after the end
            padded(volume, whole_space),
            patch,
            self.batch,
            self._answer,
            overlap=OVERLAP,
            mode="gaussian",
            sw_device=self.device,
            device=torch.device("cpu"),  # a whole volume's probabilities may be more than a GPU holds
        )
        assert isinstance(whole, Tensor)  # noqa: S101 - as _answer's is
        whole = whole[0, :, : space[0], : space[1], : space[2]]
        for some in whole.transpose(0, 1).split(SLICES):
            yield some.to(self.device)

    def _answer(self, images: Tensor) -> Tensor:
        shape = list(images.shape[1:])
        try:
            answer = self._probabilities(images)
        except Exception as error:  # whatever the network raises, it does not take such images
            raise ValueError(f"the network cannot take images {shape}: {first_line(error)}") from error
        wanted = (len(images), 1 + len(self.card.classes), *images.shape[2:])
        if answer.shape != wanted:
            raise ValueError(
                f"the network should answer images {shape} by {list(wanted)}, not {list(answer.shape)}"
            )
        return answer


def segment(
    predictor: Predictor, grey: NDArray[np.uint8], *, keep: bool
) -> tuple[NDArray[np.uint8], NDArray[np.float32] | None]:
    """The likeliest class of each voxel and, if kept, probabilities of the foreground classes ``[K, z, y, x]``.

    Args:
        predictor: of the model.
        grey: normalised images ``[slices, channels, height, width]``, at their own size.
        keep: whether probabilities are wanted.
    """
    depth, channels, height, width = grey.shape
    size = predictor.card.preprocessing.size
    # images as floats before and after, and as bytes
    needed = depth * channels * (FLOAT * height * width + (FLOAT + 1) * size[0] * size[1])
    memory.check(needed, f"resizing {depth} slices to the model's {size[0]} × {size[1]}")
    mask = np.zeros((depth, height, width), dtype=np.uint8)
    shares = None
    if keep:
        shares = np.zeros((len(predictor.card.classes), depth, height, width), dtype=np.float32)
    done = 0
    for answer in predictor(resized(grey, size), (height, width)):
        here = slice(done, done + len(answer))
        mask[here] = answer.argmax(dim=1).to(torch.uint8).cpu().numpy()
        if shares is not None:
            shares[:, here] = answer[:, 1:].transpose(0, 1).cpu().numpy()
        done = here.stop
    return mask, shares
