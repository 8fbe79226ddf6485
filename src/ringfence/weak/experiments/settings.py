# ruff: noqa: RUF009 - option() is dataclasses.field() with a help text
"""Everything that a command can be told, but where its results go. Needs no torch: help is fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ringfence.hints import hint
from ringfence.numbers import whole_number
from ringfence.options import option
from ringfence.weak.tasks.settings import BoxDataSettings, DiscSettings
from ringfence.weak.training.methods import METHODS, FullSupervision, MethodSettings, method_named
from ringfence.weak.training.refinement import RefinementSettings
from ringfence.weak.training.settings import (
    AugmentSettings,
    NetworkSettings,
    OptimiserSettings,
    ScheduleSettings,
    TrainingSettings,
)

if TYPE_CHECKING:
    from typing_extensions import Self

RENAMED: Final = {
    "limits": "limits are constraints, as in --constraints.strips.width 5 (docs/constraints.md)",
    "scale": "scales are presets, as in --preset synthetic-paper",
    "training.schedule": "it is a class, as in --schedule.class_path null for a constant rate",
    "data.sizes": "it is a constraint's, as in --constraints.size.file sizes.csv",
}
"""Settings of older versions, and what to write instead."""
BOX_CONSTRAINTS: Final[dict[str, Any]] = {"strips": {}, "outside": {}, "box_size": {}}
"""The paper's three."""
PLANNED: Final = (*BOX_CONSTRAINTS, "edges", "absent")
"""What presets and plans have, and users may leave out without a word about weights."""


@dataclass(frozen=True)
class ExperimentSettings:
    """The network, how it trains, and each method's own settings."""

    preset: ClassVar[str]
    """What files and commands begin from that name no preset."""

    network: NetworkSettings = field(default_factory=NetworkSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    method_settings: dict[str, MethodSettings] = field(
        default_factory=lambda: {name: kind() for name, kind in METHODS.items()}, metadata={"flat": True}
    )

    def __post_init__(self) -> None:
        # methods that were left out, or registered since, have their defaults
        missing = {name: kind() for name, kind in METHODS.items() if name not in self.method_settings}
        object.__setattr__(self, "method_settings", {**self.method_settings, **missing})

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """The same, but for settings by their dotted names: ``settings.changed({"training.epochs": 10})``."""
        settings = self
        for name, value in changes.items():
            settings = _changed(settings, name, name, value)
        return settings

    def lasting(self, samples: int) -> Self:
        """The same, with the number of epochs that so many training images make."""
        return replace(self, training=self.training.lasting(samples))

    def with_method(self, name: str, **changes: Any) -> Self:
        """The same, but for some settings of one method: ``settings.with_method("log_barrier", t=0.5)``."""
        own = replace(self.method_settings[method_named(name)], **changes)
        return replace(self, method_settings={**self.method_settings, own.name: own})


@dataclass(frozen=True)
class CompareSettings(ExperimentSettings):
    """What every comparison can be told."""

    methods: list[str] = option(
        list(METHODS), f"which to train, of {', '.join(METHODS)}, or class paths of your own"
    )
    seeds: list[int] = option(
        [0], "of the initial weights, the order of images and, where images are random, the images"
    )

    def __post_init__(self) -> None:
        names = self.method_names  # a class path registers its method
        super().__post_init__()
        for name, values in (("methods", names), ("seeds", self.seeds)):
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} needs at least one, each once; got {values}")
        for seed in self.seeds:
            _check_seed("seeds", seed)

    @property
    def method_names(self) -> list[str]:
        """The methods by their names in the registry."""
        return [method_named(name) for name in self.methods]


@dataclass(frozen=True)
class SyntheticSettings(CompareSettings):
    """Everything `ringfence compare synthetic` can be told."""

    preset: ClassVar[str] = "synthetic-small"

    data: DiscSettings = field(default_factory=DiscSettings)

    @property
    def augment(self) -> None:
        """Images are generated, and not augmented."""
        return


