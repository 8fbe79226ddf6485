"""A finished training's folder, read back."""

from __future__ import annotations

import csv
import html
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.weak.inference.model_file import MODEL
from ringfence.weak.training.run_folder import METRICS

if TYPE_CHECKING:
    from ringfence.weak.inference.model import Model


@dataclass(frozen=True)
class Trained:
    """What ``train`` left behind.

    Attributes:
        path: its folder.
    """

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))

    @property
    def model_file(self) -> Path:
        """The model, for ``load_model`` and `ringfence predict`."""
        return self.path / MODEL

    @cached_property
    def history(self) -> list[dict[str, float]]:
        """Every epoch's measures, as metrics.csv has them; not a number where one is missing."""
        with (self.path / METRICS).open(newline="", encoding="utf-8") as lines:
            return [
                {name: float(value) if value else math.nan for name, value in row.items()}
                for row in csv.DictReader(lines)
            ]

    def load(self, **options: Any) -> Model:
        """The model, ready to predict; options as for ``load_model``."""
        from ringfence.weak.inference.model import load_model

        return load_model(self.model_file, **options)

    def __str__(self) -> str:
        last = self.history[-1]
        facts = [f"{name} {last[name]:.3f}" for name in ("dice", "satisfaction") if name in last]
        return f"Trained model {self.model_file}: {len(self.history)} epochs, {', '.join(facts)}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        names = [name for name in ("epoch", "train_loss", "dice", "satisfaction") if name in self.history[-1]]
        head = "".join(f"<th>{name}</th>" for name in names)
        body = "".join(
            f"<tr>{''.join(f'<td>{row[name]:.4g}</td>' for name in names)}</tr>" for row in self.history[-5:]
        )
        return f"<p>{html.escape(str(self))}</p><table><tr>{head}</tr>{body}</table>"
