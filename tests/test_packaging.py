"""The package as a newcomer meets it: light imports, a bare environment, a wheel, the command line."""

from __future__ import annotations

import errno
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import ringfence as rf
from children import called, python
from ringfence.cli import main

ROOT = Path(__file__).parent.parent

# Imports of everything but torch and what torch itself needs fail, as in a bare environment.
BARE = """
import sys
BLOCKED = {"torchmetrics", "pytorch_lightning", "lightning", "lightning_utilities", "monai", "numpy", "scipy",
           "matplotlib", "cvxpy", "rich", "jsonargparse"}
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.split(".")[0])
sys.meta_path.insert(0, Block())
import warnings
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
"""

USE = """
import torch, ringfence as rf
x = torch.zeros(3, requires_grad=True)
for make in (rf.LogBarrier, rf.Penalty, rf.Lagrangian, rf.ReLULagrangian, rf.AugmentedLagrangian):
    fence = make()
    fence(size=rf.between(x, -1.0, 1.0), index=torch.arange(3)).backward()
    fence.step()
    fence.load_state_dict(fence.state_dict())
    str(fence.certificate(0.0, size=rf.between(x, -1.0, 1.0), index=torch.arange(3)))
"""


def test_the_core_needs_torch_alone() -> None:
    done = python("-c", BARE + USE + "assert not BLOCKED & set(sys.modules)\nprint('fine')")
    assert done.stdout.strip() == "fine", done.stderr


@pytest.mark.parametrize(
    ("touch", "message"),
    [
        (
            "ringfence.Monitor",
            "rf.Monitor needs torchmetrics: pip install 'ringfence[metrics]' (from a clone: pip install '.[metrics]') brings it",
        ),
        (
            "ringfence.lightning",
            "ringfence.lightning needs pytorch-lightning: pip install 'ringfence[lightning]' (from a clone: pip install '.[lightning]') brings it",
        ),
    ],
)
def test_a_missing_extra_names_its_install_command(touch: str, message: str) -> None:
    blocked_too = BARE.replace("sys.meta_path", "import importlib.util as u\nreal = u.find_spec\n"
        "u.find_spec = lambda n, p=None: None if n.split('.')[0] in BLOCKED else real(n, p)\nsys.meta_path")  # fmt: skip
    done = python("-c", f"{blocked_too}\nimport ringfence\n{touch}")
    assert done.stderr.strip().splitlines()[-1] == f"ModuleNotFoundError: {message}"


def test_importing_costs_nothing_before_torch_is_needed() -> None:
    """What `import ringfence` loads: its own file. What the first name loads: torch and files of the core."""
    done = python(
        "-c",
        "import sys; before = set(sys.modules)\n"
        "import ringfence; print('torch' in sys.modules)\n"
        "import torch; before = set(sys.modules)\n"
        "ringfence.LogBarrier, ringfence.between, ringfence.log_barrier\n"
        "print(sorted({name.split('.')[0] for name in set(sys.modules) - before}))",
    )
    assert done.stdout.splitlines() == ["False", "['ringfence']"], done.stderr


def test_public_names_are_all_there() -> None:
    for name in dir(rf):
        assert getattr(rf, name) is not None
    done = python("-c", BARE + "from ringfence import *\nprint(LogBarrier.__name__, 'Monitor' in globals())")
    assert done.stdout.split() == ["LogBarrier", "False"], done.stderr


