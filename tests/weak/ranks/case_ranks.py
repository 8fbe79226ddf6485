"""What each rank does in the tests of cases."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from ringfence.weak.building.build import prepare
from ringfence.weak.evaluation import agreement_between, evaluate, scores_csv
from ringfence.weak.inference.export import predict
from ringfence.weak.ranks import cases
from ringfence.weak.ranks.cases import Crew
from ringfence.weak.ranks.world import World


def three_commands(world: World, source: Path, model: Path, out: Path, workers: int = 1) -> None:
    """Prepare, predict, evaluate and compare into ``out``."""
    crew = Crew(workers, world)
    prepare("promise12", source, out / "set", size=(16, 16), skip_failures=True, crew=crew)
    predict(model, source, out / "masks", probabilities=True, crew=crew)
    scores = evaluate(out / "masks", source, crew=crew)
    between = agreement_between(source, out / "masks", crew=crew)
    if world.first:
        failed = repr([one.name for one in (*scores.failed, *between.failed)])
        (out / "scores.csv").write_text(scores_csv(scores.scores) + between.csv + failed, encoding="utf-8")


def different_options(world: World, source: Path, out: Path) -> None:
    """Each rank another size."""
    prepare("promise12", source, out, size=(16, 16 + world.rank), crew=Crew(world=world))


def killed_rank(world: World, source: Path, out: Path) -> None:
    """Rank 1 is gone after the first round, of one case each."""
    cases.ROUND = 1  # type: ignore[misc]

    def tell(case: str) -> None:
        if world.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    prepare("promise12", source, out, size=(16, 16), crew=Crew(world=world), tell=tell)
