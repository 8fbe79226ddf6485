# ruff: noqa: RUF009 - option() is dataclasses.field() with a help text
"""What can be set about any training, but for its method. Each checks itself. Needs no torch: help is fast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from ringfence.hints import hint
from ringfence.numbers import fraction, not_negative, positive_number, whole_number
from ringfence.options import check_words, inside, option

FEWEST, MOST = 10, 400
"""Epochs, where their number follows from the steps."""
MOST_OF_NEIGHBOUR: Final = 1 / 3
"""Of each neighbouring slice, in what is found in a slice: as much as of itself."""
HALF_TURN: Final = 180.0
"""Degrees: more are others again."""
FLIPS: Final = {"left-right": -1, "up-down": -2, "slices": -3}
"""What images can be flipped along, as slices are stored: columns, rows, and slices of a volume."""


@dataclass(frozen=True)
class NetworkSettings:
    """The network: any torch.nn.Module from images [B, C, ...] to logits [B, 1 + classes, ...]."""

    class_path: str = option(
        "monai.networks.nets.BasicUNet", "import path of the class; your own too (my_module.MyNetwork)"
    )
    init_args: dict[str, Any] = option(
        {"features": [32, 32, 64, 128, 256, 32], "act": "relu", "norm": "batch", "upsample": "nontrainable"},
        "its arguments by name; dropped when another class_path is given without them. spatial_dims, in_channels "
        "and out_channels are filled in where the network has such arguments",
    )


@dataclass(frozen=True)
class OptimiserSettings:
    """The optimiser: any torch.optim.Optimizer."""

    class_path: str = option("torch.optim.Adam", "import path of the class; your own too")
    init_args: dict[str, Any] = option(
        {"betas": [0.9, 0.99]},
        "its arguments by name, beside lr; dropped when another class_path is given without them",
    )


@dataclass(frozen=True)
class ScheduleSettings:
    """The learning rate's schedule: any torch.optim.lr_scheduler, stepped once an epoch."""

    class_path: str | None = option(
        "torch.optim.lr_scheduler.CosineAnnealingLR", "import path of the class; null for a constant rate"
    )
    init_args: dict[str, Any] = option(
        {}, "its arguments by name; T_max, total_iters and total_steps are the number of epochs by default"
    )


@dataclass(frozen=True)
class TrainingSettings:
    """How every method trains."""

    epochs: int | None = option(50, "passes over the training images; null for as many as `steps` take")
    steps: int = option(2000, "where epochs is null: steps in all, in at least 10 and at most 400 epochs")
    batch_size: int = option(8, "images a step, of all processes together: the same training whatever runs it")
    lr: float = option(1e-3, "the initial learning rate")
    prior: float | None = option(
        None, "fraction of the image that is foreground before training; default: left to the network"
    )
    device: Literal["auto", "cpu", "cuda"] = option("auto", "where to train; auto takes a GPU if there is one")
    devices: int = option(
        1, "processes on this machine: a GPU each, or CPU cores; under torchrun or srun as many as they start"
    )
    nodes: int = option(1, "machines, on each of which torchrun or srun starts the same command")
    accumulate: int = option(
        1, "parts that a step's images come in, one after the other: less memory, the same step but for batch norms"
    )
    precision: Literal["auto", "32", "bf16", "64"] = option(
        "auto", "of the network; auto is bf16 on a GPU and 32 elsewhere; 64 to see what is rounding"
    )
    calibrate: bool = option(
        False,
        "at the end, in slices: find classes at odds of 1/2, or as boxes of training images say",
    )
    neighbours: float = option(
        0.0,
        "share of each neighbouring slice in what is found in a slice, at most 1/3; 0: each is looked at by "
        "itself. Not in volumes",
    )
    cuda_graphs: bool = option(True, "replay training steps on a GPU from CUDA graphs")
    fused: bool = option(True, "compute MONAI's networks in fewer passes over a GPU's memory; results are the same")
    compile: bool = option(False, "torch.compile the network (instead of these two)")
    keep_checkpoint: bool = option(
        False, "keep last.ckpt (3 × the model) of a finished training, to go on later with more epochs"
    )
    tensorboard: bool = option(False, "log for TensorBoard as well (needs the package tensorboard)")

    def __post_init__(self) -> None:
        with inside("training."):
            check_words(self)
            if self.epochs is not None:
                whole_number("epochs", self.epochs)
            whole_number("steps", self.steps)
            for name in ("batch_size", "devices", "nodes", "accumulate"):
                whole_number(name, getattr(self, name))
            if self.accumulate > self.batch_size:
                raise ValueError(
                    f"accumulate {self.accumulate} is more than batch_size {self.batch_size}: a step cannot come "
                    "in more parts than it has images"
                )
            positive_number("lr", self.lr)
            if not_negative("neighbours", self.neighbours) > MOST_OF_NEIGHBOUR:
                raise ValueError(f"neighbours is at most 1/3, the share of a slice itself, got {self.neighbours}")
            if self.prior is not None and fraction("prior", self.prior) == 0.0:
                raise ValueError(f"prior is a fraction between 0 and 1, got {self.prior}")

    def lasting(self, samples: int) -> TrainingSettings:
        """The same, with the number of epochs that so many training images make: few images, more epochs.

        Methods and schedules step once an epoch, so there are some; each ends with a validation, so not too many.
        """
        if self.epochs is not None:
            return self
        epochs = math.ceil(self.steps / math.ceil(samples / self.batch_size))
        return replace(self, epochs=min(max(epochs, FEWEST), MOST))

    @property
    def length(self) -> int:
        """How many epochs there are, once it is known."""
        return self.epochs or FEWEST


