"""A plan: every setting that follows from a set's fingerprint, with the reason."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ringfence.hints import one_line
from ringfence.weak.planning.fingerprint import ClassFacts, Fingerprint
from ringfence.weak.training.settings import TrainingSettings

ODDS: Final = (0.1, 9.0)
"""Of being in the box, at which a pixel becomes foreground: in the first epoch, and in the last."""
PRESENCE: Final = 1.0
"""The most odds of being there at all, at which an object is found."""
STRENGTH: Final = 5.0
"""Of edges, against what strips pull at the corners of boxes with."""
EARLY: Final = 0.7
"""Of the epochs: the odds of edges are then those of the last one, where objects show."""
VISIBLE: Final = 0.2
"""Of the boxes of a class, in which the object is told from its surroundings by brightness: enough to go by."""
FILLED: Final = 0.65
"""Of a box: what fills less, as far as it is seen, is no ellipse."""
SMOOTHING: Final = 0.5
"""Of a strip's width, if that is more than a pixel: the deviation of the Gaussian that smooths what is found, where
objects do not show."""
LINES: Final = 12
"""As many strips go across an object."""
LEAST: Final = 3.0
"""Pixels along a side: what is smaller says little more than where it is."""
ERROR: Final = 0.05
"""Of a box's side, by which people draw it too wide, on either end."""
LOOSE: Final = (0.03, 0.15)
"""Of a box's side, by which boxes seem too wide at either end: below the first they are not, above the second it is
not the boxes."""
OFTEN: Final = 0.8
"""In this fraction of its boxes a class lies within another, for the plan to speak of it."""
HALVINGS: Final = 16
"""The network halves a side four times."""
RATES: Final = {32: 5e-4, 16: 1e-3, 8: 2e-3}
"""Learning rates by the network's width: those that the presets were found with."""
LARGE: Final = 128 * 128
"""Pixels of a slice, beyond which a CPU has half as many of them in a batch."""
STEPS: Final = {"cuda": 5600, "cpu": 800}
"""Of a training on slices; a CPU takes 400 for each class, if that is more: classes are found one after another."""
PIXELS: Final = STEPS["cpu"] * 8 * 256 * 256
"""That a CPU goes over in minutes: smaller slices are seen more often."""
MANY: Final = 2800
"""Steps of a CPU on the smallest slices."""
OF_VOLUMES: Final = 2800
"""Steps of a GPU on volumes, each of which has as many voxels as dozens of slices."""
FASTER: Final = 1.6
"""Times as many steps a CPU takes in bfloat16, if it multiplies that by itself (results/speed/bf16_cpu.md)."""
VOXELS: Final = {"cuda": 128**3, "cpu": 32 * 64 * 64}
"""Of a patch, at most."""

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Choice:
    """One setting of a plan.

    Attributes:
        name: of the setting, dotted.
        value: what it is set to.
        reason: why, in a line.
    """

    name: str
    value: Any
    reason: str


@dataclass(frozen=True)
class Plan:
    """Settings for a set.

    Attributes:
        fingerprint: what it was made from.
        choices: the settings.
        remarks: what boxes cannot tell, and what looks odd.
    """

    fingerprint: Fingerprint
    choices: tuple[Choice, ...]
    remarks: tuple[str, ...] = ()

    @property
    def changes(self) -> dict[str, Any]:
        """The settings by their dotted names."""
        return {one.name: one.value for one in self.choices}

    def __str__(self) -> str:
        lines = [f"{one_line(self.fingerprint.name)}: {_about(self.fingerprint)}"]
        for one in self.choices:
            lines += [f"  {one.name}: {_shown(one.value)}", f"      {one.reason}"]
        return "\n".join([*lines, *(f"  note: {remark}" for remark in self.remarks)])


