# ruff: noqa: RUF009 - option() is dataclasses.field() with a help text
"""What can be set when training from boxes: `ringfence train` and `ringfence compare promise12`. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ringfence.weak.training.settings import (
    METHODS,
    AugmentedLagrangianSettings,
    CompareSettings,
    ExperimentSettings,
    FullSupervisionSettings,
    LagrangianSettings,
    LogBarrierSettings,
    NetworkSettings,
    PenaltySettings,
    ReLULagrangianSettings,
    TrainingSettings,
    option,
)


@dataclass(frozen=True)
class BoxDataSettings:
    """The images and their weak labels."""

    prepared: str = option("", "the folder that `ringfence prepare` wrote")
    boxes: str | None = option(None, "a file of boxes (CSV, JSON, COCO); taken from the masks unless given")
    sizes: str | None = option(None, "a file of size bounds (CSV, JSON); none unless given")
    margin: int = option(
        0, "pixels by which boxes may be too wide on every side; those taken from masks are made so much wider"
    )
    patch: list[int] | None = option(
        None, "train on volumes, in patches of this many slices, rows and columns; on slices unless given"
    )


@dataclass(frozen=True)
class LimitSettings:
    """The limits: strips across the box hold at least their width, nothing is outside, and no more than the box."""

    box: bool = option(True, "ask for these three; false leaves sizes and centroids alone")
    strip_width: int = option(5, "pixels; every strip of that width across the box holds at least as many")
    size_low: float | None = option(None, "the object is at least this share of its box; no limit unless given")
    size_high: float = option(1.0, "the object is at most this share of its box")
    size_slack: float | None = option(
        None, "the size is (1 ± this) × the true one, as in the synthetic task; no such limit unless given"
    )
    centroid_slack: float | None = option(
        None, "the centroid is the true one ± this many pixels along each axis; no such limit unless given"
    )


@dataclass(frozen=True)
class AugmentSettings:
    """How training images are varied: only so that a box stays a box, hence no rotation."""

    flip: list[str] = option(
        ["left-right"],
        "mirror every second time: left-right, up-down, slices; [] in a file for never. Bodies have an up",
    )
    average: bool = option(
        True,
        "judge a network by its mean answer over an image and its mirror images; `ringfence predict` does so, too",
    )
    shift: float = option(0.1, "move by up to this share of the image along each axis")
    scale: float = option(0.1, "enlarge or shrink by up to this share along each axis")
    intensity: float = option(0.2, "vary contrast, brightness and gamma by up to this share")
    bias: float = option(0.3, "multiply by a smooth field exp(this × normal numbers), as the coils of MR do")
    noise: float = option(0.05, "add noise, of a strength up to this share of full brightness")


_WIDTH_32: Final = {
    "features": [32, 32, 64, 128, 256, 32],
    "act": "relu",
    "norm": "batch",
    "upsample": "nontrainable",
}


@dataclass(frozen=True)
class BoxSettings(ExperimentSettings):
    """Everything about training from boxes but where the results go; the defaults are PROMISE12's."""

    network: NetworkSettings = field(
        default_factory=lambda: NetworkSettings("monai.networks.nets.BasicUNet", _WIDTH_32)
    )
    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(epochs=40, batch_size=16, lr=5e-4, prior=None)
    )
    lagrangian: LagrangianSettings = field(
        default_factory=lambda: LagrangianSettings(
            unit="pixels", dual_lr=7e-5, initial=1.0, weights={"strips": 10.0}, final_temperature=1.0
        )
    )
    relu_lagrangian: ReLULagrangianSettings = field(
        default_factory=lambda: ReLULagrangianSettings(
            dual_lr=1.0, weights={"strips": 300.0}, final_temperature=0.3
        )
    )
    penalty: PenaltySettings = field(
        default_factory=lambda: PenaltySettings(weights={"strips": 1000.0}, temperature=0.1, final_temperature=0.1)
    )
    log_barrier: LogBarrierSettings = field(
        default_factory=lambda: LogBarrierSettings(
            unit="pixels", t=0.3, mu=None, final_t=3.0, weights={"strips": 100.0}, final_temperature=1.0
        )
    )
    augmented_lagrangian: AugmentedLagrangianSettings = field(
        default_factory=lambda: AugmentedLagrangianSettings(
            unit="pixels", rho=7e-5, initial=1.0, weights={"strips": 10.0}, final_temperature=1.0
        )
    )
    full_supervision: FullSupervisionSettings = field(default_factory=lambda: FullSupervisionSettings(dice=1.0))
    data: BoxDataSettings = field(default_factory=BoxDataSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    augment: AugmentSettings = field(default_factory=AugmentSettings)


@dataclass(frozen=True)
class BoxCompareSettings(BoxSettings, CompareSettings):
    """Everything `ringfence compare promise12` can be told, but where its results go."""


@dataclass(frozen=True)
class TrainSettings(BoxSettings):
    """Everything `ringfence train` can be told, but where its results go."""

    method: str = option("log_barrier", f"how the limits are enforced: one of {', '.join(METHODS)}")
    seed: int = option(0, "of the first weights, the order of images, and how they are varied")
