"""Masks against the truth: evaluate (files and folders of them), scores (of two masks, of cases, in summary)."""

from ringfence.weak.evaluation.evaluate import Evaluation, Pair, evaluate, match_masks, score_pairs
from ringfence.weak.evaluation.scores import (
    Score,
    Scored,
    Summary,
    Unscored,
    complete,
    dice_of,
    hd95_of,
    mean_sd,
    scores_csv,
    summarise,
)

__all__ = [
    "Evaluation",
    "Pair",
    "Score",
    "Scored",
    "Summary",
    "Unscored",
    "complete",
    "dice_of",
    "evaluate",
    "hd95_of",
    "match_masks",
    "mean_sd",
    "score_pairs",
    "scores_csv",
    "summarise",
]