def make_plan(
    fingerprint: Fingerprint,
    device: Device,
    drawn: bool = False,
    bf16: bool = False,
    patch: Sequence[int] | None = None,
) -> Plan:
    """Every setting that follows from the fingerprint, for a GPU or a CPU.

    Args:
        fingerprint: of the set.
        device: what trains.
        drawn: whether boxes were drawn by hand, and may be a little too wide.
        bf16: whether a CPU multiplies bfloat16 by itself. Not in volumes: there torch's convolutions were seen to
            return NaN for finite numbers.
        patch: slices, rows and columns of patches, if volumes are asked for.
    """
    asked = patch is not None
    volumes = asked or not fingerprint.tight
    patch = patch or (_patch(fingerprint, VOXELS[device]) if volumes else None)
    choices = [
        *(_hand(fingerprint) if drawn else ()),
        *_space(fingerprint, device, patch, asked),
        *_network(fingerprint, device, patch, bf16 and device == "cpu" and not volumes),
        *_barrier(fingerprint, volumes),
    ]
    remarks = [*_remarks(fingerprint), *(_slow(fingerprint) if device == "cpu" and not volumes else ())]
    return Plan(fingerprint, tuple(choices), tuple(remarks))


def _hand(found: Fingerprint) -> list[Choice]:
    """What may be wrong about boxes from a file."""
    side = min(one.side for one in found.classes)
    return [
        *_tighter(found),
        Choice(
            "data.margin",
            round(ERROR * side),
            f"drawn by hand: sides may be {ERROR:.0%} of {side:.0f} pixels too far out, and lines so close to "
            "them need not meet the object",
        ),
    ]


def _tighter(found: Fingerprint) -> list[Choice]:
    """Of boxes that are drawn too wide, where that is seen: one hand draws all classes."""
    seen = [one.loose for one in found.classes if one.loose is not None and one.visible >= VISIBLE]
    loose = statistics.median(seen) if seen else 0.0
    least, most = LOOSE
    side = max(one.side for one in found.classes)
    if not least <= loose <= most or loose * side <= 0.5:  # less than a pixel's half
        return []
    return [
        Choice(
            "data.tighten",
            round(loose, 3),
            f"objects are seen to begin {loose:.1%} of a box's side within it, on average: boxes are made smaller "
            "by so much at either end",
        )
    ]


def _space(found: Fingerprint, device: Device, patch: Sequence[int] | None, asked: bool) -> list[Choice]:
    """Slices, or patches of volumes that are larger than the boxes."""
    apart = found.flatness
    known = "of unknown spacing" if apart is None else f"{apart:.1f} times as far apart as rows"
    if patch is None:
        what = "images of one slice" if found.depths[2] == 1 else f"slices ({known})"
        return [Choice("data.patch", None, f"{what}: each has boxes of its own, and they say most there")]
    if asked:
        return [Choice("data.patch", list(patch), f"volumes ({known}), as asked for")]
    longest, most = max(one.longest for one in found.classes), found.depths[2]
    filled = (
        f"; the network halves slices four times, too, and up to {most} of them are filled up to {patch[0]}"
        if most < patch[0]
        else ""
    )
    return [
        Choice(
            "data.patch",
            list(patch),
            f"volumes ({known}): boxes are in 3-D, and speak of whole objects alone; a patch is larger than "
            f"nine of ten boxes ({longest:.0f} pixels) as far as {VOXELS[device]:,} voxels allow, and where they "
            f"do not, about as long along slices as along rows, in {'voxels' if apart is None else 'millimetres'}"
            f"{filled}",
        )
    ]


def _patch(found: Fingerprint, most: int) -> list[int]:
    """Whole boxes and more, in all slices; what is too much is taken from the side that is longest in space."""
    longest = max(one.longest for one in found.classes)
    sides = [_up(found.depths[2]), *(min(_up(side), _up(1.5 * longest)) for side in found.size)]
    steps = found.spacing or (1.0, 1.0, 1.0)
    while math.prod(sides) > most and max(sides) > HALVINGS:
        lengths = [side * step if side > HALVINGS else 0.0 for side, step in zip(sides, steps, strict=True)]
        sides[lengths.index(max(lengths))] -= HALVINGS
    return sides


