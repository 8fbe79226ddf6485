"""Work of a training step that nobody waits for at once, on a stream of its own.

In a CUDA graph that is a branch: its kernels run beside those of the main one, wherever these leave a GPU room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor, nn


class Inline:
    """No branch at all: what would be done beside is done in line."""

    @contextmanager
    def __call__(self, *needs: Tensor) -> Iterator[None]:
        """Do what is in here, as everything else."""
        yield

    def join(self) -> None:
        """Wait for nothing."""


IN_LINE: Final = Inline()


class Branch(Inline):
    """A stream beside the current one of a GPU.

    Attributes:
        read_early: whether somebody read what is made here before it was there: then it must be made in line.
    """

    def __init__(self) -> None:
        self._stream, self._begun, self.read_early = torch.cuda.Stream(), False, False
        self._needs: list[Tensor] = []

    @contextmanager
    def __call__(self, *needs: Tensor) -> Iterator[None]:
        """Do what is in here beside what follows, after all that came before.

        Args:
            needs: what it reads. It is kept until ``join``: let go of by the main stream, its memory would be
                written to while it is read here.
        """
        self._stream.wait_stream(torch.cuda.current_stream())
        self._needs += needs
        self._begun = True
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """Have what follows wait for all that was done beside."""
        if self._begun:  # while a graph is recorded, a stream that is not part of it must not be waited for
            torch.cuda.current_stream().wait_stream(self._stream)
        self._begun = False
        self._needs.clear()


class _Gradients:
    """Where gradients of weights are made: in line, but for steps that are recorded."""

    branch: Branch | None = None
    made: frozenset[int] = frozenset()
    """Where those are that were made beside."""


_gradients = _Gradients()


@contextmanager
def gradients_beside(network: nn.Module, branch: Branch | None) -> Iterator[None]:
    """In here, gradients of weights are made beside those of maps, which the layer before waits for.

    When it ends, they are there. Autograd must take them as they are: where it adds two of a weight that is used
    twice, or copies one, it does so too early, and ``branch.read_early`` is set.

    Args:
        network: whose weights they are.
        branch: where they are made; None for in line.
    """
    _gradients.branch, _gradients.made = branch, frozenset()
    try:
        yield
    finally:
        _gradients.branch = None
        if branch is not None:
            branch.join()
            taken = {one.grad.data_ptr() for one in network.parameters() if one.grad is not None}
            branch.read_early |= not _gradients.made <= taken


def gradient_of_weight(make: Callable[[], tuple[Tensor, ...]], *needs: Tensor) -> tuple[Tensor, ...]:
    """What ``make`` returns, the gradients of weights, made beside other work where that is wanted.

    Args:
        make: makes gradients as autograd takes them: laid out as the weights, and of their dtype.
        needs: what it reads.
    """
    if _gradients.branch is None:
        return make()
    with _gradients.branch(*needs):
        made = make()
    _gradients.made = _gradients.made | {one.data_ptr() for one in made}
    return made
