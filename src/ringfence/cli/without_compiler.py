"""Lightning without torch's compiler: ``torch._dynamo`` and SymPy are a second of imports that few trainings use.

Lightning wants two things of the compiler, both only in case that somebody compiles: the class of compiled modules,
to ask whether a module is one, and a decorator that keeps it out of a function. torch's optimisers want the second,
too, and mark places where what is compiled must end. As long as nobody imports the compiler, nothing is compiled,
and all of it has a plain answer; when it is imported later, by whoever calls ``torch.compile``, it is asked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from types import FunctionType, ModuleType
from typing import Any, Final, cast

COMPILER: Final = "torch._dynamo"


class _AsksTheCompiler(type):
    def __instancecheck__(cls, instance: object) -> bool:
        compiled = getattr(sys.modules.get(COMPILER), cls.__name__, None)
        return compiled is not None and compiled is not cls and isinstance(instance, compiled)


class OptimizedModule(metaclass=_AsksTheCompiler):
    """In place of the compiler's class of that name: ``isinstance`` answers as it would."""


@contextmanager
def without_compiler(compiles: bool = False) -> Iterator[None]:
    """Let what is imported inside have a placeholder of the compiler; afterwards, it is imported by who needs it.

    What wants more of it than its class and its decorator fails: import that again outside.

    Args:
        compiles: it will be used anyway; then nothing is done.
    """
    import torch

    if compiles or COMPILER in sys.modules:
        yield
        return
    placeholder, compiler = ModuleType(COMPILER), cast("Any", torch.compiler)
    disable = compiler.disable
    placeholder.OptimizedModule = OptimizedModule  # type: ignore[attr-defined]

    def disable_later(fn: Any = None, *words: Any, **options: Any) -> Any:
        if isinstance(fn, FunctionType):
            return _later(fn, lambda: disable(fn, *words, **options))
        return disable(fn, *words, **options)

    sys.modules[COMPILER] = placeholder
    compiler.disable = disable_later
    try:
        yield
    finally:
        compiler.disable = disable
        if sys.modules.get(COMPILER) is placeholder:
            del sys.modules[COMPILER]
    _optimisers_without_it(disable)


def _later(fn: Callable[..., Any], disabled: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """``fn``, and once the compiler is there, what it makes of ``fn``."""
    made: list[Callable[..., Any]] = []

    @wraps(fn)
    def call(*words: Any, **options: Any) -> Any:
        if COMPILER not in sys.modules:
            return fn(*words, **options)
        if not made:
            made.append(disabled())
        return made[0](*words, **options)

    return call


def _optimisers_without_it(disable: Callable[..., Any]) -> None:
    """Both ways in which torch's optimisers import the compiler at their first call."""
    import torch

    lazy = getattr(sys.modules.get("torch._compile"), "__file__", "")
    base = getattr(sys.modules.get("torch.optim.optimizer"), "__file__", "")
    for one in vars(torch.optim.Optimizer).values():
        fn = _wrapped(one, lazy, "inner")
        if fn is not None:  # torch._disable_dynamo's: it asks for this attribute first
            vars(fn).setdefault("__dynamo_disable", _later(fn, partial(disable, fn)))
    for kind in vars(torch.optim).values():
        fn = _wrapped(vars(kind).get("step"), base, "_use_grad") if isinstance(kind, type) else None
        if fn is not None:
            kind.step = _step(fn, kind.step)


def _wrapped(function: Any, file: str, name: str) -> FunctionType | None:
    """What a decorator of torch wraps, if this is its work: it is known by its code's name and file."""
    code, fn = getattr(function, "__code__", None), getattr(function, "__wrapped__", None)
    ours = code is not None and (code.co_filename, code.co_name) == (file, name)
    return fn if ours and isinstance(fn, FunctionType) else None


def _step(fn: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.optim.optimizer._use_grad_for_differentiable``, less its marks for a compiler that is not there."""
    import torch

    @wraps(fn)
    def step(self: Any, *words: Any, **options: Any) -> Any:
        if COMPILER in sys.modules:
            return plain(self, *words, **options)
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            return fn(self, *words, **options)

    return step
