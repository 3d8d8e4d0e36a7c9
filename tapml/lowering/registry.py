"""The one registry of converters and kernels, tapml's own and the user's.

A *converter* turns one operator call into Relax expressions::

    @tapml.converter("aten.softsign.default")
    def softsign(ctx, x):
        return ctx.pointwise(lambda v: v / (1.0 + tirx.abs(v)), x)

It receives a :class:`tapml.lowering.context.Context` and the call's arguments, each tensor as a Relax expression and
all else as the Python value that PyTorch got.  It returns one expression, or a sequence with one for each result.
A *kernel* is the same for one target only, and is preferred there: it usually ends in ``ctx.te`` (a TE function) or
``ctx.call_tir`` (a TVMScript ``PrimFunc``).
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tapml.errors import UsageError

Converter = Callable[..., Any]
_F = TypeVar("_F", bound=Converter)


@dataclass(frozen=True)
class Entry:
    """A registered converter: for which operator, on which target (``None``: any), and where it was defined."""

    operator: str
    target: str | None
    function: Converter
    module: str

    @property
    def source(self) -> str:
        """Text that identifies the code: part of the key under which compiled kernels are cached."""
        try:
            return inspect.getsource(inspect.getmodule(self.function) or self.function)
        except (OSError, TypeError):
            return repr(self.function)

    @property
    def file(self) -> str:
        """The file that it was defined in."""
        return str(inspect.unwrap(self.function).__code__.co_filename)

    @property
    def place(self) -> str:
        """Name, file and line, to be shown."""
        code = inspect.unwrap(self.function).__code__
        return f"{self.function.__name__} ({Path(code.co_filename).name}:{code.co_firstlineno})"

    @property
    def builtin(self) -> bool:
        return self.module.startswith("tapml.")


_entries: dict[tuple[str, str | None], Entry] = {}


def converter(*operators: str) -> Callable[[_F], _F]:
    """Register the decorated function as converter of ``operators`` on every target.  A later one replaces an earlier."""
    return _register(operators, None)


def kernel(*operators: str, target: str) -> Callable[[_F], _F]:
    """Register the decorated function as the kernel of ``operators`` on ``target`` (``llvm``, ``webgpu``, ...)."""
    return _register(operators, target)


def _register(operators: tuple[str, ...], target: str | None) -> Callable[[_F], _F]:
    for operator in operators:
        if operator.count(".") != 2:
            raise UsageError(
                f"expected an operator such as aten.mm.default, found {operator!r}",
                hint="`tapml show SUITE` lists operators by their full names",
            )

    def register(function: _F) -> _F:
        for operator in operators:
            _entries[operator, target] = Entry(operator, target, function, function.__module__)
        return function

    return register


def find(operator: str, target: str) -> Entry | None:
    """The kernel for ``target`` if there is one, else the converter, else ``None``; the user's before our own."""
    _load_builtin()
    found = [e for e in (_entries.get((operator, target)), _entries.get((operator, None))) if e is not None]
    return next((e for e in found if not e.builtin), found[0] if found else None)


def load_extensions(files: Sequence[str]) -> None:
    """Run the user's Python files, which register converters and kernels; each once per process.

    Raises :class:`UsageError` when a file is missing or raises.
    """
    _load_builtin()
    for file in files:
        path = Path(file).resolve()
        if path in _loaded:
            continue
        if not path.is_file():
            raise UsageError(
                f"expected a Python file with converters, found none at {file}",
                hint="give --with the path of a .py file",
            )
        name = f"tapml_extension_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise UsageError(
                f"expected a Python file with converters, found {file}", hint="give --with the path of a .py file"
            )
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise UsageError(
                f"{file} raised {type(error).__name__}: {error}", hint="it has to load in plain Python first"
            ) from error
        _loaded.add(path)


_loaded: set[Path] = set()


def registered() -> list[Entry]:
    """All entries, ours included, by operator name."""
    _load_builtin()
    return sorted(_entries.values(), key=lambda e: (e.operator, e.target or ""))


def _load_builtin() -> None:
    import tapml.lowering.converters.all  # noqa: F401
