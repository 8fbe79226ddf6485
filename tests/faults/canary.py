"""Bait: code, addresses and files that a reader would touch only if it believed what a hostile file says."""

from __future__ import annotations

from pathlib import Path

SECRET = "secret-canary.txt"
"""Beside the folder that a reader may use: nothing should ever open it."""
MODULE = "canary_module"
CODE = (
    *(
        f"{MODULE}.Thing",
        f"{MODULE}",
        "os.system",
        "builtins.eval",
        "subprocess.Popen",
        "torch.hub.load",
        "torch.load",
    ),
    *("monai.losses.PerceptualLoss", "monai.networks.nets.HoVerNet", "monai.networks.nets.ViT", "torch.nn.Linear"),
    *(
        "monai.bundle.download",
        "torch.utils.cpp_extension.load",
        "monai.networks.nets.BasicUNet",
        "torch.nn.Sequential",
    ),
)
ADDRESSES = ("http://127.0.0.1:9/x", "https://localhost:9/model.pt", "file:///etc/passwd", "127.0.0.1")
PLACES = (f"../{SECRET}", f"../../{SECRET}", "/etc/passwd", "/dev/zero", "/dev/stdin", "/proc/self/mem", "hub")


def lay(folder: Path) -> None:
    """Put the bait into the folder that a reader runs in."""
    (folder.parent / SECRET).write_text("nobody reads this\n")
    (folder / f"{MODULE}.py").write_text("class Thing:\n    pass\n")
    hub = folder / "hub" / "Project-MONAI_perceptual-models_main"
    hub.mkdir(parents=True, exist_ok=True)
    (hub / "hubconf.py").write_text("def medicalnet_resnet10_23datasets(*args, **kwargs):\n    return None\n")
