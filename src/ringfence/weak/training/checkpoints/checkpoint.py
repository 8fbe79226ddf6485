"""The checkpoint that a training goes on from: replaced whole, and checked against the training when it is read."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from ringfence.fetching import fetched
from ringfence.files import write_bytes
from ringfence.hints import first_line, shown
from ringfence.lightning import FenceCallback
from ringfence.weak.networks.torch_file import Refused, read_torch
from ringfence.weak.training.checkpoints.checkpoint_state import (
    Wrong,
    check_alike,
    checked_optimiser,
    checked_rows,
    checked_schedule,
    in_range,
    rehearse,
)
from ringfence.weak.training.checkpoints.lengthened import for_more_epochs, length_before
from ringfence.weak.training.history import History

if TYPE_CHECKING:
    from ringfence.weak.training.module import WeakSegmentation


class WholeCheckpoints(TorchCheckpointIO):
    """Checkpoints that are replaced whole: Lightning may copy over the last one, and be interrupted halfway.

    What is read is checked, and what was checked is what Lightning gets: the file is read once.

    Args:
        module: whose training goes on; without one, nothing is read.
        say: told in a line what becomes of a training that is to last longer than it was begun for.
    """

    def __init__(
        self, module: WeakSegmentation | None = None, say: Callable[[str], None] = lambda line: None
    ) -> None:
        super().__init__()
        self.module, self._say = module, say
        self._writing: Future[None] | None = None

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write beside it, then rename, while training goes on: what is written is as it is now.

        An error of one comes with the next, or at the end.
        """
        self.teardown()
        leaves, structure = tree_flatten(checkpoint)
        tensors = [one.detach() for one in leaves if isinstance(one, Tensor)]
        # from a GPU in one copy, which is a copy of its own; on a CPU the next step writes where these are
        brought = iter(fetched(*(one.clone() if one.is_cpu else one for one in tensors)))
        now = tree_unflatten([next(brought) if isinstance(one, Tensor) else one for one in leaves], structure)
        thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing = thread.submit(_write, now, Path(path))
        thread.shutdown(wait=False)  # when it has written

    def teardown(self) -> None:
        """Wait until all is written; Lightning calls it at the end, again if somebody interrupts it here."""
        if self._writing is not None:
            try:
                self._writing.result()
            finally:
                if self._writing.done():
                    self._writing = None

    def remove_checkpoint(self, path: str | Path) -> None:
        """As Lightning's, once the one that takes its place is there."""
        self.teardown()
        super().remove_checkpoint(path)

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """What the file says, if it can be gone on from."""
        self.teardown()
        assert self.module is not None  # noqa: S101 - see above
        return read_checkpoint(Path(path), self.module, self._say)


def _write(checkpoint: dict[str, Any], path: Path) -> None:
    packed = io.BytesIO()
    torch.save(tree_map_only(Tensor, _by_itself, checkpoint), packed)
    write_bytes(path, packed.getbuffer())


