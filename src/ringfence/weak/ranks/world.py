"""Who takes part: one process, or those that torchrun, srun or ``training.devices`` started; and how they meet."""

from __future__ import annotations

import atexit
import gc
import os
import re
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any, Final

from torch import distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from ringfence.hints import first_line, listed, shown

TIMEOUT: Final = "RINGFENCE_TIMEOUT"
"""The variable that says how many seconds ranks wait for each other to begin."""
PATIENCE: Final = 300.0
"""Seconds, where it does not."""
TOGETHER: Final = timedelta(hours=2)
"""How long a rank may wait for another once they have met; one that dies is noticed at once."""
POLL: Final = 0.05
"""Seconds between looks at who has come."""


class NoMeeting(ConnectionError):  # noqa: N818 - as one says it
    """Ranks that did not come together in time."""

    def __init__(self, message: str, *, spokesman: bool) -> None:
        super().__init__(message)
        self.spokesman = spokesman  # whether this rank is the one to say so


@dataclass(frozen=True)
class World:
    """This process among those that work together.

    Attributes:
        rank: of this process, from 0.
        size: how many there are.
        address: of the machine of rank 0.
        port: where they meet there.
        local_rank: of this process on its machine: which GPU it takes.
        local_size: how many there are on this machine.
        node: the machine's number.
        nodes: how many machines there are.
        hosted: whether the meeting place is there already, as torchrun's is.
        attempt: torchrun starts them again if it is told to.
        launched: whether we started them ourselves (``launch``), and what started them speaks for them.
    """

    rank: int = 0
    size: int = 1
    address: str = "127.0.0.1"
    port: int = 0
    local_rank: int = 0
    local_size: int = 1
    node: int = 0
    nodes: int = 1
    hosted: bool = False
    attempt: int = 0
    launched: bool = False

    @property
    def first(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    @property
    def several(self) -> bool:
        """Whether there is anybody else."""
        return self.size > 1

    def variables(self) -> dict[str, str]:
        """What torchrun would have set, for whoever asks the environment."""
        said = {
            "RANK": self.rank,
            "WORLD_SIZE": self.size,
            "MASTER_ADDR": self.address,
            "MASTER_PORT": self.port,
            "LOCAL_RANK": self.local_rank,
            "LOCAL_WORLD_SIZE": self.local_size,
            "GROUP_RANK": self.node,
            "GROUP_WORLD_SIZE": self.nodes,
            "TORCHELASTIC_USE_AGENT_STORE": self.hosted,
            "TORCHELASTIC_RESTART_COUNT": self.attempt,
        }
        return {name: str(value) for name, value in said.items()}


def world_of_environment(variables: Mapping[str, str] | None = None) -> World:
    """The world that torchrun's or srun's variables tell of; else one process.

    A shell in a SLURM job is one process, whatever the job's variables say: only srun's steps have several.
    """
    found = os.environ if variables is None else variables
    if all(name in found for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
        world = _of_torchrun(found)
    elif "SLURM_PROCID" in found and "SLURM_STEP_NUM_TASKS" in found:
        world = _of_srun(found)
    else:
        _check_alone(found)
        return World()
    if not 0 <= world.rank < world.size:
        raise ValueError(f"the launcher's variables name rank {world.rank} of {world.size} processes")
    return world if world.several else World()


def _check_alone(found: Mapping[str, str]) -> None:
    """Refuse variables that speak of others without saying who this is: each would train a model of its own."""
    others = _count(found, "WORLD_SIZE", 1)
    if others > 1:
        missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in found]
        verb = "is" if len(missing) == 1 else "are"
        raise ValueError(
            f"WORLD_SIZE={others} is in the environment, and {', '.join(missing)} {verb} not: start all processes "
            "by torchrun or srun, or unset WORLD_SIZE for one"
        )


def _of_torchrun(found: Mapping[str, str]) -> World:
    size = _count(found, "WORLD_SIZE", 1)
    local_size = _count(found, "LOCAL_WORLD_SIZE", size)
    return World(
        _count(found, "RANK", 0),
        size,
        found["MASTER_ADDR"],
        _count(found, "MASTER_PORT", 0),
        _count(found, "LOCAL_RANK", 0),
        local_size,
        _count(found, "GROUP_RANK", 0),
        _count(found, "GROUP_WORLD_SIZE", max(1, size // max(1, local_size))),
        found.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        _count(found, "TORCHELASTIC_RESTART_COUNT", 0),
    )


def _of_srun(found: Mapping[str, str]) -> World:
    size, nodes = _count(found, "SLURM_STEP_NUM_TASKS", 1), _count(found, "SLURM_STEP_NUM_NODES", 1)
    if found.get("SLURM_JOB_NAME") in ("bash", "interactive"):
        return World()
    hosts = found.get("SLURM_STEP_NODELIST") or found.get("SLURM_NODELIST") or "127.0.0.1"
    job, step = _count(found, "SLURM_JOB_ID", 0), _count(found, "SLURM_STEP_ID", 0)
    return World(
        _count(found, "SLURM_PROCID", 0),
        size,
        found.get("MASTER_ADDR") or first_host(hosts),
        _count(found, "MASTER_PORT", 15_000 + (job * 10 + step) % 10_000),  # steps of a machine do not collide
        _count(found, "SLURM_LOCALID", 0),
        -(-size // nodes),
        _count(found, "SLURM_NODEID", 0),
        nodes,
    )


def first_host(hosts: str) -> str:
    """The first of SLURM's list: ``n[5-9,12],m1`` begins with ``n5``."""
    return re.sub(r"\[([^],-]*)[^]]*\]", r"\1", hosts).replace(",", " ").split()[0]


def _count(found: Mapping[str, str], name: str, default: int) -> int:
    text = found.get(name, "")
    if text and not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name}={shown(text)} in the environment should be a whole number, as a launcher sets it")
    return int(text) if text else default


def patience() -> float:
    """Seconds that ranks wait for each other to begin: RINGFENCE_TIMEOUT, or 300."""
    text = os.environ.get(TIMEOUT, "")
    try:
        seconds = float(text) if text else PATIENCE
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 1e6:
        raise ValueError(f"{TIMEOUT} should be a number of seconds above 0; got {shown(text)}")
    return seconds


def free_port() -> int:
    """One that nobody listens at on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def meet(world: World, *, timeout: float | None = None, backend: str = "gloo") -> Store | None:
    """Wait until every rank has come, and connect them; nothing for a world of one, or one that has met.

    Args:
        world: as ``world_of_environment`` gives it.
        timeout: seconds to wait; default: ``patience()``.
        backend: of torch.distributed: gloo for commands on the CPU.

    Returns:
        Where they met: words by name, for all of them to read and write.

    Raises:
        NoMeeting: with the address, how many came, and who is missing.
    """
    if not world.several or dist.is_initialized():
        return None
    seconds = patience() if timeout is None else timeout
    until, place, host = (
        time.monotonic() + seconds,
        f"{world.address}:{world.port}",
        world.first and not world.hosted,
    )
    try:
        if not host:
            _knock(world.address, world.port, until)
        store: Store = TCPStore(
            world.address,
            world.port,
            is_master=host,
            timeout=timedelta(seconds=seconds),
            wait_for_workers=False,
        )
        store = PrefixStore(f"ringfence-{world.attempt}", store)
        store.set(str(world.rank), "here")
    except (RuntimeError, ValueError, OSError) as error:  # torch's own are RuntimeErrors
        why = f"rank {world.rank} cannot open that place" if host else "nobody is there"
        raise NoMeeting(
            f"{world.size} processes were to meet at {place}, and after {seconds:g} s {why} "
            f"({first_line(error)[:200]}). Start all of them, with the same address (MASTER_ADDR, MASTER_PORT); "
            f"{TIMEOUT} is how many seconds they wait",
            spokesman=True,
        ) from None
    missing = _missing(store, world, until)
    if missing:
        came = world.size - len(missing)
        raise NoMeeting(
            f"{came} of {world.size} processes came to {place} in {seconds:g} s; missing: rank "
            f"{listed(map(str, missing))}. Start all of them, with the same address; {TIMEOUT} is how many seconds "
            "they wait",
            spokesman=world.first or 0 in missing,
        )
    _stay_at_home(world)
    import_module("torch.distributed.nn.functional")  # DDP does: later, its defaults would own the group forever
    dist.init_process_group(backend, store=store, rank=world.rank, world_size=world.size, timeout=TOGETHER)
    return store


def _stay_at_home(world: World) -> None:
    """Ranks of one machine talk by its loopback: gloo would look up the machine's name, which may take minutes."""
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if world.nodes == 1 and loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)


def _knock(address: str, port: int, until: float) -> None:
    """Wait until somebody listens there: torch's own waiting fills the screen."""
    while True:
        try:
            socket.create_connection((address, port), timeout=max(0.1, until - time.monotonic())).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(POLL)
        else:
            return


def _missing(store: Store, world: World, until: float) -> list[int]:
    """Who has not come when time is up; [] as soon as all have."""
    missing = list(range(world.size))
    while True:
        missing = [rank for rank in missing if not _came(store, rank)]
        if not missing or time.monotonic() > until:
            return missing
        time.sleep(POLL)


def _came(store: Store, rank: int) -> bool:
    try:
        return bool(store.check([str(rank)]))
    except RuntimeError:  # rank 0, whose store it is, has gone
        return False


def met() -> bool:
    """Whether there are several processes, and they have met."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def ranks() -> int:
    """How many processes work together."""
    return dist.get_world_size() if met() else 1


def is_first() -> bool:
    """Whether this process writes and speaks: the only one, or rank 0."""
    return not met() or dist.get_rank() == 0


def from_all(mine: Any) -> list[Any]:
    """What each rank has to say, in their order; only what we sent ourselves is unpickled."""
    if not met():
        return [mine]
    everyones: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyones, mine)
    return everyones


def leave() -> None:
    """Part, if they had met; and see to it that gloo's threads have ended before Python is taken down.

    One that lets go of a tensor then aborts the process, whose work was done. They end with the group's last owner.
    """
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
        atexit.unregister(_let_go)
        atexit.register(_let_go)


def _let_go() -> None:
    """Let the group's last owners go: Lightning's trainer, which is a cycle, and the error that Python showed."""
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        if hasattr(sys, name):
            delattr(sys, name)
    gc.collect()
