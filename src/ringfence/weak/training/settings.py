# ruff: noqa: RUF009 - option() is dataclasses.field() with a help text
"""What can be set in every comparison, and the two scales of the synthetic one. Needs no torch: help is fast.

Every field is an option of the command line and a key of its YAML file; its help is beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

Unit: TypeAlias = Literal["pixels", "relative"]
"""What residuals are measured in: pixels, or shares (of the size; of ten times the centroid's slack)."""


def option(default: Any, text: str) -> Any:
    """A field with its default and its help."""
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: type(default)(default), metadata={"help": text})
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class DataSettings:
    """The images."""

    size: int = option(64, "pixels along each side of an image")
    train: int = option(500, "how many training images")
    validation: int = option(100, "how many validation images")
    radius: float | None = option(None, "of the discs, in pixels; 25 at 256 and in proportion unless given")
    size_slack: float = option(0.1, "size bounds are (1 ± this) × the true size")
    centroid_slack: float | None = option(
        None, "centroid bounds are the true one ± this many pixels; 20 at 256 and in proportion unless given"
    )


@dataclass(frozen=True)
class NetworkSettings:
    """The network: any torch.nn.Module from images [B, C, ...] to logits [B, 1 + classes, ...]."""

    class_path: str = option(
        "monai.networks.nets.SegResNet", "the class, as one would import it; your own too (my_module.MyNetwork)"
    )
    init_args: dict[str, Any] = option(
        {
            "spatial_dims": 2,
            "in_channels": 1,
            "out_channels": 2,
            "init_filters": 8,
            "blocks_down": [1, 1, 1],
            "blocks_up": [1, 1],
            "norm": "batch",
            "upsample_mode": "nontrainable",
        },
        "its arguments by name; dropped when another class_path is given without them. spatial_dims, in_channels "
        "and out_channels are filled in where the network has such arguments",
    )


@dataclass(frozen=True)
class TrainingSettings:
    """How every method trains."""

    epochs: int = option(6, "passes over the training images")
    batch_size: int = option(4, "images a step")
    lr: float = option(3e-3, "Adam's first learning rate")
    schedule: Literal["cosine", "constant"] = option("cosine", "how the learning rate goes from there to the end")
    prior: float | None = option(
        0.01, "share of the image that is foreground before training; below the bounds, so that regions grow"
    )
    device: Literal["auto", "cpu", "cuda"] = option("auto", "where to train; auto takes a GPU if there is one")
    precision: Literal["auto", "32", "bf16"] = option(
        "auto", "of the network; auto is bf16 on a GPU and 32 elsewhere"
    )
    cuda_graphs: bool = option(True, "replay the network's training step on a GPU from CUDA graphs")
    compile: bool = option(False, "torch.compile the network (instead of CUDA graphs)")
    tensorboard: bool = option(False, "log for TensorBoard as well (needs the package tensorboard)")


@dataclass(frozen=True)
class MethodSettings:
    """What every method has."""

    temperature: float = option(1.0, "the logits are divided by it; below 1 sharpens")
    final_temperature: float = option(0.1, "where it gets to by the last epoch, by equal ratios")


@dataclass(frozen=True)
class LimitedSettings(MethodSettings):
    """What every method of limits has."""

    weights: dict[str, float] = option({}, "how much each limit's term counts, by the limit's name; 1 unless given")


@dataclass(frozen=True)
class LagrangianSettings(LimitedSettings):
    """Standard Lagrangian: λ per image and constraint, projected dual ascent once an epoch."""

    unit: Unit = option("relative", "what its residuals are measured in")
    dual_lr: float = option(1.0, "dual learning rate")
    initial: float = option(0.0, "every λ's first value")


@dataclass(frozen=True)
class ReLULagrangianSettings(LimitedSettings):
    """ReLU Lagrangian (Nandwani et al.): one λ per constraint kind, on the violation alone."""

    unit: Unit = option("relative", "what its residuals are measured in")
    dual_lr: float = option(10.0, "dual learning rate")
    initial: float = option(0.0, "every λ's first value")
    interval: int = option(10, "steps before the first dual step")
    growth: int = option(1, "how many steps longer each interval is than the one before")