def _by_itself(tensor: Tensor) -> Tensor:
    """A tensor that shares its memory with no other: those that do can only be saved if they are of one dtype."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def read_checkpoint(
    path: Path, module: WeakSegmentation, say: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """All that Lightning needs to go on with the training that ``module`` is attached to, and no more.

    Args:
        path: the file.
        module: whose training goes on.
        say: told if it will last longer than it was begun for.

    Raises:
        ValueError: the file is damaged, or of another network; with the entry at fault.
    """
    try:
        kept = read_torch(path)
        checked = _checked(path, kept, module)
        before, now = length_before(kept, checked), module.trainer.max_epochs or 1
        return checked if before == now else for_more_epochs(checked, module, before, say)
    except (Refused, Wrong) as error:
        raise ValueError(
            f"{path} is damaged ({first_line(error)}): remove it to train this method from its beginning"
        ) from None


def _checked(path: Path, kept: Any, module: WeakSegmentation) -> dict[str, Any]:
    names = ("epoch", "global_step", "state_dict", "loops", "callbacks", "optimizer_states", "lr_schedulers")
    kept = _part(kept, "the file", dict)
    if missing := [name for name in names if name not in kept]:
        raise Wrong(f"it has no {missing[0]}")
    epoch, step = in_range(kept, "epoch", module.trainer.max_epochs or 1), in_range(kept, "global_step")
    optimisers, schedules = _optimisers(module)
    return {
        "epoch": epoch,
        "global_step": step,
        "pytorch-lightning_version": version("pytorch-lightning"),  # what was checked is as this version has it
        "state_dict": _checked_state(path, _part(kept["state_dict"], "state_dict", dict), module),
        "loops": {"fit_loop": _checked_loop(kept["loops"], module.trainer, epoch, step)},
        "callbacks": _checked_callbacks(_part(kept["callbacks"], "callbacks", dict), epoch),
        "optimizer_states": [
            checked_optimiser(state, own)
            for state, own in _pairs(kept["optimizer_states"], optimisers, "optimizer_states")
        ],
        "lr_schedulers": [
            checked_schedule(state, own, goes_on=epoch + 1 < (module.trainer.max_epochs or 1))
            for state, own in _pairs(kept["lr_schedulers"], schedules, "lr_schedulers")
        ],
    }


def _optimisers(module: WeakSegmentation) -> tuple[list[Any], list[Any]]:
    """Optimisers and schedules as the training will make them, to compare with."""
    made = module.configure_optimizers()
    if isinstance(made, dict):
        return [made["optimizer"]], [made["lr_scheduler"]]
    return [made], []


def _checked_state(path: Path, state: dict[str, Any], module: WeakSegmentation) -> dict[str, Tensor]:
    """The network's weights are exactly as they should be; a fence and a monitor check their own."""
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise Wrong(f"state_dict: {shown(name)} is no tensor")
    network = module.network.state_dict(prefix="network.")
    for name, tensor in network.items():
        if name not in state:
            raise Wrong(f"state_dict has no {name}")
        if state[name].shape != tensor.shape:
            raise ValueError(
                f"{path} is of another network: {name} is {list(state[name].shape)} in it, and "
                f"{list(tensor.shape)} now. Has the prepared set changed? Train in a new folder with --out"
            )
        if state[name].is_floating_point() and not bool(state[name].isfinite().all()):
            raise Wrong(f"state_dict: {name} is not finite")
        if state[name].dtype != tensor.dtype:
            raise Wrong(f"state_dict: {name} is of {state[name].dtype}, and the network's of {tensor.dtype}")
    rest = {name: tensor.contiguous() for name, tensor in state.items() if name not in network}
    for name, tensor in rest.items():
        if name.startswith("network."):
            raise Wrong(f"state_dict has {shown(name)}, which the network has not")
        if name.startswith("monitor.") and (
            tensor.dtype != torch.int64 or tensor.ndim != 2 or tensor.shape[1] != 3
        ):
            raise Wrong(f"state_dict: {name} is {list(tensor.shape)} of {tensor.dtype}")
    checked = {name: state[name] for name in network} | rest
    rehearse(module, checked)
    return checked


def _checked_loop(loops: Any, trainer: pl.Trainer, epoch: int, step: int) -> dict[str, Any]:
    """How far the training had come: as many counts as Lightning keeps, that agree with each other."""
    loop: dict[str, Any] = _part(_part(loops, "loops", dict).get("fit_loop"), "loops: fit_loop", dict)
    check_alike(loop, trainer.fit_loop.state_dict(), "loops: fit_loop", whole=True)
    done, batches = loop["epoch_progress"], loop["epoch_loop.batch_progress"]
    for counts in (done["total"], done["current"]):
        if counts != {"ready": epoch + 1, "started": epoch + 1, "processed": epoch + 1, "completed": epoch}:
            raise Wrong(f"loops: epoch_progress is {counts} after epoch {epoch + 1}")
    each = batches["current"]["completed"]
    steps = loop["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]["step"]
    stepped = {*steps["total"].values(), loop["epoch_loop.state_dict"]["_batches_that_stepped"]}
    if (
        set(batches["current"].values()) != {each}
        or stepped != {step}
        or len(set(batches["total"].values())) > 1
        or step % (epoch + 1)
        or each % max(step // (epoch + 1), 1)  # some batches make a step, each as many
        or not batches["is_last_batch"]
    ):
        raise Wrong(f"loops: the counts of batches and steps do not agree (global_step {step})")
    return loop


def _checked_callbacks(states: dict[str, Any], epoch: int) -> dict[str, Any]:
    """Those of the epochs' rows and of the fence. Not ModelCheckpoint's: it removes what its state names."""
    history, fence = History.__qualname__, FenceCallback.__qualname__
    rows = _part(_part(states.get(history), f"callbacks: {history}", dict).get("rows"), "callbacks: rows", list)
    own = _part(states.get(fence), f"callbacks: {fence}", dict)
    stepped = own.get("stepped")
    if stepped is not None and stepped != epoch + 1:  # the fence's step comes before the checkpoint
        raise Wrong(f"callbacks: {fence} has stepped {shown(stepped)} times after epoch {epoch + 1}")
    return {
        history: {"rows": checked_rows(rows, epoch + 1)},  # its length is the training's, now
        fence: {"best_score": None, "best_path": "", "stepped": stepped},
    }


def _pairs(states: Any, own: list[Any], name: str) -> list[tuple[Any, Any]]:
    if len(_part(states, name, list)) != len(own):
        raise Wrong(f"it has {len(states)} {name}, and the training {len(own)}")
    return list(zip(states, own, strict=True))


def _part(value: Any, name: str, kind: type) -> Any:
    if not isinstance(value, kind):
        raise Wrong(f"{name} is {shown(value)}, and no {'names and values' if kind is dict else 'list'}")
    return value
