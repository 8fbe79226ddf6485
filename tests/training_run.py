"""A small training run with every method, for the resume tests; also a script, so that it can run in a new process.

python training_run.py resume STATES RESULTS: load each method's state from the middle of its run and finish it.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

import ringfence as rf
from registry import METHODS, Entry

DATA, EPOCHS, HALFWAY = 12, 6, (2, 1)  # the state is saved in epoch 2, after its batch 1: in mid-epoch


class Run:
    """A model, an optimiser and a fence, trained batch by batch; where it stands is in its state."""

    def __init__(self, entry: Entry) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=0.02)
        self.entry, self.fence = entry, entry.make()
        self.x = torch.randn(DATA, 3)
        self.low = torch.randn(DATA)

    def train(self, start: tuple[int, int], save_at: tuple[int, int] | None = None) -> dict[str, Any] | None:
        saved = None
        for epoch in range(start[0], EPOCHS):
            order = torch.randperm(DATA, generator=torch.Generator().manual_seed(epoch))
            for number, rows in enumerate(order.split(4)):
                if epoch == start[0] and number < start[1]:
                    continue
                if (epoch, number) == save_at:
                    saved = self.state()
                self.step(rows)
            self.fence.step()
        return saved

    def step(self, rows: Tensor) -> None:
        output = self.model(self.x[rows])[:, 0]
        loss = self.fence(
            value=rf.between(output, self.low[rows], self.low[rows] + 0.2),
            slope=rf.at_most(output.abs(), 1.0),
            index=self.entry.index(rows),
        )
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def state(self) -> dict[str, Any]:
        parts = {"model": self.model, "optimiser": self.optimiser, "fence": self.fence}
        return {name: {k: _copy(v) for k, v in part.state_dict().items()} for name, part in parts.items()}

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.fence.load_state_dict(state["fence"])


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _copy(one) for key, one in value.items()}
    return [_copy(one) for one in value] if isinstance(value, list) else value


def resume(states: str, results: str) -> None:
    finished = {}
    for name, state in torch.load(states, weights_only=True).items():
        run = Run(METHODS[name])
        run.load(state)
        run.train(start=HALFWAY)
        finished[name] = run.state()
    torch.save(finished, results)


if __name__ == "__main__":
    resume(sys.argv[2], sys.argv[3])
