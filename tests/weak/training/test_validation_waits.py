"""Validation never waits for a GPU between its batches: tried with tensors that have no values to wait for.

Meta tensors refuse whatever reads values (a number, a truth, boolean indexing, a copy to the CPU); to our code they are
on some device that is not the CPU. What they let pass, copies from the CPU, is looked for as it happens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from prepared_sets import make_prepared
from ringfence.fetching import as_bytes, fetched, from_bytes
from ringfence.weak import BoxDataSettings, TrainSettings
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.training.box_agreement import all_agreements, by_class
from ringfence.weak.training.fit import make_module
from ringfence.weak.training.loading.data import Batches
from ringfence.weak.training.methods import METHODS
from ringfence.weak.training.module import WeakSegmentation


class Copies(TorchDispatchMode):
    """Notes operations that bring a tensor from the CPU to another device: a GPU's stream is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        given = [one for one in args if isinstance(one, Tensor)]
        away = isinstance(found, Tensor) and not found.is_cpu
        if name in ("copy_", "_to_copy", "lift_fresh") and away and any(one.is_cpu for one in given):
            self.seen.append(str(func))
        return found


def elsewhere(module: WeakSegmentation, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The batch on another device; the network's answers will be there, too."""
    images = batch["image"]
    answer = torch.empty(len(images), 1 + module.classes, *images.shape[2:], device="meta")
    module.recording.answers = lambda _: answer  # type: ignore[assignment]
    return {name: tensor.to("meta") for name, tensor in batch.items()}


@pytest.mark.parametrize("classes", [1, 2])
@pytest.mark.parametrize("method", METHODS)
def test_no_batch_waits(tmp_path: Path, method: str, classes: int) -> None:
    make_prepared(tmp_path, cases=3, shape=(8, 32, 32), classes=classes)
    asked = TrainSettings(data=BoxDataSettings(str(tmp_path)))
    task = box_task(asked.data, asked.constraints)
    module = make_module(asked, task, method, 0)
    assert "box" in task.validation
    with torch.inference_mode():
        for number, batch in enumerate(Batches(task.validation, 3)):
            away = elsewhere(module, batch)
            with Copies() as copies:
                module.validation_step(away, number)  # whatever reads a value raises here
            assert copies.seen == []
    assert module.monitor.update_called
    assert all(metric.update_called for metric in module.validation.measures.values())


def test_the_test_would_see_it() -> None:
    tensor = torch.zeros(3, device="meta")
    for look in (
        lambda: tensor.sum().item(),
        lambda: bool(tensor.any()),
        lambda: tensor[tensor > 0],
        lambda: (tensor > 0).nonzero(),
        lambda: tensor.cpu(),
        lambda: tensor.tolist(),
        lambda: tensor.unique(),
    ):
        with pytest.raises((RuntimeError, NotImplementedError)):
            look()
    with Copies() as copies:
        torch.zeros(3).to("meta")
    assert len(copies.seen) == 1


@pytest.mark.parametrize("objects", [1, 3])
def test_boxes_are_judged_alike_whoever_looks(objects: int) -> None:
    """All boxes at once, as a GPU does without asking which of them count; against one after the other."""
    random = torch.Generator().manual_seed(objects)
    logits = torch.randn(5, 3, 12, 14, generator=random)
    ends = torch.randint(0, 13, (5, 2, objects, 2, 2), generator=random).sort(dim=-1).values
    batch = {"box": ends, "whole": torch.rand(5, 2, objects, 2, generator=random) < 0.8}
    plain = by_class(logits, batch)
    assert float(plain[:, 1].sum()) > 0
    there, each = all_agreements(logits, batch)
    torch.testing.assert_close(torch.where(there, each, 0.0).sum(dim=(0, 2)), plain[:, 0])
    torch.testing.assert_close(there.sum(dim=(0, 2)).double(), plain[:, 1])


def test_tensors_of_all_kinds_travel_as_bytes() -> None:
    random = torch.Generator().manual_seed(0)
    tensors = [
        torch.rand(3, generator=random) < 0.5,
        torch.randn(2, 3, generator=random),
        torch.randn(4, 6, generator=random)[:, ::2].double(),
        torch.tensor(7),
        torch.empty(0, 2),
        torch.randn(5, generator=random).to(torch.bfloat16),
    ]
    for one, other in zip(from_bytes(as_bytes(tensors), tensors), tensors, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    assert fetched(*tensors)[1] is tensors[1]
