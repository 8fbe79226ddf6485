"""The architecture as a test: who imports whom, read from the sources; and helpers that exist once."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
FILES = sorted((SOURCE / "ringfence").rglob("*.py"))
NAMES = {".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): file for file in FILES}

LAYERS = ("core", "segmentation", "weak", "report", "cli")
ROOMS = (
    *("ranks", "volumes", "tables", "datasets", "prepared", "annotations", "building", "constraints"),
    *("appearance", "tasks", "networks"),
    *("training", "planning", "inference", "presets", "experiments"),
)
BASICS = (
    *("files", "folders", "documents", "memory", "hints", "numbers", "options", "class_path", "extras"),
    "environment",
)
FACADES = {"ringfence", "ringfence.weak"}
"""Import names when they are touched: what they show is above them."""
STARTS = {"ringfence.__main__"}
"""Not part of a layer: it starts the command line."""


TREES = {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in NAMES.items()}


def imported(name: str, tree: ast.AST) -> set[str]:
    """The modules of ours that a module imports anywhere in it: at the top, in a function, for types alone."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one for alias in node.names for one in NAMES if alias.name == one}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}: imports are absolute here"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found |= {one for one in (inner if inner in NAMES else node.module,) if one in NAMES}
    return found - {name}


def without_types(tree: ast.Module) -> ast.Module:
    """What runs: without ``if TYPE_CHECKING:``."""
    kept = [one for one in tree.body if not (isinstance(one, ast.If) and "TYPE_CHECKING" in ast.dump(one.test))]
    return ast.Module(kept, [])


IMPORTS = {name: imported(name, tree) for name, tree in TREES.items()}


def layer(name: str) -> str:
    part = name.split(".")[1] if "." in name else ""
    return part if part in LAYERS else "core"


def room(name: str) -> str | None:
    parts = name.split(".")
    return parts[2] if layer(name) == "weak" and len(parts) > 2 else None


def test_the_imports_are_really_read() -> None:
    """Of each way to write one, an example that is in the sources."""
    assert "ringfence.weak.training.fit" in IMPORTS["ringfence.weak.experiments.one_training"]  # from a import b
    assert "ringfence.class_path" in IMPORTS["ringfence.weak.networks.build"]  # from package import module
    assert "ringfence.weak.experiments.compare" in IMPORTS["ringfence.cli.compare"]  # in a function
    assert "ringfence.weak.inference.export" in IMPORTS["ringfence.cli.predict"]  # for types
    assert len(NAMES) > 100


@pytest.mark.parametrize("name", [one for one in NAMES if one not in FACADES | STARTS])
def test_nothing_imports_upwards(name: str) -> None:
    here = LAYERS.index(layer(name))
    for other in IMPORTS[name]:
        assert LAYERS.index(layer(other)) <= here, f"{name} ({LAYERS[here]}) imports {other} ({layer(other)})"


@pytest.mark.parametrize("name", [one for one in NAMES if room(one)])
def test_rooms_import_only_those_before_them(name: str) -> None:
    for other in IMPORTS[name]:
        if layer(other) != "weak":
            continue
        ours, theirs = room(name), room(other)
        if ours == "evaluation":
            assert theirs in ("ranks", "volumes", "evaluation"), f"{name} imports {other}"
        else:
            assert theirs is not None, f"{name} imports the façade"
            assert ROOMS.index(theirs) <= ROOMS.index(ours or ""), f"{name} imports {other}"


def test_the_rooms_are_those_that_the_application_names() -> None:
    text = ast.get_docstring(TREES["ringfence.weak"]) or ""
    named = re.findall(r"^- (\w+)", text, re.MULTILINE)
    assert named == [*(one for one in ROOMS if one != "presets"), "evaluation"]
    assert set(ROOMS) | {"evaluation"} == {room(name) for name in NAMES if room(name)}


@pytest.mark.parametrize("basic", BASICS)
def test_the_basics_stand_on_each_other_alone(basic: str) -> None:
    allowed = {f"ringfence.{one}" for one in BASICS}
    if basic == "environment":
        allowed |= {"ringfence"}  # its version
    assert IMPORTS[f"ringfence.{basic}"] <= allowed


def test_there_is_no_import_cycle() -> None:
    """Of what runs; a façade is asked for single names, which come from where they live."""
    graph = {
        name: imported(name, without_types(tree)) - FACADES for name, tree in TREES.items() if name not in FACADES
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        pytest.fail(f"an import cycle: {' <- '.join(cycle.args[1])}")


@pytest.mark.parametrize(
    ("helper", "home"),
    [
        ("get_close_matches", "hints"),
        ("os.fsync", "files"),
        ("hashlib.sha256", "files"),
        ("FileLock", "folders"),
        ("json.loads", "documents"),
        ("yaml.safe_load", "documents"),
    ],
)
def test_what_everybody_needs_exists_once(helper: str, home: str) -> None:
    found = [name for name, file in NAMES.items() if f"{helper}(" in file.read_text(encoding="utf-8")]
    assert found == [f"ringfence.{home}"]


OF_A_KIND = {"run"}
"""Every command has one."""


def test_no_two_modules_define_the_same_helper() -> None:
    """Neither a function of the same name, unless it is what every file of its kind has, nor one of the same body."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    bodies: defaultdict[str, list[str]] = defaultdict(list)
    for name, tree in TREES.items():
        if name.endswith("kernels"):  # Triton's: each file a language of its own
            continue
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):
                homes[node.name].append(name)
                said = ast.get_docstring(node) is not None
                bodies[ast.dump(ast.Module(node.body[said:], []))].append(f"{name}.{node.name}")
    public = {name for name in homes if not name.startswith("_")} - OF_A_KIND
    assert {name: homes[name] for name in public if len(homes[name]) > 1} == {}
    assert [where for where in bodies.values() if len(where) > 1] == []


def test_files_are_read_in_one_sitting() -> None:
    lengths = Counter({name: len(file.read_text(encoding="utf-8").splitlines()) for name, file in NAMES.items()})
    assert lengths.most_common(1)[0][1] <= 400, lengths.most_common(3)