@dataclass(frozen=True)
class AugmentSettings:
    """How training images are augmented: only so that a box stays a box."""

    flip: list[str] = option(
        ["left-right"],
        "flip with probability 1/2: left-right, up-down, slices; [] for never. Anatomy is seldom symmetric up-down",
    )
    average: bool = option(
        True,
        "predict by the average over the flips that the network was trained with, and over turns by a quarter of "
        "`turn` to either side, in validation and afterwards",
    )
    shift: float = option(0.1, "move by up to this fraction of the image along each axis")
    scale: float = option(0.1, "enlarge or shrink by up to this fraction along each axis")
    turn: float = option(
        0.0,
        "degrees: ask the network about images turned by up to so many to either side, and turn its answers back: "
        "boxes stay where they are, and it cannot learn where their axes are",
    )
    intensity: float = option(0.2, "vary contrast, brightness and gamma of each channel by up to this fraction")
    bias: float = option(0.3, "multiply by a random bias field exp(this × smooth normal numbers), as MR coils do")
    noise: float = option(0.05, "add noise, of a strength up to this fraction of full brightness")

    def __post_init__(self) -> None:
        with inside("augment."):
            for name in ("shift", "scale", "intensity", "bias", "noise"):
                fraction(name, getattr(self, name))
            if not_negative("turn", self.turn) > HALF_TURN:
                raise ValueError(f"turn is at most {HALF_TURN:g} degrees to either side, got {self.turn}")
            with inside("flip: "):
                flip_axes(self.flip)

    @property
    def averaged(self) -> tuple[str, ...]:
        """The flips that predictions are averaged over: of others a network knows nothing."""
        return tuple(self.flip) if self.average else ()

    @property
    def turns(self) -> tuple[float, ...]:
        """The turns that predictions are averaged over, in degrees."""
        return (-self.turn / 4, self.turn / 4) if self.average and self.turn > 0.0 else ()


def flip_axes(names: Sequence[str]) -> tuple[int, ...]:
    """The axes of flips by their names."""
    for name in names:
        if name not in FLIPS:
            raise ValueError(
                f"images can be flipped along {', '.join(FLIPS)}, not '{name}'; {hint(str(name), FLIPS)}"
            )
    if len(set(names)) < len(names):
        raise ValueError(f"each axis to flip along once; got {', '.join(names)}")
    return tuple(FLIPS[name] for name in names)
