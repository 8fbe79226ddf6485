"""A network's answer about images at their own size: probabilities, and the likeliest class of each voxel."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
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
from ringfence.weak.inference.lanes import Begun, Lanes
from ringfence.weak.inference.quality import Quality, QualityTally, doubt_of
from ringfence.weak.networks.build import Tempered
from ringfence.weak.networks.likeliest import likeliest
from ringfence.weak.networks.neighbouring_slices import neighbours_averaged
from ringfence.weak.prepared.preprocessing import framed
from ringfence.weak.tasks.samples import padded
from ringfence.weak.training.settings import flip_axes
from ringfence.weak.training.views import View, answer_to, mean_of, views_of

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
        flips: average over the views, flipped and turned, that the model was judged with.
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
        self.card, self.flips = card, flips
        self._views = views_of(flip_axes(card.flips), card.turns) if flips else views_of(())
        levels = torch.tensor([0.0, *card.levels], device=self.device) if card.levels else None
        self.wanted = batch
        self.batch = batch or (SLICES if card.patch is None else PATCHES)
        if self.device.type == "cpu":
            cores = torch.get_num_threads()
            shape = (len(card.channels), *(card.preprocessing.size if card.patch is None else card.patch))
            lanes = affordable(network, shape, min(batch or cores, cores))  # a GPU has a memory of its own
            # answers to all views wait for each other: as many as if there were two of each image
            self.batch = batch or max(2 * self.batch // max(2, len(self._views)), lanes)
            self._lanes: Lanes | None = Lanes(network, lanes, levels)
            self._probabilities: Callable[..., Tensor] = partial(self._lanes, views=self._views)
        else:
            network, self._lanes = network.to(self.device).eval(), None
            self._probabilities = partial(_averaged, network, views=self._views, levels=levels)

    @torch.inference_mode()
    def __call__(
        self,
        image: NDArray[np.uint8],
        size: tuple[int, int],
        seen: Callable[[Sequence[Tensor]], None] = lambda answers: None,
        inside: tuple[slice, slice] | None = None,
    ) -> Iterator[Tensor]:
        """Probabilities ``[some slices, 1 + K, *size]`` in the slices' order.

        Args:
            image: ``[slices, channels, height, width]`` at the model's size.
            size: height and width wanted.
            seen: is shown the answers to all views of slices or patches, before they are averaged; on a
                CPU in another thread, always the same, and before their mean is handed out.
            inside: rows and columns of the image that are wanted; default: all.
        """
        one_by_one = self._slices(image, seen) if self.card.patch is None else self._volume(image, seen)
        if self.card.neighbours > 0.0:
            one_by_one = neighbours_averaged(one_by_one, self.card.neighbours)
        for answer in one_by_one:
            if not bool(answer.isfinite().all()):
                raise ValueError("the network's answer is not finite: are the model's weights?")
            if inside is not None:
                rows, columns = inside
                answer = answer[..., rows, columns]
            if answer.shape[-2:] != tuple(size):
                answer = F.interpolate(answer, size, mode="bilinear", antialias=True)
            yield answer

    def _slices(self, image: NDArray[np.uint8], seen: Callable[[Sequence[Tensor]], None]) -> Iterator[Tensor]:
        batches = (
            torch.from_numpy(image[first : first + self.batch]).to(self.device).float() / 255.0
            for first in range(0, len(image), self.batch)
        )
        if self._lanes is None:
            for some in batches:
                yield self._answer(some, seen)
            return
        with ExitStack() as stack:  # the next are begun before the last are handed out: cores never wait
            begun: deque[tuple[torch.Size, Begun]] = deque()
            for some in batches:
                begun.append((some.shape, stack.enter_context(self._lanes.begin(some, self._views, seen))))
                if len(begun) > 1:
                    shape, one = begun.popleft()
                    yield self._checked(shape, one.answer)
            for shape, one in begun:
                yield self._checked(shape, one.answer)

    def _volume(self, image: NDArray[np.uint8], seen: Callable[[Sequence[Tensor]], None]) -> Iterator[Tensor]:
        from monai.inferers.utils import sliding_window_inference

        patch = self.card.patch
        assert patch is not None  # noqa: S101 - it is a model of volumes
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
            partial(self._answer, seen=seen),
            overlap=OVERLAP,
            mode="gaussian",
            sw_device=self.device,
            device=torch.device("cpu"),  # a whole volume's probabilities may be more than a GPU holds
        )
        assert isinstance(whole, Tensor)  # noqa: S101 - as _answer's is
        whole = whole[0, :, : space[0], : space[1], : space[2]]
        for some in whole.transpose(0, 1).split(SLICES):
            yield some.to(self.device)

    def _answer(self, images: Tensor, seen: Callable[[Sequence[Tensor]], None]) -> Tensor:
        return self._checked(images.shape, partial(self._probabilities, images, seen=seen))

    def _checked(self, images: torch.Size, answered: Callable[[], Tensor]) -> Tensor:
        """What ``answered`` says of images of such a shape, or what is wrong with it."""
        shape = list(images[1:])
        try:
            answer = answered()
        except Exception as error:  # whatever the network raises, it does not take such images
            raise ValueError(f"the network cannot take images {shape}: {first_line(error)}") from error
        wanted = (images[0], 1 + len(self.card.classes), *images[2:])
        if answer.shape != wanted:
            raise ValueError(
                f"the network should answer images {shape} by {list(wanted)}, not {list(answer.shape)}"
            )
        return answer


def _averaged(
    network: Callable[[Tensor], Tensor],
    images: Tensor,
    views: Sequence[View],
    seen: Callable[[Sequence[Tensor]], None],
    levels: Tensor | None,
) -> Tensor:
    """``view_averaged``, and what it is the mean of is shown."""
    answers = [answer_to(view, network, images) for view in views]
    seen(answers)
    return mean_of(answers, levels)


@dataclass(frozen=True)
class Segmented:
    """A network's answer about a case.

    Attributes:
        mask: the likeliest class of each voxel, ``[z, y, x]``.
        quality: what the answer says about itself.
        probabilities: of the foreground classes, ``[K, z, y, x]``, if they were wanted.
        doubts: of each voxel, from 0 (sure) to 255 (a coin toss), if they were wanted.
    """

    mask: NDArray[np.uint8]
    quality: Quality
    probabilities: NDArray[np.float32] | None = None
    doubts: NDArray[np.uint8] | None = None


def segment(
    predictor: Predictor,
    grey: NDArray[np.uint8],
    spacing: Sequence[float] | None = None,
    *,
    probabilities: bool = False,
    doubts: bool = False,
) -> Segmented:
    """The likeliest class of each voxel, and what is wanted besides.

    Args:
        predictor: of the model.
        grey: normalised images ``[slices, channels, height, width]``, at their own size.
        spacing: millimetres between rows and between columns, where known: a model of one spacing needs them.
        probabilities: whether they are wanted.
        doubts: whether they are wanted.
    """
    depth, channels, height, width = grey.shape
    frame, classes = (
        predictor.card.preprocessing.frame((height, width), spacing, grow=True),
        len(predictor.card.classes),
    )
    size = frame.canvas
    # images as floats before and after, and as bytes
    needed = depth * channels * (FLOAT * height * width + (FLOAT + 1) * size[0] * size[1])
    memory.check(needed, f"resizing {depth} slices to the model's {size[0]} × {size[1]}")
    mask = np.zeros((depth, height, width), dtype=np.uint8)
    shares = np.zeros((classes, depth, height, width), dtype=np.float32) if probabilities else None
    unsure = np.zeros_like(mask) if doubts else None
    tally, done = QualityTally(classes), 0
    for answer in predictor(framed(grey, frame), (height, width), tally.compare, frame.inside):
        here, labels = slice(done, done + len(answer)), likeliest(answer)
        mask[here] = labels.to(torch.uint8).cpu().numpy()
        tally.add(answer, labels)
        if shares is not None:
            shares[:, here] = answer[:, 1:].transpose(0, 1).cpu().numpy()
        if unsure is not None:
            unsure[here] = (255.0 * doubt_of(answer)).round_().to(torch.uint8).cpu().numpy()
        done = here.stop
    return Segmented(mask, tally.quality(), shares, unsure)
