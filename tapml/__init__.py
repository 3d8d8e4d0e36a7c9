"""tapml brings a PyTorch model to a platform where it does not run yet, operator by operator.

The library's verbs live in :mod:`tapml.carving` and :mod:`tapml.migration`; ``converter``, ``kernel`` and ``schedule``
register your own way for an operator (see :mod:`tapml.lowering.registry`).

PYTEST_DONT_REWRITE: it may be imported before pytest loads its plugins, of which this package has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tapml._version import __version__

if TYPE_CHECKING:
    from tapml.lowering.registry import converter, kernel, schedule

__all__ = ["__version__", "converter", "kernel", "schedule"]


def __getattr__(name: str) -> Any:
    if name in ("converter", "kernel", "schedule"):
        from tapml.lowering import registry

        return getattr(registry, name)
    raise AttributeError(f"module 'tapml' has no attribute {name!r}")
