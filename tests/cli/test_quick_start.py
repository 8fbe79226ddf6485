"""What a training command imports: Lightning and MONAI, and nothing that they want for others; all of it works later."""

from __future__ import annotations

import gc
import sys
import weakref
from importlib import import_module
from pathlib import Path

import pytest

from children import python
from prepared_sets import make_prepared
from ringfence.cli import quick_start
from ringfence.cli.later import imported_later

FEWER = """
import sys
from ringfence.cli import quick_start
quick_start.import_lightning("this test")
assert {"pytorch_lightning", "ringfence.lightning"} <= set(sys.modules)
print(*(name in sys.modules for name in ("scipy.signal", "transformers", "matplotlib", "torch._dynamo", "lightning")))
from lightning_utilities.core import imports
print(imports.package_available("scipy"), bool(imports._version("scipy")))
import scipy.signal
"""

TRAINED = """
import sys
from ringfence.cli import main
print(main(sys.argv[1:]))
print(*(name in sys.modules for name in ("torch._dynamo", "sympy", "scipy.signal", "matplotlib.pyplot")))
"""

COMPILED_LATER = """
import torch
from ringfence.cli import quick_start
quick_start.import_lightning("this test")
from lightning_fabric import wrappers
weight = torch.nn.Parameter(torch.tensor([3.0]))
optimiser = torch.optim.SGD([weight], lr=0.5)
def step():
    optimiser.zero_grad()
    weight.square().sum().backward()
    with torch.enable_grad():
        optimiser.step()
        assert torch.is_grad_enabled()
    return float(weight)
assert step() == 0.0
weight.data.fill_(3.0)
layer = torch.nn.Linear(1, 1)
assert not isinstance(layer, wrappers.OptimizedModule)
compiled = torch.compile(layer, backend="eager")
assert isinstance(compiled, wrappers.OptimizedModule) and wrappers._unwrap_compiled(compiled)[0] is layer
assert torch.equal(compiled(torch.ones(1, 1)), layer(torch.ones(1, 1)))
assert step() == 0.0
"""

MONAI = """
import torch
from ringfence.cli import quick_start
quick_start.import_monai("this test")
import sys
assert not {"scipy.signal", "matplotlib", "matplotlib.pyplot"} & set(sys.modules)
import monai
import monai.data.ultrasound_confidence_map as ultrasound
from monai.metrics.panoptic_quality import linear_sum_assignment
from monai.metrics.utils import KDTree
import monai.visualize.utils as pictures
import numpy as np
import scipy.signal
signal = np.sin(np.arange(32.0))
assert np.array_equal(ultrasound.hilbert(signal), scipy.signal.hilbert(signal))
assert linear_sum_assignment(-np.eye(2))[1].tolist() == [0, 1]
assert KDTree(np.eye(2)).query([0.9, 0.1])[1] == 0
import matplotlib
matplotlib.use("agg")
drawn = pictures.plt.figure()
import matplotlib.pyplot
assert matplotlib.pyplot.fignum_exists(drawn.number)
assert monai.networks.nets.BasicUNet(2)
"""

OTHERS = """
import sys
sys.path.insert(0, sys.argv[1])
from ringfence.cli import quick_start
quick_start.import_monai("this test")
packages = ("torchvision", "transformers", "sklearn", "torch._dynamo")
print(*(name.startswith(packages) for name in sys.modules))
from monai.networks.blocks import backbone_fpn_utils, fcn
from monai.networks.nets import netadapter, transchex
assert fcn.models.resnet50 == backbone_fpn_utils.torchvision_models.resnet50 == "a network"
assert netadapter.get_graph_node_names("a") == ["a"]
assert transchex.BertLayer(2) == 4 and transchex.BertConfig() == "settings"
from monai.apps.detection.networks import retinanet_detector, retinanet_network
assert retinanet_detector.Matcher(3) == 9 and retinanet_network._validate_trainable_layers(1) == "layers"
from monai.metrics import embedding_collapse
assert embedding_collapse.sklearn_silhouette() == "a score"
import torchvision.models
assert torchvision.models.resnet50 == "a network"
"""

FAILS = """
import sys
from ringfence.cli import quick_start
class Needs:
    @staticmethod
    def find_spec(name, path, target=None):
        if name == "pytorch_lightning.trainer" and not hasattr(sys.modules.get("torch._dynamo"), "config"):
            raise RuntimeError("this version needs torch._dynamo.config")
sys.meta_path.insert(0, Needs)
import torch
real = quick_start.require
def require(module, *words):
    if "torch._dynamo" not in sys.modules:
        import torch._dynamo
    return real(module, *words)
quick_start.require = require
quick_start.import_lightning("this test")
import pytorch_lightning as pl, torch._dynamo
assert pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
import lightning_fabric.wrappers as wrappers
assert wrappers.OptimizedModule is torch._dynamo.OptimizedModule
"""