@dataclass(frozen=True)
class BoxSettings(ExperimentSettings):
    """Everything about training from boxes."""

    preset: ClassVar[str] = "boxes"

    data: BoxDataSettings = field(default_factory=BoxDataSettings)
    constraints: dict[str, Any] = option(
        BOX_CONSTRAINTS,
        "settings by the constraint's name; those in a file replace all. Change one: --constraints.strips.width 3, "
        "--constraints.compactness {}, --constraints.box_size null",
    )
    augment: AugmentSettings = field(default_factory=AugmentSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        for method, own in self.method_settings.items():
            by_name = {key: getattr(own, key, {}) for key in ("weights", "most_odds", "early")}
            given = {
                key: names for key, names in by_name.items() if isinstance(names, dict)
            }  # a user's may be else
            for key, name in ((key, name) for key, names in given.items() for name in names):
                if name not in self.constraints and name not in PLANNED:
                    raise ValueError(
                        f"{method}.{key}: there is no constraint '{name}'; there are: {', '.join(self.constraints)}"
                    )


@dataclass(frozen=True)
class BoxCompareSettings(BoxSettings, CompareSettings):
    """Everything `ringfence compare boxes` can be told."""


@dataclass(frozen=True)
class TrainSettings(BoxSettings):
    """Everything `ringfence train` can be told."""

    method: str = option(
        "log_barrier",
        f"how the constraints are enforced: one of {', '.join(METHODS)}, or the class path of your own",
    )
    seed: int = option(0, "of the initial weights, the order of images, and how they are augmented")
    refine: int = option(
        0,
        "rounds of refinement at most: each trains a new model on what those before it find in the training images",
    )
    refinement: RefinementSettings = field(default_factory=RefinementSettings)

    def __post_init__(self) -> None:
        _ = self.method_name  # a class path registers its method
        super().__post_init__()
        _check_seed("seed", self.seed)
        if whole_number("refine", self.refine, 0) and self.method_name == FullSupervision.name:
            raise ValueError(
                f"refine {self.refine}: a model's answers take the place of masks, and full_supervision has those: "
                "say --refine 0, or use another method"
            )
        if self.refinement.looks and self.method_name == FullSupervision.name:
            raise ValueError(
                "refinement.looks true: labels from brightness take the place of masks, and full_supervision has "
                "those: say --refinement.looks false, or use another method"
            )

    @property
    def method_name(self) -> str:
        """The method by its name in the registry."""
        return method_named(self.method)

    @property
    def teaches(self) -> bool:
        """Whether some model learns from labels that are made."""
        return self.refine > 0 or self.refinement.looks


def _changed(settings: Any, name: str, rest: str, value: Any) -> Any:
    """Settings with another value at a dotted name; ``rest`` is what is left of the name."""
    first, _, rest = rest.partition(".")
    if isinstance(settings, Mapping):
        return {**settings, first: _changed(settings.get(first) or {}, name, rest, value) if rest else value}
    if isinstance(settings, ExperimentSettings) and first in METHODS and rest:
        own = _changed(settings.method_settings[first], name, rest, value)
        return replace(settings, method_settings={**settings.method_settings, first: own})
    known = [one.name for one in fields(settings)] if is_dataclass(settings) else []
    if first not in known:
        before = name[: len(name) - len(f"{first}.{rest}".rstrip("."))]
        for old in (name, name.partition(".")[0]):
            if old in RENAMED:
                raise ValueError(f"there is no setting '{name}' any more: {RENAMED[old]}")
        near = hint(before + first, [before + one for one in known])
        raise ValueError(f"there is no setting '{name}'; {near}")
    changed = _changed(getattr(settings, first), name, rest, value) if rest else value
    return replace(settings, **{first: changed})


def _check_seed(name: str, seed: int) -> None:
    if whole_number(name, seed, 0) >= 2**31:
        raise ValueError(f"{name} must be below 2^31, got {seed}")
