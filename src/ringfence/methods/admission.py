"""What a method is given: names, shapes and values checked before anything is computed or kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from ringfence.checks import Check, Ledger, batched
from ringfence.methods.by_name import ByName, quoted
from ringfence.methods.schedule import Schedule
from ringfence.methods.state import Remembering
from ringfence.residuals import Constraint, Residual, as_residual

RESERVED: Final = ("index", "objective", "parameters", "radius", "tolerance")


@dataclass(slots=True)
class Call:
    """What a method was given, its names, shapes and values checked.

    Attributes:
        residuals: by name.
        index: which data point each row is, where the method asks for it.
        sound: False where float16 overflowed, which is no fault: a ``GradScaler`` leaves such a step out.
    """

    residuals: dict[str, Residual]
    index: Tensor | None
    sound: bool | Tensor = True


class Admitting(Remembering):
    """A method's door: constraints come in by name, and the names of the first call are those of all."""

    def __init__(
        self, weights: Mapping[str, float], shapes: Mapping[str, tuple[int, ...]], validate: bool | None
    ) -> None:
        super().__init__()
        self.weights, self.shapes = dict(weights), dict(shapes)
        self._names: frozenset[str] | None = None
        self._ledger = Ledger(validate)
        if self.shapes:
            self._check_new_names(tuple(self.shapes))
            self._names = frozenset(self.shapes)

    # What a concrete method says

    def _tells(self, name: str) -> bool:
        """Whether the term is finite only if every residual is, so that one number tells that all is well."""
        return False

    def _by_name(self) -> Iterable[ByName[Any] | Schedule]:
        """The settings that may be given by constraint name."""
        return ()

    def _index_checks(self, residuals: Mapping[str, Residual], index: Tensor | None) -> list[Check]:
        """What must hold of ``index``; nothing for methods that do not use it."""
        return []

    # What is looked at

    def _admit(self, constraints: Mapping[str, Constraint], index: Tensor | None, look: bool = True) -> Call:
        """Residuals with names and shapes agreed and values checked (or noted for later), and a harmless index."""
        if not constraints:
            raise ValueError(
                f"{type(self).__name__} was called without any constraint: "
                "name at least one, as in fence(size=rf.between(...))"
            )
        residuals = {name: as_residual(name, constraint) for name, constraint in constraints.items()}
        if self._names is None or residuals.keys() != self._names:
            self._check_new_names(tuple(residuals))
        if self.shapes:
            self._check_shapes(residuals)
        call = Call(residuals, index)
        if not torch.compiler.is_compiling():
            if look:
                self._check_values(call)
            for check in self._index_checks(residuals, index):
                self._ledger.add("index", check)
            if look:
                self._ledger.close_call()
        if self._names is None:  # only now: a call that failed fixes nothing
            self._names = frozenset(residuals)
        return call

    def _check_values(self, call: Call, told: bool = False) -> None:
        """Raise if a value is not a number, or note the check for later; overflows of float16 are let through.

        ``told`` says that the loss is finite. That settles plain residuals; behind an f of -inf, "no constraint",
        there may still be a value that is no number.
        """
        if self._ledger.validate is False:
            return
        for name, residual in call.residuals.items():
            plain = not (residual.ragged or residual.checks or residual.strict is not None)
            if told and plain and self._tells(name):
                continue
            if batched(residual.f):
                continue  # inside torch.vmap nobody can look
            for check in residual.all_checks():
                if not (residual.half and check.overflow):
                    self._ledger.add(f"constraint '{name}'", check)
                elif not check.on_cpu:
                    call.sound = call.sound & ~check.entries().any()
                elif call.sound is True:
                    call.sound = check.holds()

    def _check_shapes(self, residuals: Mapping[str, Residual]) -> None:
        for name, residual in residuals.items():
            row = tuple(residual.f.shape[1:])
            if name in self.shapes and row != self.shapes[name]:
                raise ValueError(
                    f"constraint '{name}' has rows of shape {list(row)}, declared were {list(self.shapes[name])}"
                )

    def _check_new_names(self, names: tuple[str, ...]) -> None:
        """Raise if names may not be these: because others came before, or because a setting speaks of others."""
        if self._names is None:
            taken = [name for name in names if name in RESERVED]
            if taken:
                raise ValueError(f"'{taken[0]}' cannot name a constraint: it is an argument of the methods")
            unused = sorted(set(self.weights) - set(names))
            if unused:
                raise ValueError(f"weights name {quoted(unused)}, but the constraints are {quoted(names)}")
            for setting in self._by_name():
                setting.check_names(names)
            return
        new, gone = sorted(set(names) - set(self._names)), sorted(set(self._names) - set(names))
        raise ValueError(
            f"the constraints' names changed: they were {quoted(sorted(self._names))}, now "
            + " and ".join(
                f"{quoted(those)} {'are' if len(those) > 1 else 'is'} {what}"
                for those, what in ((new, "new"), (gone, "missing"))
                if those
            )
            + ". Give every constraint in every call; use mask= for data points without one"
        )


def transformed() -> bool:
    """Whether torch.compile or torch.func is tracing, rather than computing."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