def ran(script: str, *words: str | Path) -> list[str]:
    """What it prints, in words."""
    done = python("-c", script, *words)
    assert done.returncode == 0, done.stderr
    assert "leaked" not in done.stderr
    return done.stdout.split()


def test_lightning_comes_alone_and_everybody_else_still_finds_what_it_left_out() -> None:
    assert ran(FEWER) == ["False"] * 5 + ["True"] * 2


def test_a_training_imports_no_compiler_and_nothing_for_pictures(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set", cases=3)
    words = (
        "train boxes-small --training.device cpu --training.epochs 1 --network.class_path monai.networks.nets.UNet"
    )
    network = ["--network.init_args", "{channels: [2, 2], strides: [2]}", "--data.prepared", tmp_path / "set"]
    said = ran(TRAINED, *words.split(), *network, "--out", tmp_path / "run")
    assert said[-5:] == ["0", *["False"] * 4]


def test_who_compiles_later_has_the_compiler_whole() -> None:
    ran(COMPILED_LATER)


def test_what_monai_left_for_later_is_the_same_then() -> None:
    ran(MONAI)


def test_networks_of_others_wait_until_monai_needs_them(tmp_path: Path) -> None:
    """Packages by the names of those that MONAI has networks from, and with what it takes from them."""
    parts = {
        "torchvision/__init__.py": "from torchvision import models",
        "torchvision/models/__init__.py": "resnet50 = 'a network'",
        "torchvision/models/feature_extraction.py": "get_graph_node_names = create_feature_extractor = list",
        "torchvision/models/detection/__init__.py": "import torchvision",
        "torchvision/models/detection/_utils.py": "Matcher = BalancedPositiveNegativeSampler = lambda x: x * x",
        "torchvision/models/detection/backbone_utils.py": "_validate_trainable_layers = lambda x: 'layers'",
        "sklearn/__init__.py": "",
        "sklearn/metrics.py": "silhouette_score = lambda: 'a score'",
        "sklearn/linear_model.py": "class LogisticRegression: pass",
        "transformers/__init__.py": "load_tf_weights_in_bert = print\ndef BertConfig(): return 'settings'",
        "transformers/utils.py": "cached_file = print",
        "transformers/models/__init__.py": "",
        "transformers/models/bert/__init__.py": "",
        "transformers/models/bert/modeling_bert.py": "BertEmbeddings = BertLayer = lambda size: 2 * size",
    }
    for name, text in parts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    said = ran(OTHERS, tmp_path)
    assert said
    assert "True" not in said


def test_a_lightning_that_needs_more_is_imported_with_all() -> None:
    ran(FAILS)


def test_a_placeholder_becomes_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "__init__.py").write_text("")
    (tmp_path / "bundle" / "heavy.py").write_text("def double(x):\n    return 2 * x\nSIZE = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    with imported_later({"bundle.heavy": ("double",), "bundle.missing": ("one",)}):
        import bundle.heavy as before  # type: ignore[import-not-found]
        from bundle.heavy import double  # type: ignore[import-not-found]

        with pytest.raises(ModuleNotFoundError):
            import_module("bundle.missing")
        assert sys.modules["bundle"].heavy is before
    assert "bundle.heavy" not in sys.modules
    assert not hasattr(sys.modules["bundle"], "heavy")
    assert double(4) == 8
    import bundle.heavy as after

    assert after is not before
    assert before.SIZE == after.SIZE == 3
    with pytest.raises(AttributeError):
        _ = before.nothing


def test_what_a_training_leaves_behind_is_collected_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("import_lightning", "import_monai"):
        monkeypatch.setattr(quick_start, name, lambda what, compiles=False: None)

    class Trained:
        """Refers to itself, as trainers and modules do."""

        def __init__(self) -> None:
            self.own = self

    try:
        with quick_start.quick_start("cpu", "this test"):
            stays = Trained()
        frozen = gc.get_freeze_count()
        seen = weakref.ref(Trained())
        with quick_start.quick_start("cpu", "this test"):
            pass
        assert frozen > 0
        gc.collect()
        assert seen() is None
        assert stays.own is stays
    finally:
        gc.unfreeze()
