"""Settings of layers as knobs: dropout, eps and momentum of norms."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from it2nb.core.knobs import Knob
from it2nb.pytorch.state import bare

#: Settings that PyTorch reads anew in every forward: attribute -> (bounds, scale, words).
SETTINGS: dict[str, tuple[float, float, str, str]] = {
    "p": (0.0, 1.0, "linear", "Share of values that dropout sets to 0"),
    "dropout": (0.0, 1.0, "linear", "Share of values that dropout sets to 0"),
    "eps": (1e-16, 1.0, "log", "Added to the variance, against division by 0"),
    "momentum": (0.0, 1.0, "linear", "Share of a batch in the running statistics"),
    "negative_slope": (0.0, 1.0, "linear", "Slope below 0"),
    "label_smoothing": (0.0, 1.0, "linear", "Probability that is spread over all classes"),
}
_DROPOUTS = (nn.modules.dropout._DropoutNd,)
_NORMS = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.LocalResponseNorm,
)


def module_knobs(model: nn.Module, patterns: Sequence[str] = ("*",)) -> list[Knob]:
    """Make knobs of the settings of a model's layers: ``drop.p``, ``norm1.eps``.

    Parameters
    ----------
    model : torch.nn.Module
    patterns : sequence of str
        Of module names, ``"encoder.*"``.
    """
    knobs = []
    for name, module in bare(model).named_modules():
        if not any(fnmatchcase(name, pattern) for pattern in patterns):
            continue
        for setting in _settings_of(module):
            knobs.append(_knob(name, module, setting))
    return knobs


def _settings_of(module: nn.Module) -> list[str]:
    if isinstance(module, _DROPOUTS):
        return ["p"]
    found = []
    if isinstance(module, _NORMS):
        found = [n for n in ("eps", "momentum") if type(getattr(module, n, None)) is float]
    elif isinstance(module, nn.MultiheadAttention):
        found = ["dropout"]
    elif isinstance(module, nn.LeakyReLU):
        found = ["negative_slope"]
    elif isinstance(module, nn.CrossEntropyLoss):
        found = ["label_smoothing"]
    return found


def _knob(name: str, module: nn.Module, setting: str) -> Knob:
    low, high, scale, words = SETTINGS[setting]
    now = float(getattr(module, setting))
    return Knob(
        f"{name}.{setting}" if name else setting,
        lambda: float(getattr(module, setting)),
        lambda value: setattr(module, setting, value),
        min=min(low, now),
        max=max(high, now),
        scale=scale,  # type: ignore[arg-type]
        description=words,
        group=f"{type(module).__name__} {name}".strip(),
        out_of_bounds="reject",
    )
