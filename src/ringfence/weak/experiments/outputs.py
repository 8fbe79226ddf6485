"""What a training leaves in its folder: the model, and what it says about a few validation images."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch

from ringfence.environment import commit
from ringfence.weak.inference.model_file import MODEL, ModelCard, save_model
from ringfence.weak.networks.likeliest import likeliest
from ringfence.weak.networks.tensor_file import write_tensors
from ringfence.weak.tasks.task import Task
from ringfence.weak.tasks.windows import pixels_of
from ringfence.weak.training.fit import FitSettings, network_arguments
from ringfence.weak.training.module import WeakSegmentation
from ringfence.weak.training.run_folder import PICTURES_FILE

PICTURES: Final = 5
"""How many validation images are kept with their predictions."""


def keep_outputs(module: WeakSegmentation, task: Task, settings: FitSettings, method: str, folder: Path) -> None:
    """Write both."""
    module.float()  # a model is in float32, whatever it was trained in
    _keep_pictures(module, task, folder / PICTURES_FILE)
    card = ModelCard(
        settings.network.class_path,
        network_arguments(settings, task),
        task.channels,
        task.classes,
        task.preprocessing,
        patch=(task.space[0], task.space[1], task.space[2]) if len(task.space) == 3 else None,
        method=method,
        commit=commit(),
        labels=task.labels,
        flips=settings.augment.averaged if settings.augment else (),
        levels=tuple(module.network.levels[1:].tolist()) if module.levelled else (),
        turns=settings.augment.turns if settings.augment else (),
        neighbours=module.judging.neighbours,
    )
    save_model(folder / MODEL, module.network, card)


def bytes_needed(task: Task, network: torch.nn.Module, trainings: int) -> int:
    """What so many trainings will write, at most: a checkpoint has the weights and the optimiser's state.

    Those of torch.optim keep up to two numbers a weight; and a checkpoint is written beside the one before.
    """
    weights = sum(int(tensor.nbytes) for tensor in network.state_dict().values())
    pictures = 3 * PICTURES * task.space[-1] * task.space[-2]
    return trainings * (weights + pictures) + (2 * 3 * weights if trainings else 0)


def _keep_pictures(module: WeakSegmentation, task: Task, file: Path) -> None:
    """Images, truth and predictions, of each slice by itself."""
    samples = torch.tensor(task.pictured(PICTURES))
    pixels = pixels_of(task.validation, samples)
    images = pixels["image"]
    module.eval()
    with torch.no_grad():
        predicted = likeliest(module.predicted(images.to(module.device))).to(torch.uint8).cpu()
    truth = pixels["mask"].any(dim=1)
    kept: dict[str, Any] = {"image": images[:, 0], "truth": truth, "predicted": predicted}
    if images.ndim == 5:  # of a volume, the slice in its middle
        kept = {name: tensor[:, tensor.shape[1] // 2] for name, tensor in kept.items()}
    write_tensors(file, kept, {})