def _up(length: float) -> int:
    return max(1, math.ceil(length / HALVINGS)) * HALVINGS


def _network(found: Fingerprint, device: Device, patch: Sequence[int] | None, faster: bool) -> list[Choice]:
    volumes, pixels = patch is not None, math.prod(found.size if patch is None else patch)
    width = 32 if device == "cuda" else 8 if volumes else 16
    features = [width, width, 2 * width, 4 * width, 8 * width, width]
    arguments = {"features": features, "act": "relu", "norm": "batch", "upsample": "nontrainable"}
    where = "a GPU" if device == "cuda" else "a CPU"
    batch = 2 if volumes else 8 if device == "cpu" and pixels > LARGE else 16
    steps = OF_VOLUMES if device == "cuda" and volumes else STEPS[device]
    if device == "cpu":
        seen = min(MANY, round(PIXELS / (batch * pixels), -2))
        steps = int(max(steps, seen, 400 * len(found.classes)))
        steps = int(round(FASTER * steps, -2)) if faster else steps
    samples = found.cases if volumes else found.slices
    epochs = TrainingSettings(None, steps, batch).lasting(samples).length
    return [
        Choice("network.class_path", "monai.networks.nets.BasicUNet", "halves four times: sees 140 pixels around"),
        Choice("network.init_args", arguments, f"as wide as {where} trains in minutes"),
        Choice("training.lr", RATES[width], "the narrower the network, the larger"),
        Choice(
            "training.batch_size",
            batch,
            "volumes: as little as batch norms can do with" if volumes else "slices, as many as train in minutes",
        ),
        *([Choice("training.precision", "bf16", "this processor multiplies bfloat16 by itself")] if faster else []),
        Choice("training.steps", steps, f"about {epochs} epochs of {samples} samples"),
        Choice("training.epochs", None, "as many as the steps take"),
    ]


def _barrier(found: Fingerprint, volumes: bool) -> list[Choice]:
    first, last = ODDS
    return [
        _strips(found),
        *([] if volumes else _finding()),
        *_edges(found, volumes),
        Choice(
            "log_barrier.unit", "odds", "t² are the odds of being in the box at which a pixel becomes foreground"
        ),
        Choice("log_barrier.weights", {}, "what is outside is measured by the class's median box"),
        Choice("log_barrier.t", round(math.sqrt(first), 4), f"odds of {first:g} at first: boxes fill"),
        Choice("log_barrier.mu", None, "to final_t"),
        Choice("log_barrier.final_t", round(math.sqrt(last), 4), f"odds of {last:g} at last: corners are left out"),
        Choice("full_supervision.dice", 1.0, "where masks are used: cross-entropy and Dice loss"),
    ]


def _edges(found: Fingerprint, volumes: bool) -> list[Choice]:
    """Corners, of which boxes say nothing."""
    shown = min(one.visible for one in found.classes)
    corners = Choice(
        "constraints.edges.strength",
        STRENGTH,
        "boxes say nothing of their corners: a boundary between pixels that look alike costs something",
    )
    if volumes:
        return [corners]
    if shown < VISIBLE:
        return [corners, *([] if any(one.visible >= VISIBLE for one in found.classes) else _smoothing(found))]
    return [
        corners,
        Choice("constraints.edges.fading", False, "or regions would rather be less likely than leave corners out"),
        Choice(
            "log_barrier.early",
            {"edges": EARLY},
            f"objects can be told from their surroundings in {shown:.0%} of boxes or more: edges have their last "
            f"odds after {EARLY:.0%} of the epochs, while the network still learns",
        ),
    ]


def _finding() -> list[Choice]:
    """Whether there is an object at all, and where it ends: in slices, for a patch is but a part of a volume."""
    return [
        Choice("constraints.outside.absent", False, "slices without a box of a class are left to absent"),
        Choice("constraints.absent", {}, "nothing of a class is in slices without a box of it, at odds of its own"),
        Choice(
            "log_barrier.most_odds",
            {"absent": PRESENCE},
            "even odds of being there are enough for an object to be found: those of new cases seldom look as sure "
            "as those that were learnt",
        ),
        Choice(
            "training.calibrate", True, "at the end, odds of 1/2 are enough for a pixel, unless boxes say otherwise"
        ),
    ]


