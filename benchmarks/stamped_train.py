"""`ringfence train` as it is, with the seconds since it was started at each stage; for benchmarks/startup.py.

    BEGAN=$(date +%s.%N) python benchmarks/stamped_train.py train promise12 --data.prepared SET --out RUN

It prints ``STAMP seconds what`` for each stage, the last of them when the first step's loss is there.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

BEGAN = float(os.environ["BEGAN"])


def stamp(what: str) -> None:
    """Say when this is."""
    print(f"STAMP {time.time() - BEGAN:.3f} {what}", flush=True)


def after(owner: Any, name: str, what: str, then: Callable[[], None] = lambda: None) -> None:
    """Have a function say so when it has been called for the first time."""
    plain = getattr(owner, name)
    calls: list[str] = []

    def call(*words: Any, **options: Any) -> Any:
        result = plain(*words, **options)
        if not calls:
            calls.append(name)
            then()
            stamp(what)
        return result

    setattr(owner, name, call)


def in_training() -> None:
    """The stages of a training, once its modules are there."""
    import torch

    import ringfence.weak.experiments.train as experiment
    from ringfence.weak.training import fit
    from ringfence.weak.training.module import WeakSegmentation

    def waited() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    stamp("application imported, GPU awake")
    after(experiment, "checked_box_task", "set read and checked")
    after(experiment, "checked_network", "network checked")
    after(fit, "make_data", "network built, Trainer made")
    after(WeakSegmentation, "on_fit_start", "graphs recorded", waited)
    after(WeakSegmentation, "training_step", "first step", waited)
    plain = WeakSegmentation.training_step

    def step(*words: Any) -> Any:
        loss = plain(*words)
        if "counted" not in vars(step):
            vars(step)["counted"] = True
            print("COMPILER", "torch._dynamo" in sys.modules, "MODULES", len(sys.modules), flush=True)
        return loss

    WeakSegmentation.training_step = step  # type: ignore[method-assign,assignment]


def main() -> int:
    """Run the command."""
    stamp("Python started")
    from ringfence import cli
    from ringfence.cli import quick_start

    command: Any = import_module("ringfence.cli.train")

    after(command.Experiment, "parsed", "arguments parsed")
    lightning, start = quick_start.import_lightning, command.quick_start

    def import_lightning(*words: Any, **options: Any) -> None:
        import torch  # noqa: F401

        stamp("torch imported")
        lightning(*words, **options)
        stamp("Lightning imported")

    def started(*words: Any, **options: Any) -> Any:
        context = start(*words, **options)
        leave = type(context).__exit__

        class Stamped:
            def __enter__(self) -> None:
                context.__enter__()

            def __exit__(self, *error: Any) -> None:
                leave(context, *error)
                in_training()

        return Stamped()

    quick_start.import_lightning = import_lightning
    after(quick_start, "import_monai", "MONAI imported")
    command.quick_start = started
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
