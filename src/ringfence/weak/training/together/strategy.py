"""How Lightning trains on several ranks: those that have met already, each with its own device."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from pytorch_lightning.strategies import DDPStrategy
from torch import nn

from ringfence.weak.ranks.world import World


class MetAlready(ClusterEnvironment):
    """A world as Lightning asks for it. It starts no processes, and may not change who is who."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    @property
    def creates_processes_externally(self) -> bool:
        """They are there."""
        return True

    @property
    def main_address(self) -> str:
        """Where they met."""
        return self._world.address

    @property
    def main_port(self) -> int:
        """Where they met."""
        return self._world.port

    @staticmethod
    def detect() -> bool:
        """Only who is told of a world uses this."""
        return False

    def world_size(self) -> int:
        """How many ranks there are."""
        return self._world.size

    def set_world_size(self, size: int) -> None:
        """As it is."""

    def global_rank(self) -> int:
        """Of this process."""
        return self._world.rank

    def set_global_rank(self, rank: int) -> None:
        """As it is."""

    def local_rank(self) -> int:
        """Of this process on its machine."""
        return self._world.local_rank

    def node_rank(self) -> int:
        """Of the machine."""
        return self._world.node


def ddp(world: World, network: nn.Module, image: torch.Tensor) -> DDPStrategy:
    """Gradients are the mean over ranks; buffers need no broadcast, since they are alike everywhere.

    Args:
        world: of ranks that have met.
        network: to be trained.
        image: like those that it will see, to find out whether all of its weights are used.
    """
    return DDPStrategy(
        cluster_environment=MetAlready(world),
        broadcast_buffers=False,
        find_unused_parameters=_has_unused(network, image),
        gradient_as_bucket_view=True,
    )


def _has_unused(network: nn.Module, image: torch.Tensor) -> bool:
    """Whether there are weights that logits do not depend on; DDP would wait for their gradients."""
    training = network.training
    weights = [one for one in network.parameters() if one.requires_grad]
    with torch.enable_grad():
        logits = network.eval()(image[None])
        found = torch.autograd.grad(logits.sum(), weights, allow_unused=True) if logits.requires_grad else weights
    network.train(training)
    return any(one is None for one in found)


class OwnSigterm(pl.Callback):
    """Puts back what SIGTERM does: Lightning's way sends messages between ranks, of which one may be gone."""

    def __init__(self) -> None:
        super().__init__()
        self._main = threading.current_thread() is threading.main_thread()
        self._before: Any = signal.getsignal(signal.SIGTERM) if self._main else None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Lightning has set its own just before."""
        if self._main:
            signal.signal(signal.SIGTERM, self._before)
