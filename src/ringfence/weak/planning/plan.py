"""A plan: every setting that follows from a set's fingerprint, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ringfence.hints import one_line
from ringfence.weak.planning.barrier import barrier_choices
from ringfence.weak.planning.choice import Choice, Device
from ringfence.weak.planning.computing import network_choices
from ringfence.weak.planning.fingerprint import ClassFacts, Fingerprint
from ringfence.weak.planning.hand import hand_choices, hand_remarks
from ringfence.weak.planning.remarks import cpu_remarks, set_remarks
from ringfence.weak.planning.rounds import learns_from_looks, round_choices
from ringfence.weak.planning.space import VOXELS, in_space, patch_of, space_choices
from ringfence.weak.planning.views import view_choices


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
    volumes: bool | None = None,
) -> Plan:
    """Every setting that follows from the fingerprint, for a GPU or a CPU.

    Args:
        fingerprint: of the set.
        device: what trains.
        drawn: whether boxes were drawn by hand, and may be a little too wide.
        bf16: whether a CPU multiplies bfloat16 by itself. Not in volumes: there torch's convolutions were seen to
            return NaN for finite numbers.
        patch: slices, rows and columns of patches, if they are asked for.
        volumes: train on volumes, or on slices; None: whichever is better for such objects.
    """
    if volumes is False and not fingerprint.tight:
        raise ValueError(
            "data.volumes false asks for slices, and all boxes are in 3-D: they say too little of a slice to find "
            "anything by. Leave it out, or give boxes in slices"
        )
    sized = patch is not None
    asked = sized or volumes is not None
    volumes = sized or (in_space(fingerprint, device) if volumes is None else volumes)
    patch = patch or (patch_of(fingerprint, VOXELS[device]) if volumes else None)
    choices = [
        *(hand_choices(fingerprint) if drawn else ()),
        *space_choices(fingerprint, device, patch, asked, sized),
        *network_choices(fingerprint, device, patch, bf16 and device == "cpu" and not volumes),
        *barrier_choices(fingerprint, volumes),
        *view_choices(fingerprint, volumes),
        *round_choices(fingerprint, volumes),
    ]
    remarks = [
        *set_remarks(fingerprint, looked=not volumes and learns_from_looks(fingerprint)),
        *(hand_remarks(fingerprint) if drawn else ()),
        *(cpu_remarks(fingerprint, volumes) if device == "cpu" else ()),
    ]
    return Plan(fingerprint, tuple(choices), tuple(remarks))


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
