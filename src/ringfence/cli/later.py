"""Modules that are imported when they are first used, for packages that import them in case they are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


@contextmanager
def imported_later(modules: Mapping[str, Sequence[str]], packages: Sequence[str] = ()) -> Iterator[None]:
    """Let what is imported inside have placeholders of these modules; whoever imports them later has the modules.

    A placeholder imports its module when something is asked of it, and so do the functions and classes by these
    names that it gives when they are called. Where a module is not installed, or is there already, nothing is done.

    Args:
        modules: by their full names, with functions and classes that are taken from them but called much later.
        packages: of which nothing is needed inside but functions and classes that are called much later, whatever
            modules they are in.
    """
    finder = _Finder(modules, [name for name in packages if name not in sys.modules])
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        finder.close()
        for placeholder in finder.given:
            placeholder.leave()


class _Placeholder(ModuleType):
    finder: _Finder

    def leave(self) -> None:
        """Make room for the module itself."""
        package, _, last = self.__name__.rpartition(".")
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        if vars(sys.modules.get(package, self)).get(last) is self:
            delattr(sys.modules[package], last)

    def module(self) -> ModuleType:
        """The module itself."""
        self.leave()
        return import_module(self.__name__)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python looks for these in everything
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        if not self.finder.has_whole(self.__name__):
            return getattr(self.module(), name)
        part = f"{self.__name__}.{name}"
        is_module = hasattr(self, "__path__") and PathFinder.find_spec(part, self.__path__) is not None
        return import_module(part) if is_module else _called_later(self, name)


class _Finder(MetaPathFinder, Loader):
    """Finds a placeholder for each of the modules, once, and for each of the packages and all that is in them."""

    def __init__(self, modules: Mapping[str, Sequence[str]], packages: Sequence[str]) -> None:
        self._left, self._packages = dict(modules), set(packages)
        self.given: list[_Placeholder] = []

    def has_whole(self, name: str) -> bool:
        """Whether a module gets a placeholder because of its package, now."""
        return name.partition(".")[0] in self._packages

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A placeholder's, if the module is there."""
        if name not in self._left and not self.has_whole(name):
            return None
        if (found := PathFinder.find_spec(name, path)) is None:
            return None
        spec = ModuleSpec(name, self, origin=found.origin)
        spec.submodule_search_locations = found.submodule_search_locations
        spec.has_location = True  # a module without a file is taken for an empty folder by some
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The placeholder."""
        placeholder = _Placeholder(spec.name, "Imported when it is first used.")
        placeholder.finder = self
        for name in self._left.pop(spec.name, ()):
            setattr(placeholder, name, _called_later(placeholder, name))
        self.given.append(placeholder)
        return placeholder

    def close(self) -> None:
        """Give no more placeholders."""
        self._left.clear()
        self._packages.clear()

    def exec_module(self, module: ModuleType) -> None:
        """It is left for later."""


def _called_later(placeholder: _Placeholder, name: str) -> Callable[..., Any]:
    def call(*words: Any, **options: Any) -> Any:
        return getattr(placeholder.module(), name)(*words, **options)

    call.__name__ = call.__qualname__ = name
    return call
