"""The application: training image segmentation from cheap labels instead of full masks.

>>> from ringfence import weak
>>> trained = weak.train(settings, "runs/mine")          # from boxes
>>> found = trained.load().predict(image, spacing)       # arrays in, mask and probabilities out

The rooms, each of which imports only those before it:

- ranks         several processes: who takes part, how they meet, who does which case
- volumes       images and masks in and out, with their geometry
- tables        CSV and JSON that users write, as rows of names and values
- datasets      layouts as downloaded (PROMISE12, nnU-Net, Decathlon, images and boxes): one a file
- prepared      the set to train on: its format and its preprocessing
- annotations   boxes, sizes and scribbles: from masks, CSV, JSON, COCO
- building      from a download to a prepared set
- constraints   what can be asked of a region: one kind a file
- appearance    what objects look like against what is around their boxes: labels from brightness alone
- tasks         what is learnt: boxes of a prepared set, or the paper's discs
- networks      built by name and checked; weights in files that no code comes from
- training      settings, the registry of methods, augmentation, data, module, metrics
- planning      a set's fingerprint, and the settings that follow from it, with reasons
- inference     model file, predictor, masks as arrays and as files
- experiments   one model (train) or every method (compare), from settings and presets
- evaluation    masks against the truth, or against each other

Names are imported when first touched, so that a command's help does not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.weak.building import prepare, prepare_source
    from ringfence.weak.constraints.case import CaseSamples
    from ringfence.weak.constraints.constraint import Constraint, Targets, TaskFacts, Unit
    from ringfence.weak.constraints.motion import Motion
    from ringfence.weak.constraints.registry import kinds, make_constraints
    from ringfence.weak.datasets import (
        Layout,
        Option,
        Source,
        SourceCase,
        SourceVolume,
        every_fifth,
        with_validation,
    )
    from ringfence.weak.evaluation.agreement import Agreement, agreement_between
    from ringfence.weak.evaluation.evaluate import Evaluation, evaluate
    from ringfence.weak.experiments.compare import compare
    from ringfence.weak.experiments.planned import plan, planned
    from ringfence.weak.experiments.presets import from_file, from_preset, preset_names
    from ringfence.weak.experiments.settings import BoxCompareSettings, SyntheticSettings, TrainSettings
    from ringfence.weak.experiments.train import train
    from ringfence.weak.experiments.trained import Trained
    from ringfence.weak.inference.export import Predictions, predict
    from ringfence.weak.inference.model import Model, Segmentation, load_model
    from ringfence.weak.inference.model_file import ModelCard, save_model
    from ringfence.weak.planning.plan import Plan
    from ringfence.weak.prepared import PreparedSet, Preprocessing, read_prepared
    from ringfence.weak.tasks.boxes import box_task
    from ringfence.weak.tasks.discs import disc_task
    from ringfence.weak.tasks.settings import BoxDataSettings, DiscSettings
    from ringfence.weak.tasks.task import Task
    from ringfence.weak.training.augmentation import Augmentation
    from ringfence.weak.training.loading.data import Samples, SegmentationData
    from ringfence.weak.training.methods import ConstrainedSettings, MethodSettings, Setup, register
    from ringfence.weak.training.module import WeakSegmentation
    from ringfence.weak.training.refinement import RefinementSettings
    from ringfence.weak.training.settings import (
        AugmentSettings,
        NetworkSettings,
        OptimiserSettings,
        ScheduleSettings,
        TrainingSettings,
    )

_HOMES = {
    "constraints.case": ("CaseSamples",),
    "constraints.constraint": ("Constraint", "Targets", "TaskFacts", "Unit"),
    "constraints.motion": ("Motion",),
    "constraints.registry": ("kinds", "make_constraints"),
    "datasets": ("Layout", "Option", "Source", "SourceCase", "SourceVolume", "every_fifth", "with_validation"),
    "evaluation": ("Agreement", "Evaluation", "agreement_between", "evaluate"),
    "experiments.compare": ("compare",),
    "experiments.planned": ("plan", "planned"),
    "experiments.presets": ("from_file", "from_preset", "preset_names"),
    "experiments.settings": ("BoxCompareSettings", "SyntheticSettings", "TrainSettings"),
    "experiments.train": ("train",),
    "experiments.trained": ("Trained",),
    "inference.export": ("Predictions", "predict"),
    "inference.model": ("Model", "Segmentation", "load_model"),
    "inference.model_file": ("ModelCard", "save_model"),
    "planning.plan": ("Plan",),
    "building": ("prepare", "prepare_source"),
    "prepared": ("PreparedSet", "Preprocessing", "read_prepared"),
    "tasks.boxes": ("box_task",),
    "tasks.discs": ("disc_task",),
    "tasks.settings": ("BoxDataSettings", "DiscSettings"),
    "tasks.task": ("Task",),
    "training.augmentation": ("Augmentation",),
    "training.loading.data": ("Samples", "SegmentationData"),
    "training.methods": ("ConstrainedSettings", "MethodSettings", "Setup", "register"),
    "training.module": ("WeakSegmentation",),
    "training.refinement": ("RefinementSettings",),
    "training.settings": (
        "AugmentSettings",
        "NetworkSettings",
        "OptimiserSettings",
        "ScheduleSettings",
        "TrainingSettings",
    ),
}

__all__ = [
    "Agreement",
    "AugmentSettings",
    "Augmentation",
    "BoxCompareSettings",
    "BoxDataSettings",
    "CaseSamples",
    "ConstrainedSettings",
    "Constraint",
    "DiscSettings",
    "Evaluation",
    "Layout",
    "MethodSettings",
    "Model",
    "ModelCard",
    "Motion",
    "NetworkSettings",
    "OptimiserSettings",
    "Option",
    "Plan",
    "Predictions",
    "PreparedSet",
    "Preprocessing",
    "RefinementSettings",
    "Samples",
    "ScheduleSettings",
    "Segmentation",
    "SegmentationData",
    "Setup",
    "Source",
    "SourceCase",
    "SourceVolume",
    "SyntheticSettings",
    "Targets",
    "Task",
    "TaskFacts",
    "TrainSettings",
    "Trained",
    "TrainingSettings",
    "Unit",
    "WeakSegmentation",
    "agreement_between",
    "box_task",
    "compare",
    "disc_task",
    "evaluate",
    "every_fifth",
    "from_file",
    "from_preset",
    "kinds",
    "load_model",
    "make_constraints",
    "plan",
    "planned",
    "predict",
    "prepare",
    "prepare_source",
    "preset_names",
    "read_prepared",
    "register",
    "save_model",
    "train",
    "with_validation",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"ringfence.weak.{home}"), name)
    raise AttributeError(f"module 'ringfence.weak' has no attribute '{name}'")


def __dir__() -> list[str]:
    return list(__all__)
