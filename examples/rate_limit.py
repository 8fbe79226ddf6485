"""A classifier with at most 5 % false alarms: λ goes by what it decides, the gradient by a smooth stand-in.

The task: find the few cases in a population, with false alarms for no more than 5 % of the rest. That rate counts
decisions, so it has no gradient. The hinge has one, but it is always above the rate: a limit on it alone is far too
tight, and misses cases for nothing. ``rf.surrogate(soft, strict)`` takes both: the loss pulls at the hinge, and λ
climbs or falls until the rate itself holds.

    python examples/rate_limit.py [--epochs 60] [--seed 0]
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

import ringfence as rf

LIMIT = 0.05
VARIANTS = ("no limit", "on the surrogate", "on the decisions")


def population(number: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points in the plane, one in ten a case: cases lie around the origin, the rest more widely so."""
    generator = torch.Generator().manual_seed(seed)
    case = torch.rand(number, generator=generator) < 0.1
    spread = torch.where(case, 0.5, 3.0)[:, None]
    return spread * torch.randn(number, 2, generator=generator), case


def rate_limit(score: Tensor, case: Tensor, variant: str) -> rf.Residual:
    """False alarms at most ``LIMIT``: one number for the whole batch, so there are no rows to tell apart."""
    others = score[~case]
    soft = rf.at_most(nn.functional.relu(1.0 + others).mean(), LIMIT)
    strict = rf.at_most((others > 0).float().mean(), LIMIT)
    return rf.surrogate(soft, strict) if variant == "on the decisions" else soft


def train(variant: str, epochs: int, seed: int) -> tuple[nn.Module, float]:
    """An ordinary loop with a dual step an iteration; the network, and λ at the end."""
    torch.manual_seed(seed)
    x, case = population(4000, seed)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    fence = rf.Lagrangian(dual_lr=0.0 if variant == "no limit" else 2.0)
    rarity = torch.tensor(9.0)  # cases weigh as much as all the others
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(500):
            score = model(x[rows])
            loss = nn.functional.binary_cross_entropy_with_logits(score, case[rows].float(), pos_weight=rarity)
            loss = loss + fence(rate=rate_limit(score, case[rows], variant))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            fence.step()  # once an iteration: λ moves by this batch
        scheduler.step()
    return model, fence.multipliers["rate"].item()


def measured(model: nn.Module, x: Tensor, case: Tensor) -> tuple[float, float]:
    """The share of cases that are missed, and the rate of false alarms."""
    with torch.no_grad():
        alarm = model(x) > 0
    return (~alarm)[case].float().mean().item(), alarm[~case].float().mean().item()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="A classifier whose rate of false alarms is limited.")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {options.epochs}")
    print(f"Find the cases, with false alarms for at most {LIMIT:.0%} of the others.")
    print("missed: the share of cases that the network does not find, on held-out data.\n")
    print(f"{'limit':<20}{'missed':>10}{'false alarms: trained':>25}{'held out':>12}{'λ':>8}")
    for variant in VARIANTS:
        model, multiplier = train(variant, options.epochs, options.seed)
        _, rate = measured(model, *population(4000, options.seed))
        missed, held_out = measured(model, *population(20000, options.seed + 1000))
        print(f"{variant:<20}{missed:>10.1%}{rate:>25.2%}{held_out:>12.2%}{multiplier:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
