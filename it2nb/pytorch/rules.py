"""What is known about each hyper-parameter: type, bounds, scale, words.

Names and constraints are those of the constructors in `torch.optim` (2.13); a third-party
optimizer gets the rule of the same name, or one made from its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from it2nb.pytorch.groups import Cell

DType = Literal["float", "int", "bool", "choice"]

#: How an edit goes together with what else moves the value (DESIGN section 7).
MODES = ("rescale", "hold", "release")

#: Largest value of what has to stay below 1.
_BELOW_1 = 1 - 1e-6
#: An eps of 0 divides 0 by 0 at a weight without gradient.
_SMALLEST_EPS = 1e-16


@dataclass(frozen=True, slots=True)
class Rule:
    """How one hyper-parameter may be set.

    Attributes
    ----------
    dtype : {"float", "int", "bool", "choice"}
    description : str
    min, max : float, optional
        Bounds; values outside are rejected.
    scale : {"linear", "log"}
        Of the slider.
    choices : tuple, optional
    modes : tuple of str
        Empty where nothing in PyTorch moves the value during training.
    disabled : str, optional
        Why it can't be set at run time.
    advice : str, optional
        Told when it is set: what else to know.
    """

    dtype: DType
    description: str
    min: float | None = None
    max: float | None = None
    scale: Literal["linear", "log"] = "linear"
    choices: tuple[Any, ...] | None = None
    modes: tuple[str, ...] = ()
    disabled: str | None = None
    advice: str | None = None


def _float(description: str, low: float | None, high: float | None, **more: Any) -> Rule:
    return Rule("float", description, low, high, **more)


def _beta(description: str, **more: Any) -> Rule:
    return _float(description, 0.0, _BELOW_1, **more)


def _coefficient(power: int) -> Rule:
    return _float(f"Newton-Schulz coefficient of x^{power}", -100.0, 100.0)


_LR = _float("Learning rate", 0.0, None, scale="log", modes=MODES)
_EPS = _float("Added to the denominator, against division by 0", _SMALLEST_EPS, 1.0, scale="log")
_MOMENTUM = _beta("Share of the last update that is kept", modes=MODES)
_NEW_STATE = "its state is made at the first step; it can't be switched while training runs"

#: Element by element for tuples: key -> Rule, or (key, index) -> Rule.
RULES: Mapping[str | tuple[str, int], Rule] = {
    "lr": _LR,
    "weight_decay": _float("Weight decay", 0.0, None, scale="log", modes=MODES),
    "momentum": _MOMENTUM,
    ("betas", 0): _beta("Decay of the running mean of the gradient", modes=MODES),
    ("betas", 1): _beta("Decay of the running mean of the squared gradient"),
    ("betas", 2): _beta("Decay of the third running mean"),
    "eps": _EPS,
    ("eps", 0): replace(_EPS, description="Added to the squared gradient"),
    ("eps", 1): replace(_EPS, description="Smallest scale of a parameter"),
    "dampening": _float("Share of the gradient that momentum leaves out", 0.0, 1.0),
    "nesterov": Rule("bool", "Nesterov momentum"),
    "maximize": Rule("bool", "Go up the gradient instead of down"),
    "decoupled_weight_decay": Rule("bool", "Decay the weights themselves (AdamW), not by gradient"),
    "amsgrad": Rule("bool", "AMSGrad", disabled=_NEW_STATE),
    "centered": Rule("bool", "Normalise by the variance of the gradient", disabled=_NEW_STATE),
    "rho": _beta("Decay of the running mean of the squared gradient"),
    "alpha": _beta("Decay of the running mean of the squared gradient"),
    "lambd": _float("Decay term", 0.0, 1.0, scale="log"),
    "t0": _float("Step from which the average is taken", 0.0, 1e12, scale="log"),
    "lr_decay": _float("Decay of the learning rate per step", 0.0, 1.0, scale="log"),
    "initial_accumulator_value": _float(
        "Start of the sum of squared gradients", 0.0, None,
        disabled="it is used once, when the optimizer is made",
    ),
    "momentum_decay": _float("Decay of the momentum schedule", 0.0, 1.0, scale="log"),
    ("etas", 0): _float("Factor of the step length after a change of sign", 1e-6, _BELOW_1),
    ("etas", 1): _float("Factor of the step length while the sign stays", 1 + 1e-6, 100.0),
    ("step_sizes", 0): _float("Shortest step", 0.0, 1e6, scale="log"),
    ("step_sizes", 1): _float("Longest step", 0.0, 1e6, scale="log"),
    ("ns_coefficients", 0): _coefficient(1),
    ("ns_coefficients", 1): _coefficient(3),
    ("ns_coefficients", 2): _coefficient(5),
    "ns_steps": Rule("int", "Newton-Schulz iterations", 1, 99),
    "adjust_lr_fn": Rule(
        "choice", "How lr depends on the shape of a weight",
        choices=(None, "original", "match_rms_adamw"),
    ),
    "beta2_decay": _float("Exponent of the decay of the squared gradient", -10.0, 0.0),
    "d": _float("Clipping threshold of an update, in its own RMS", 1.0, 1e6, scale="log"),
    "max_iter": Rule("int", "Iterations in one step", 1, 1_000_000),
    "max_eval": Rule("int", "Evaluations of the closure in one step", 1, 1_000_000),
    "tolerance_grad": _float("Gradient at which a step ends", 0.0, 1.0, scale="log"),
    "tolerance_change": _float("Change at which a step ends", 0.0, 1.0, scale="log"),
    "history_size": Rule(
        "int", "Updates that are remembered", 1, 1_000_000,
        disabled="the memory is laid out at the first step; it can't be resized afterwards",
    ),
    "line_search_fn": Rule("choice", "Line search", choices=(None, "strong_wolfe")),
}  # fmt: skip

#: Where an optimizer means something else by the same name.
OF_CLASS: Mapping[tuple[str, str], Rule] = {
    ("ASGD", "alpha"): _float("Exponent of the decay of the step length", 0.0, 10.0),
    ("ASGD", "lr"): replace(
        _LR,
        description="Learning rate; ASGD fixes its step length one step ahead, so that a new "
        "value moves the weights from the step after the next",
    ),
    # Its constructor refuses 0.
    ("SparseAdam", "lr"): replace(_LR, min=1e-12),
    ("Rprop", "lr"): replace(
        _LR,
        description="First step length of a parameter; Rprop adapts it by itself afterwards",
        advice="Rprop reads lr only when a parameter takes its first step: for parameters that "
        "have stepped this changes nothing; set step_sizes[0] and step_sizes[1] instead",
    ),
}

#: How a step is computed, not what it computes.
_MACHINERY = frozenset({"foreach", "fused", "capturable", "differentiable"})


def cells(optimizer: torch.optim.Optimizer) -> list[Cell]:
    """List the hyper-parameters of an optimizer, in the order of its constructor."""
    found: list[Cell] = []
    group = optimizer.param_groups[0]
    for key in getattr(optimizer, "defaults", None) or group:
        if key in _MACHINERY or key == "params" or key not in group:
            continue
        value = group[key]
        if isinstance(value, (tuple, list)):
            found += [Cell(key, index) for index in range(len(value))]
        else:
            found.append(Cell(key))
    return [cell for cell in found if rule_for(optimizer, cell) is not None]


def rule_for(optimizer: torch.optim.Optimizer, cell: Cell) -> Rule | None:
    """Return the rule of a hyper-parameter; None for what is no number, bool or known choice."""
    value = cell.raw(optimizer.param_groups[0])
    known = OF_CLASS.get((type(optimizer).__name__, cell.key)) if cell.index is None else None
    if known is None:
        known = RULES.get(cell.key if cell.index is None else (cell.key, cell.index))
    if known is not None and known.dtype == "choice":
        return known if value in (known.choices or ()) else None
    if isinstance(value, torch.Tensor) and value.numel() != 1:
        return None
    if not isinstance(value, (bool, int, float, torch.Tensor)) and not hasattr(value, "__float__"):
        return None
    if known is None or not _fits(known, value):
        known = _guess(optimizer, cell, value)
    return _bounded(optimizer, cell, known)


def _fits(rule: Rule, value: Any) -> bool:
    return (rule.dtype == "bool") == isinstance(value, bool)


def _guess(optimizer: torch.optim.Optimizer, cell: Cell, value: Any) -> Rule:
    """Make a rule for a name that only this optimizer uses, from its default."""
    name = cell.name.replace("_", " ")
    whose = f"{name} of {type(optimizer).__name__}"
    if isinstance(value, bool):
        return Rule("bool", whose, disabled="it is not known whether it is safe to switch it")
    if isinstance(value, int):
        return Rule("int", whose, 0 if value >= 0 else None)
    number = float(value)
    key = cell.key.lower()
    if key.startswith("beta") and 0 <= number < 1:
        return _beta(f"Decay rate {whose}")
    if key.startswith("eps") and number >= 0:
        return replace(_EPS, description=whose)
    if key.endswith("momentum") and 0 <= number < 1:
        return _beta(whose)
    if key.endswith("lr") and number >= 0:
        return _float(whose, 0.0, None, scale="log")
    return _float(whose, 0.0 if number >= 0 else None, None)


def _bounded(optimizer: torch.optim.Optimizer, cell: Cell, rule: Rule) -> Rule:
    """Fit the bounds to the run: they hold the values that are there, and leave room."""
    if rule.dtype not in ("float", "int"):
        return rule
    values = [float(cell.read(group)) for group in optimizer.param_groups]
    low, high = rule.min, rule.max
    if cell.name in ("lr", "weight_decay") and high is None:
        high = max(1.0, 100 * max(values))
        peaks = ("initial_lr", "max_lr", "swa_lr") if cell.name == "lr" else ()
        for group in optimizer.param_groups:
            high = max([high, *(100 * float(group[key]) for key in peaks if key in group)])
    if low is not None:
        low = min(low, *values)
    if high is not None:
        high = max(high, *values)
    if rule.dtype == "int":
        return replace(rule, min=low if low is None else int(low), max=high and int(high))
    log = rule.scale == "log" and (low is None or low >= 0)
    return replace(rule, min=low, max=high, scale="log" if log else "linear")
