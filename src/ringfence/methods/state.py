"""What a method remembers, and how it gets into a ``state_dict`` and back."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from ringfence.documents import parse_json

HEADER: Final = "header"


class Remembering(nn.Module, ABC):
    """A module whose state is a few exact numbers and some named tensors, all of it in ``state_dict``.

    Registered buffers would not do: their shapes must be known before the first call, ``.half()`` would round
    multipliers and overflow ``t``, and ``DistributedDataParallel`` would overwrite what each rank has seen so
    far with rank 0's. So the state lives in plain attributes, and this class writes it to, and reads it from,
    the state dict: tensors only, which torch's ``weights_only`` loading and safetensors accept. The header,
    JSON in a uint8 tensor, tells whose state it is.
    """

    # No parameters, buffers or submodules: attributes are plain, without the bookkeeping that would take longer
    # than a small step.
    __setattr__ = object.__setattr__  # type: ignore[assignment]

    @abstractmethod
    def _header(self) -> dict[str, Any]:
        """What must agree between writer and reader, as JSON values."""

    @abstractmethod
    def _refusal(self, header: dict[str, Any], tensors: Mapping[str, Tensor]) -> str | None:
        """Why a state with this header and these tensors cannot be taken; None if it can."""

    def _knows(self, name: str, header: dict[str, Any]) -> bool:
        """Whether a state with this header may hold a tensor called ``name``."""
        return False

    @abstractmethod
    def _numbers(self) -> dict[str, float]:
        """The scalar state, by name."""

    @abstractmethod
    def _tensors(self) -> dict[str, Tensor]:
        """The tensor state, by dotted name."""

    @abstractmethod
    def _restore(self, header: dict[str, Any], numbers: dict[str, float], tensors: dict[str, Tensor]) -> None:
        """Take over a state that was not refused."""

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        text = json.dumps(self._header(), sort_keys=True).encode()
        destination[prefix + HEADER] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        for name, number in self._numbers().items():
            destination[prefix + name] = torch.tensor(number, dtype=torch.float64)
        for name, tensor in self._saved().items():
            destination[prefix + name] = tensor

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        mine = {key[len(prefix) :]: value for key, value in state_dict.items() if key.startswith(prefix)}
        if HEADER not in mine:
            missing_keys.append(prefix + HEADER)  # torch raises, or not, as its caller's strict= says
            unexpected_keys.extend(prefix + key for key in mine)
            return
        header = _unpacked(mine.pop(HEADER))
        if header is None:
            error_msgs.append(f"{prefix}{HEADER} is damaged: it should be what state_dict() gave")
            return
        if header.get("method") != type(self).__name__:
            error_msgs.append(
                f"this state was saved by {header.get('method')}, but it is being loaded into "
                f"{type(self).__name__}: build the method that saved it"
            )
            return
        wanted = set(self._numbers())
        numbers = {name: float(mine.pop(name)) for name in wanted & set(mine)}
        if wanted - set(numbers):
            error_msgs.append(f"the state lacks {', '.join(sorted(wanted - set(numbers)))}")
            return
        known = {name for name in mine if self._knows(name, header)}
        unexpected_keys.extend(prefix + name for name in mine if name not in known)
        mine = {name: mine[name] for name in known}
        refusal = self._refusal(header, mine)
        if refusal is not None:
            error_msgs.append(refusal)
            return
        self._restore(header, numbers, self._taken(header, mine))

    def _saved(self) -> dict[str, Tensor]:
        """``_tensors`` as a state holds them: copies, since training goes on while the caller still has it."""
        return {name: tensor.detach().clone() for name, tensor in self._tensors().items()}

    def _taken(self, header: dict[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A state's tensors as ``_restore`` takes them: copies, since the caller may go on with them."""
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Remembering:
        nn.Module._apply(self, fn, recurse)
        # Follow the module to its device, never to its dtype: an empty probe tells which device that is.
        moved = {name: tensor.to(fn(tensor.new_empty(0)).device) for name, tensor in self._tensors().items()}
        self._restore(self._header(), self._numbers(), moved)
        return self


def _unpacked(packed: Any) -> dict[str, Any] | None:
    """What the tensor of bytes says, if it is one."""
    if not (isinstance(packed, Tensor) and packed.dtype == torch.uint8 and packed.ndim == 1):
        return None
    try:
        header = parse_json(bytes(packed.tolist()).decode("utf-8"), HEADER)
    except ValueError:
        return None
    return header if isinstance(header, dict) else None