def build(kind: str, folder: Path) -> Path:
    """The wheel or the sdist, by the backend itself: nothing is downloaded."""
    done = python("-m", "hatchling", "build", "-t", kind, "-d", folder, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("ringfence-*")
    return made


PRESETS = {f"weak/presets/{file.name}" for file in (ROOT / "src/ringfence/weak/presets").glob("*.yaml")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What it holds, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(build("wheel", folder)) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


def test_the_wheel_holds_all_that_is_needed_and_nothing_else(wheel: Path) -> None:
    names = {str(file.relative_to(wheel)) for file in wheel.rglob("*") if file.is_file()}
    assert len(PRESETS) >= 6
    assert {f"ringfence/{name}" for name in {"py.typed", *PRESETS}} <= names
    sources = {str(file.relative_to(ROOT / "src")) for file in (ROOT / "src").rglob("*.py")}
    assert sources <= names
    assert {name.split("/")[0] for name in names} == {"ringfence", f"ringfence-{rf.__version__}.dist-info"}
    assert not [name for name in names if name.endswith((".pyc", ".pt", ".png"))]


def test_the_sdist_holds_all_that_is_needed(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/ringfence/{name}" for name in {"py.typed", "__init__.py", *PRESETS}} <= names
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names
    large = [name for name in names if name.startswith((".venv", "runs", "results", "site"))]
    assert not [name for name in large if not name.endswith("README.md")]


def test_the_core_of_the_wheel_works_on_torch_alone(wheel: Path) -> None:
    where = "import ringfence.barrier; print(ringfence.barrier.__file__)"
    done = python("-c", BARE + f"sys.path.insert(0, {str(wheel)!r})" + USE + where)
    assert done.stdout.strip().startswith(str(wheel)), done.stderr


def test_the_wheel_compares_methods(wheel: Path, tmp_path: Path) -> None:
    """From its own presets, in another folder; only the packages around it are those of the tests."""
    command = ["compare", "synthetic", "--methods", "penalty", "--data.size=24", "--data.train=4"]
    command += ["--data.validation=2", "--training.epochs=1", "--training.device=cpu", "--out=run"]
    done = python(
        "-c",
        f"import os, sys; os.chdir({str(tmp_path)!r}); sys.path.insert(0, {str(wheel)!r})\n"
        f"from ringfence.cli import main; import ringfence.weak; print(ringfence.weak.__file__)\nmain({command})",
        OMP_NUM_THREADS="1",
    )
    assert done.stdout.startswith(str(wheel)), done.stderr
    assert "Penalty" in done.stdout, done.stderr
    assert (tmp_path / "run" / "seed-0" / "penalty" / "model.safetensors").exists()


# The command line


def test_help_does_not_load_torch() -> None:
    for arguments in ("--help", "--version", "barrier --help", "prepare --help", "compare synthetic --help"):
        done = python(
            "-c",
            f"import sys; sys.argv = ['ringfence', *{arguments.split()!r}]\n"
            "from ringfence.cli import main\n"
            "try: code = main()\n"
            "except SystemExit as end: code = end.code\n"
            "print('exit', code, 'torch' in sys.modules)",
        )
        assert done.stdout.splitlines()[-1] == "exit 0 False", done.stderr


def test_the_barrier_needs_torch_and_nothing_that_trains() -> None:
    done = python(
        "-c",
        "import sys\nfrom ringfence.cli import main\nmain(['barrier'])\n"
        "print({'torchmetrics', 'pytorch_lightning', 'monai', 'matplotlib'} & set(sys.modules))\n"
        "import ringfence.report, ringfence.report.write\nprint('pytorch_lightning' in sys.modules)",
    )
    assert done.stdout.splitlines()[-2:] == ["set()", "False"], done.stderr


def test_both_ways_to_call_it() -> None:
    module = python("-m", "ringfence", "--version")
    script = called([Path(sys.executable).parent / "ringfence", "--version"])
    assert module.stdout == script.stdout == f"ringfence {rf.__version__}\n"


def test_barrier_prints_the_paper_s_numbers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["barrier", "--t", "5", "--z", "-2", "0", "-1e-3", "-inf", "--plot", str(tmp_path / "b.png")]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1] == ["5", "-2", "-0.138629", "-0.138629", "0.1"]
    assert rows[2] == ["5", "0", "inf", "0.843775", "5"]
    assert (tmp_path / "b.png").read_bytes()[:4] == b"\x89PNG"


def test_info_lists_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("ringfence", "torch", "python", "gpu"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["barrier", "--t", "-1"], "ringfence barrier: t must be positive and finite, got t=-1.0\n"),
        (["barrier", "--plot", "/dev/null/b.png"], "ringfence barrier: /dev/null/b.png cannot be written: it would be inside a file; choose another folder."),
        (["barrier", "--plot", "folder"], "ringfence barrier: 'folder' needs an ending that says what to draw: .png"),
        (["barrier", "--plot", "b.docx"], "ringfence barrier: Format 'docx' is not supported"),
    ],
)  # fmt: skip
def test_mistakes_get_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(message)
    assert printed.err.count("\n") == 1
    assert "Traceback" not in printed.err


def test_a_read_only_disk_is_said_in_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(arguments: list[str]) -> str:
        raise OSError(errno.EROFS, "Read-only file system", "runs/mine")

    monkeypatch.setattr("ringfence.cli.info.run", refused)
    assert main(["info"]) == 2
    message = "ringfence info: runs/mine cannot be written: the file system is read-only; choose another folder"
    assert capsys.readouterr().err.startswith(message)


def test_no_command_at_all_shows_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert all(f"  {name}" in printed.err for name in ("prepare", "train", "predict", "evaluate", "compare"))


def test_a_closed_pipe_is_no_error() -> None:
    done = called(["bash", "-c", f"{sys.executable} -m ringfence barrier | head -1"])
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["compaer"])
    assert end.value.code == 2
    assert "compaer" in capsys.readouterr().err
