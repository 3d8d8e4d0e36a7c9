"""The functions there are, by the name of the TIR operation that each stands for."""

from __future__ import annotations

from collections.abc import Callable

from tapml.kernels.mathlib import elementary, powers
from tapml.kernels.mathlib.text import Value

PREFIX = "tapml_"
_ELEMENTARY = (
    "exp",
    "exp2",
    "exp10",
    "log",
    "log2",
    "log10",
    "log1p",
    "tanh",
    "erf",
    "sinh",
    "cosh",
    "sin",
    "cos",
    "tan",
    "atan",
    "asin",
    "acos",
    "asinh",
    "acosh",
    "rsqrt",
)
FUNCTIONS: dict[str, Callable[..., Value]] = {
    **{f"tirx.{name}": getattr(elementary, name) for name in _ELEMENTARY},
    "tirx.pow": powers.power,
    "tirx.fmod": powers.fmod,
    "tirx.atan2": elementary.atan2,
}


def arity(operation: str) -> int:
    """Number of arguments of a function."""
    return FUNCTIONS[operation].__code__.co_argcount


def called(operation: str) -> str:
    """The function's name in source text."""
    return PREFIX + operation.removeprefix("tirx.")