@dataclass(frozen=True)
class PenaltySettings(LimitedSettings):
    """Quadratic penalty: γ max(0, f)²."""

    unit: Unit = option("relative", "what its residuals are measured in")
    strength: float = option(1.0, "γ")
    mu: float = option(1.0, "growth of γ per epoch")


@dataclass(frozen=True)
class LogBarrierSettings(LimitedSettings):
    """Log-barrier extension: ψ_t(f)."""

    unit: Unit = option("pixels", "what its residuals are measured in")
    t: float = option(1.0, "the first t")
    mu: float | None = option(1.1, "growth of t per epoch")
    final_t: float | None = option(None, "where t gets to by the last epoch, by equal ratios; mu is null then")


@dataclass(frozen=True)
class AugmentedLagrangianSettings(LimitedSettings):
    """Augmented Lagrangian, our extra row: λ per image and constraint, with a quadratic term of strength ρ."""

    unit: Unit = option("relative", "what its residuals are measured in")
    rho: float = option(1.0, "ρ, and the dual learning rate")
    initial: float = option(0.0, "every λ's first value")
    mu: float = option(1.0, "growth of ρ per epoch")


@dataclass(frozen=True)
class FullSupervisionSettings(MethodSettings):
    """Full supervision: cross-entropy against every pixel's label, and Dice loss if asked for; the upper bound."""

    final_temperature: float = option(1.0, "where it gets to by the last epoch, by equal ratios")
    dice: float = option(0.0, "how much Dice loss counts beside cross-entropy")


METHODS: Final = (
    "lagrangian",
    "relu_lagrangian",
    "penalty",
    "log_barrier",
    "full_supervision",
    "augmented_lagrangian",
)


@dataclass(frozen=True)
class ExperimentSettings:
    """The network, how it trains, and each method's own settings."""

    network: NetworkSettings = field(default_factory=NetworkSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    lagrangian: LagrangianSettings = field(default_factory=LagrangianSettings)
    relu_lagrangian: ReLULagrangianSettings = field(default_factory=ReLULagrangianSettings)
    penalty: PenaltySettings = field(default_factory=PenaltySettings)
    log_barrier: LogBarrierSettings = field(default_factory=LogBarrierSettings)
    augmented_lagrangian: AugmentedLagrangianSettings = field(default_factory=AugmentedLagrangianSettings)
    full_supervision: FullSupervisionSettings = field(default_factory=FullSupervisionSettings)


@dataclass(frozen=True)
class CompareSettings(ExperimentSettings):
    """What every comparison can be told, but where its results go."""

    methods: list[str] = option(list(METHODS), f"which to train, of {', '.join(METHODS)}")
    seeds: list[int] = option([0], "each seed has first weights and an order of its own, and so have random images")


@dataclass(frozen=True)
class SyntheticSettings(CompareSettings):
    """Everything `ringfence compare synthetic` can be told, but where its results go."""

    data: DataSettings = field(default_factory=DataSettings)


_WIDTH_16: Final = {
    "spatial_dims": 2,
    "in_channels": 1,
    "out_channels": 2,
    "features": [16, 32, 64, 128, 256, 16],
    "act": "relu",
    "norm": "batch",
    "upsample": "nontrainable",
}

SCALES: Final[Mapping[str, SyntheticSettings]] = {
    "small": SyntheticSettings(),
    "paper": SyntheticSettings(
        seeds=[0, 1, 2],
        data=DataSettings(size=256, train=1000, validation=100),
        network=NetworkSettings("monai.networks.nets.BasicUNet", _WIDTH_16),
        training=TrainingSettings(epochs=50, batch_size=8, lr=1e-3),
        lagrangian=LagrangianSettings(unit="pixels", dual_lr=0.1),
        relu_lagrangian=ReLULagrangianSettings(dual_lr=100.0),
        penalty=PenaltySettings(unit="pixels"),
        log_barrier=LogBarrierSettings(unit="relative", t=1.0),
        augmented_lagrangian=AugmentedLagrangianSettings(rho=10.0),
    ),
}
"""The small one is for minutes on two CPU cores, the paper's for a GPU; tuned as results/synthetic/ says."""
