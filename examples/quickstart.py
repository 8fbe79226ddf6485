"""A plain training loop under hard limits, with every method in turn: which fits best, and which holds?

The task: learn a dose-response curve from a few noisy measurements. What is known besides them: a response is a
fraction, so it lies between 0 and 1, and more dose never means less response: 3 constraints at each of 64 doses.

    python examples/quickstart.py [--epochs 200] [--seed 0] [--method "log-barrier extension"]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import ringfence as rf

# Each setting is the best of seven tried by hand on seeds 0 to 2, by error and satisfaction together: strength 1 to
# 10,000; dual_lr 0.01 to 30, and 1 to 1,000; rho 0.1 to 100; t 5 to 100 with mu 1 to 1.03. The constraints are on
# a grid that every batch sees whole: same_rows.
METHODS: dict[str, Callable[[], rf.Method | None]] = {
    "no limits": lambda: None,
    "penalty": lambda: rf.Penalty(strength=10.0, reduction="mean"),
    "Lagrangian": lambda: rf.Lagrangian(dual_lr=3.0, reduction="mean", same_rows=True),
    "ReLU Lagrangian": lambda: rf.ReLULagrangian(dual_lr=30.0, reduction="mean", same_rows=True),
    "augmented Lagrangian": lambda: rf.AugmentedLagrangian(rho=3.0, reduction="mean", same_rows=True),
    "log-barrier extension": lambda: rf.LogBarrier(t=5.0, mu=1.02, reduction="mean"),
}


def measurements(seed: int) -> tuple[Tensor, Tensor]:
    """24 doses from 0 to 1 and what was measured there; the noise leaves the bounds."""
    generator = torch.Generator().manual_seed(seed)
    dose = torch.rand(24, 1, generator=generator)
    return dose, truth(dose) + 0.15 * torch.randn(24, 1, generator=generator)


def truth(dose: Tensor) -> Tensor:
    """The curve that nobody sees."""
    return 1.2 * dose / (dose + 0.2)


def limits(model: nn.Module) -> dict[str, Any]:
    """The constraints, by name, at 64 doses."""
    response = model(torch.linspace(0.0, 1.0, 64)[:, None])
    return {
        "share": rf.between(response, 0.0, 1.0),
        # in units of the mean slope of 1 over the grid, so that both constraints weigh alike
        "rising": rf.at_least(response.diff(dim=0), 0.0, scale=1.0 / 63.0),
    }


def train(fence: rf.Method | None, epochs: int, seed: int) -> nn.Module:
    """An ordinary loop; the three lines that ringfence adds are marked."""
    torch.manual_seed(seed)
    dose, measured = measurements(seed)
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for rows in torch.randperm(len(dose)).split(8):
            loss = nn.functional.mse_loss(model(dose[rows]), measured[rows])
            if fence is not None:
                loss = loss + fence(**limits(model))  # <- one term of the loss
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        scheduler.step()
        if fence is not None:
            fence.step()  # <- once an epoch
    return model


def report(name: str, fence: rf.Method | None, epochs: int, seed: int) -> str:
    """Train with one method; a line of the table."""
    model = train(fence, epochs, seed)
    with torch.no_grad():
        grid = torch.linspace(0.0, 1.0, 512)[:, None]
        error = (model(grid) - truth(grid)).square().mean().sqrt().item()
        monitor = rf.Monitor()
        monitor.update(**limits(model))
    measures = monitor.compute()
    return f"{name:<24}{error:>12.4f}{100 * measures['satisfaction']:>12.1f} %{measures['worst']:>18.2g}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="One network, hard limits, every method.")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", choices=METHODS, help="one method only (default: all)")
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {options.epochs}")
    print("A dose-response curve from 24 noisy measurements, held to 191 constraints: a share, and never falling.")
    print("error: root mean square against the true curve, which training does not see.\n")
    print(f"{'method':<24}{'error':>12}{'satisfied':>14}{'worst violation':>18}")
    for name, make in METHODS.items():
        if options.method in (None, name):
            print(report(name, make(), options.epochs, options.seed), flush=True)


if __name__ == "__main__":
    main()