def _smoothing(found: Fingerprint) -> list[Choice]:
    """Of what is found: where nothing shows, strips are the finest that is known of an outline."""
    width = min(_widths(found).values())
    if width == 1:
        return []
    return [
        Choice(
            "training.smoothing",
            SMOOTHING * width,
            f"objects are not told from their surroundings by brightness, and strips {width} pixels wide say "
            "nothing of what is finer: an outline that is more ragged is noise",
        )
    ]


def _widths(found: Fingerprint) -> dict[str, int]:
    """Of strips, by class."""
    return {one.name: max(1, round(one.side / LINES)) for one in found.classes}


def _strips(found: Fingerprint) -> Choice:
    """One width if it would be the same for all classes: strips of each width take a pass of their own."""
    widths = _widths(found)
    sides = ", ".join(f"{one_line(one.name)}, {one.side:.0f} pixels" for one in found.classes)
    if len(set(widths.values())) > 1:
        return Choice("constraints.strips.width", widths, f"a {LINES}th of each class's own side: {sides}")
    return Choice(
        "constraints.strips.width", min(widths.values()), f"a {LINES}th of the shorter median side: {sides}"
    )


def _slow(found: Fingerprint) -> list[str]:
    """Slices that a CPU sees too seldom, and whose objects would be large enough at half their size."""
    height, width = found.size
    if height * width <= LARGE or min(one.side for one in found.classes) < 2 * LINES:
        return []
    half = f"{_up(height / 2)} {_up(width / 2)}"
    return [
        f"a CPU sees slices of {height} × {width} few times in the minutes that it is given; objects would be "
        f"large enough at half the size: prepared with --size {half}, it sees them four times as often"
    ]


def _remarks(found: Fingerprint) -> list[str]:
    notes = [
        f"nine of ten boxes of {one_line(one.name)} are at most {one.longest:.0f} pixels wide, half of them "
        f"{one.side:.0f}: that says where it is, not what shape it has; prepare the set with larger "
        "slices (--size) if the images are larger"
        for one in found.classes
        if one.side < LEAST
    ]
    notes += [
        f"{one_line(inner)} lies within the boxes of {one_line(outer)} in {share:.0%} of its boxes: there both are "
        "asked for, and only what they look like tells them apart. If one is always inside of the other, say so: "
        f"--constraints.inclusion '{{inner: {one_line(inner)}, outer: {one_line(outer)}}}'"
        for (inner, outer), share in found.within.items()
        if share >= OFTEN
    ]
    notes += [
        f"{one_line(one.name)} seems to fill no more than {one.fill:.0%} of its boxes. What is thin and lies at an "
        "angle leaves most of its box to others, and boxes do not say so: look whether they are filled. Scribbles "
        "would say more (--constraints.scribbles.file), or masks of some cases"
        for one in found.classes
        if one.visible >= VISIBLE and one.fill < FILLED
    ]
    if found.uneven > 1.5:
        notes.append(
            f"pixels of one case are {found.uneven:.1f} times as large as another's: prepare the set again, with "
            "--spacing auto"
        )
    if not found.validated:
        notes.append("no case for validation has a mask: nothing here can be measured by Dice (docs/quality.md)")
    return notes


def _about(found: Fingerprint) -> str:
    size = " × ".join(map(str, found.size))
    each = "; ".join(_class(one) for one in found.classes)
    channels = f"{found.channels} channel{'s' * (found.channels > 1)}"
    return f"{found.cases} cases, {found.slices} slices of {size}, {channels}. {each}"


def _class(one: ClassFacts) -> str:
    return (
        f"{one_line(one.name)}: {one.boxes} boxes in {one.slices} slices, {one.rows[1]:.0f} × {one.columns[1]:.0f}"
    )


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)
