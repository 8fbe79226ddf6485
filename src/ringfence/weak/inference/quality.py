"""What an answer says about itself, without any mask: how sure the network is, and whether views matter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from ringfence.weak.networks.likeliest import likeliest


@dataclass(frozen=True)
class Quality:
    """How far an answer can be trusted, by its own account; a number for each class.

    Attributes:
        uncertainty: 1 - mean of p over the class's mask, of its probabilities p: 0 is sure, a half a coin toss;
            not a number where there is no mask.
        flip_agreement: Dice between the answers about the image and about its flips and turns: 1 is the same;
            None where there were none.
    """

    uncertainty: tuple[float, ...]
    flip_agreement: tuple[float, ...] | None = None


class QualityTally:
    """Counts that become a ``Quality``, answer by answer.

    If probabilities are right, uncertainty is the share of the mask's voxels that are wrong. What may be missing
    from the mask is not in it: trained from boxes, networks leave a little probability everywhere, which adds up to
    more than an object (results/plan/README.md has what came of counting it).

    Args:
        classes: how many there are besides background.
    """

    def __init__(self, classes: int) -> None:
        self._rows: list[Tensor] = []
        self._votes = torch.zeros(classes, 2, dtype=torch.int64)
        self._flipped = False

    def add(self, probabilities: Tensor, labels: Tensor) -> None:
        """Count slices.

        Args:
            probabilities: ``[slices, 1 + K, height, width]``.
            labels: the likeliest classes, ``[slices, height, width]``.
        """
        rows = []
        for number in range(1, probabilities.shape[1]):
            share, drawn = probabilities[:, number], labels == number
            inside = torch.where(drawn, share, 0.0).sum(dim=(1, 2), dtype=torch.float64)
            rows.append(torch.stack([inside, drawn.sum(dim=(1, 2))], dim=-1))
        self._rows.append(torch.stack(rows, dim=1).cpu())

    def compare(self, answers: Sequence[Tensor]) -> None:
        """Count what answers ``[B, 1 + K, *space]`` to all views of the same images have in common, where all see.

        Of F answers, 2 Σ |A ∩ B| over all pairs / ((F - 1) Σ |A|) is the Dice of all pairs together.
        """
        if len(answers) < 2:
            return
        seen = torch.stack([one.sum(dim=1) > 0.5 for one in answers]).all(dim=0)
        chosen, counts = [likeliest(one).where(seen, 0) for one in answers], []
        for number in range(1, 1 + len(self._votes)):
            masks = [one == number for one in chosen]
            both = torch.stack([(one & other).count_nonzero() for one, other in combinations(masks, 2)]).sum()
            total = torch.stack([one.count_nonzero() for one in masks]).sum()
            counts.append(torch.stack([2 * both, (len(answers) - 1) * total]))
        self._votes = self._votes.to(chosen[0].device) + torch.stack(counts)
        self._flipped = True

    def quality(self) -> Quality:
        """Of all that was counted."""
        slices = torch.cat(self._rows).unbind(dim=1)  # each summed exactly: the same in batches of any size
        sums = [[math.fsum(column) for column in one.t().tolist()] for one in slices]
        uncertainty = tuple(1.0 - inside / total if total else math.nan for inside, total in sums)
        if not self._flipped:
            return Quality(uncertainty)
        votes = self._votes.tolist()
        return Quality(uncertainty, tuple(both / total if total else math.nan for both, total in votes))


def doubt_of(probabilities: Tensor) -> Tensor:
    """2 (1 - max_k p_k) of each voxel ``[slices, height, width]``: 0 where one class is sure, 1 at a coin toss."""
    return (2.0 - 2.0 * probabilities.amax(dim=1)).clamp_(max=1.0)
