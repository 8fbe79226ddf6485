"""Networks that somebody else's file may name: known to be architectures and nothing else, with plain arguments.

A class of MONAI or torch is not harmless for being theirs: some download weights from an address, some import the
code that they find in a folder, when an argument says so. So classes and arguments are listed, one by one, after
reading what each does with them; all else is for the user to allow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from ringfence.hints import shown

_NETS: Final = "monai.networks.nets"
_ANY: Final = "spatial_dims in_channels out_channels "
_KNOWN: Final[dict[str, tuple[str, str, str]]] = {
    # the module of monai.networks.nets that it is in; its other names; its arguments
    "UNet": (
        "unet",
        "Unet",
        _ANY + "channels strides kernel_size up_kernel_size num_res_units act norm dropout bias adn_ordering",
    ),
    "BasicUNet": ("basic_unet", "BasicUnet Basicunet basicunet", _ANY + "features act norm bias dropout upsample"),
    "DynUNet": (
        "dynunet",
        "DynUnet Dynunet",
        _ANY + "kernel_size strides upsample_kernel_size filters dropout norm_name act_name deep_supervision "
        "deep_supr_num res_block trans_bias",
    ),
    "AttentionUnet": ("attentionunet", "", _ANY + "channels strides kernel_size up_kernel_size dropout"),
    "SegResNet": (
        "segresnet",
        "",
        _ANY + "init_filters dropout_prob act norm norm_name num_groups use_conv_final blocks_down blocks_up "
        "upsample_mode",
    ),
    "SegResNetDS": (  # not preprocess, which is called
        "segresnet_ds",
        "",
        _ANY + "init_filters act norm blocks_down blocks_up dsdepth upsample_mode resolution",
    ),
    "UNETR": (
        "unetr",
        "",
        _ANY + "img_size feature_size hidden_size mlp_dim num_heads pos_embed proj_type norm_name conv_block "
        "res_block dropout_rate qkv_bias save_attn",
    ),
    "SwinUNETR": (  # not norm_layer, which is called
        "swin_unetr",
        "",
        _ANY + "img_size patch_size depths num_heads window_size qkv_bias mlp_ratio feature_size norm_name "
        "drop_rate attn_drop_rate dropout_path_rate normalize patch_norm use_checkpoint downsample use_v2",
    ),
    "VNet": ("vnet", "", _ANY + "act dropout_prob dropout_prob_down dropout_prob_up dropout_dim bias"),
    "MedNeXt": (
        "mednext",
        "",
        _ANY
        + "init_filters encoder_expansion_ratio decoder_expansion_ratio bottleneck_expansion_ratio kernel_size "
        "deep_supervision use_residual_connection blocks_down blocks_bottleneck blocks_up norm_type "
        "global_resp_norm",
    ),
    "FlexibleUNet": (  # pretrained only as false: see below
        "flexible_unet",
        "",
        _ANY + "backbone pretrained decoder_channels norm act dropout decoder_bias upsample pre_conv interp_mode "
        "is_pad",
    ),
}
_DEEPER: Final = "ringfence.weak.networks.unet.DeepUNet"
"""Our own, with BasicUNet's arguments."""
_LAYERS: Final = ("torch.nn.Conv2d", "torch.nn.Conv3d")
_LAYER: Final = "in_channels out_channels kernel_size stride padding dilation groups bias padding_mode"
"""A single layer is the least network there is, and good for trying things."""

_NORMS: Final = "batch group instance layer localresponse"
"""Not instance_nvfuser, which imports apex."""
_ACTIVATIONS: Final = (
    "celu elu geglu gelu leakyrelu logsoftmax memswish mish prelu relu relu6 selu sigmoid softmax swish tanh"
)
_MODES: Final = (
    "alphadropout dropout none deconv deconvgroup nontrainable pixelshuffle default area bicubic bilinear linear "
    "nearest trilinear conv perceptron merging mergingv2 circular reflect replicate same valid zeros"
)
_WORDS: Final = frozenset(f"{_NORMS} {_ACTIVATIONS} {_MODES}".split())
_ORDER: Final = re.compile(r"[AND]{0,3}")
_BACKBONE: Final = re.compile(r"efficientnet-b[0-8]|resnet(10|18|34|50|101|152|200)")
_OPTIONS: Final = (
    "affine eps momentum track_running_stats num_groups num_features num_channels elementwise_affine "
    "negative_slope inplace num_parameters init alpha approximate dim p"
)
_LAYER_ARGUMENTS: Final = frozenset(_OPTIONS.split())
LARGEST: Final = 2**20
"""No side, width or count is larger."""
LONGEST: Final = 64
"""Entries of a list."""


def _table() -> dict[str, tuple[str, frozenset[str]]]:
    found = {layer: (layer, frozenset(_LAYER.split())) for layer in _LAYERS}
    for name, (module, others, arguments) in _KNOWN.items():
        for spelled in (name, *others.split()):
            for place in (_NETS, f"{_NETS}.{module}"):
                found[f"{place}.{spelled}"] = (f"{_NETS}.{name}", frozenset(arguments.split()))
    found[_DEEPER] = (_DEEPER, found[f"{_NETS}.BasicUNet"][1])
    return found


KNOWN_NETWORKS: Final[Mapping[str, tuple[str, frozenset[str]]]] = _table()
"""By class path: the same under its usual name, and the arguments that it may have."""


def doubt(class_path: str, init_args: Mapping[str, Any]) -> str | None:
    """Why a network cannot be made on a file's word alone; None if it can. Nothing is imported to tell."""
    if class_path not in KNOWN_NETWORKS:
        return "it is not among the networks that are known to be architectures and nothing else"
    _, known = KNOWN_NETWORKS[class_path]
    for name, value in init_args.items():
        if name not in known:
            return f"its argument {shown(name)} is not among those that are known to be plain"
        if not _plain(name, value):
            return f"its argument {name} is {shown(value)}, which is not known to be plain"
    return None


def _plain(name: str, value: Any) -> bool:
    if name == "pretrained":  # weights from the network
        return value is False
    if name == "adn_ordering":
        return isinstance(value, str) and _ORDER.fullmatch(value) is not None
    if name == "backbone":
        return isinstance(value, str) and _BACKBONE.fullmatch(value) is not None
    return _is_plain(value, 4)


def _is_plain(value: Any, levels: int) -> bool:
    """Numbers, words that MONAI has for its layers, and short lists of those."""
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, int):
        return abs(value) <= LARGEST
    if isinstance(value, float):
        return math.isfinite(value) and abs(value) <= LARGEST
    if isinstance(value, str):
        return not value or value.lower() in _WORDS
    if not levels or not isinstance(value, (list, tuple, dict)) or len(value) > LONGEST:
        return False
    if isinstance(value, dict):
        return set(value) <= _LAYER_ARGUMENTS and all(_is_plain(one, 0) for one in value.values())
    return all(_is_plain(one, levels - 1) for one in value)
