"""A module's training steps as CUDA graphs: what can be recorded, and recording it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.model_helpers import is_overridden
from torch import Tensor

from ringfence.barrier import computing_dtype
from ringfence.residuals import Residual
from ringfence.segmentation import Region
from ringfence.weak.networks.fast.branches import Branch
from ringfence.weak.training.augmentation import Augmentation
from ringfence.weak.training.gpu.answers import Answers
from ringfence.weak.training.gpu.optimiser import InGraph, can_be_recorded
from ringfence.weak.training.gpu.recording import Recording
from ringfence.weak.training.together.global_batch import taken

if TYPE_CHECKING:
    from ringfence.weak.training.module import WeakSegmentation


def take_numbers(module: WeakSegmentation) -> None:
    """Ask for batches of numbers, if samples are all on the GPU: their rest is gathered by the recorded step.

    Augmentation must be our own, whose random numbers follow from keys: others may do what no graph can record.
    """
    data = _data(module)
    module.recording = Recording()
    if data is not None and hasattr(data, "resident") and _own(module):
        module.recording.rows = data.resident("train")
        data.numbers_only = module.recording.rows is not None


def record_steps(module: WeakSegmentation) -> None:
    """Record steps for whole batches and for the last one of an epoch, if that is wanted and can be done.

    From numbers to gradients: gathering, augmentation, network, constraints, fence; and the optimiser's step,
    unless somebody wants to see the gradients before. Validation's forward passes are recorded as they come.
    """
    data = _data(module)
    if data is None:
        return
    dtype = torch.bfloat16 if "bf16" in str(module.trainer.precision) else None
    if module.device.type == "cuda":
        module.recording.answers, module.recording.beside = Answers(module.predicted, dtype), Branch()
    batch = module.varied(taken(next(iter(data.train_dataloader())), 0, 1)[0])
    rows = len(next(iter(batch.values())))
    last = len(module.recording.rows["image"]) % rows if module.recording.rows else 0
    sizes = dict.fromkeys((rows, last or rows))
    samples = [{name: one[:size] for name, one in batch.items()} for size in sizes]
    like = [_residuals(module, sample) for sample in samples]
    touched: list[Tensor] = []
    if module.fence is not None:
        with torch.no_grad():
            module.fence(index=batch.get("index"), **like[0])  # names and settings are looked at here, once
        if not module.fence.follow(module.device):
            return  # it has to be called
        touched = module.fence.followed()
    optimiser = _optimiser(module.trainer)
    module.recording.record(module.network, module.recorded, samples, like, dtype, optimiser, touched)


def _data(module: WeakSegmentation) -> Any:
    """The data whose batches' steps can be recorded; None where there are none.

    A replay overwrites gradients, so that they cannot be accumulated; and no graph has a GradScaler.
    """
    wanted = module.cuda_graphs and module.trainer.accumulate_grad_batches == 1 and not module.halves
    return getattr(module.trainer, "datamodule", None) if wanted else None


def _own(module: WeakSegmentation) -> bool:
    return module.augmentation is None or isinstance(module.augmentation, Augmentation)


def _residuals(module: WeakSegmentation, batch: Mapping[str, Tensor]) -> dict[str, Residual]:
    """Residuals of a batch's shapes."""
    if module.fence is None:
        return {}
    made = module.made(batch)
    images = made["image"]
    dtype = computing_dtype(next((one.dtype for one in module.network.parameters()), torch.float32))
    empty = torch.zeros(len(images), 1 + module.classes, *images.shape[2:], device=images.device, dtype=dtype)
    return module.measure(Region(empty, boxes=made.get("box")), made)


def _optimiser(trainer: Any) -> InGraph | None:
    """The optimiser, if its step can be recorded, and nothing is to happen between gradients and step."""
    looked_at = any(is_overridden("on_before_optimizer_step", one, pl.Callback) for one in trainer.callbacks)
    if looked_at or trainer.gradient_clip_val or len(trainer.optimizers) != 1:
        return None
    return InGraph(trainer.optimizers[0]) if can_be_recorded(trainer.optimizers[0]) else None
