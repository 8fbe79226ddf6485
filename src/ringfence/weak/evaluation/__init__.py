"""Masks against the truth, or each other: evaluate and agreement (of files and folders), scores (of two masks)."""

from ringfence.weak.evaluation.agreement import Agreed, Agreement, agreement_between
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
    "Agreed",
    "Agreement",
    "Evaluation",
    "Pair",
    "Score",
    "Scored",
    "Summary",
    "Unscored",
    "agreement_between",
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
