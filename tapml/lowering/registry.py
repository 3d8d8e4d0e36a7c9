"""The one registry of converters, kernels and schedules, tapml's own and the user's.

A *converter* turns one operator call into Relax expressions::

    @tapml.converter("aten.softsign.default")
    def softsign(ctx, x):
        return ctx.pointwise(lambda v: v / (1.0 + tirx.abs(v)), x)

It receives a :class:`tapml.lowering.context.Context` and the call's arguments, each tensor as a Relax expression and
all else as the Python value that PyTorch got.  It returns one expression, or a sequence with one for each result.
A *kernel* is the same for one target only, and is preferred there: it usually ends in ``ctx.te`` (a TE function) or
``ctx.call_tir`` (a TVMScript ``PrimFunc``).  A *schedule* says how an operator's loops are executed on a target,
whoever wrote what they compute: a function ``(function, target) -> Schedule | None``, or a rule of dlight::

    tapml.schedule("aten.mm.default", target="webgpu")(dlight.gpu.Matmul())
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tapml.errors import UsageError
from tapml.lowering.extensions import Extension, load, loading

Converter = Callable[..., Any]
_F = TypeVar("_F", bound=Converter)
_S = TypeVar("_S")


@dataclass(frozen=True)
class Entry:
    """What is registered: for which operator, on which target (``None``: any), and where it was defined.

    ``kind``: ``converter``, ``kernel`` or ``schedule``.  ``function``: of a schedule also a rule of dlight, or its class.
    ``extension``: the file of the user that was being loaded, ``None`` for what was registered otherwise.  ``where``: file
    and line at which it was registered.
    """

    operator: str
    target: str | None
    function: Any
    module: str
    kind: str = "converter"
    extension: Extension | None = None
    where: tuple[str, int] = ("", 0)

    @property
    def name(self) -> str:
        """The function's, or the rule's."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def full_name(self) -> str:
        """What artifacts call it."""
        return f"{self.module}.{self.name}"

    @property
    def digest(self) -> str:
        """SHA-256 of the code that it is in: part of the key under which compiled kernels are cached."""
        if self.extension is not None:
            return self.extension.digest
        try:
            text = inspect.getsource(inspect.getmodule(self.function) or self.function)
        except (OSError, TypeError):
            text = repr(self.function)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def _position(self) -> tuple[str, int]:
        code = getattr(inspect.unwrap(self.function), "__code__", None) if callable(self.function) else None
        return (str(code.co_filename), int(code.co_firstlineno)) if code is not None else self.where

    @property
    def file(self) -> str:
        """The file that it was defined in."""
        return self._position[0]

    @property
    def line(self) -> int:
        """The line of :attr:`file` at which it begins."""
        return self._position[1]

    @property
    def place(self) -> str:
        """Name, file and line, to be shown."""
        return f"{self.name} ({Path(self.file).name}:{self.line})"

    @property
    def builtin(self) -> bool:
        return self.module.startswith("tapml.")


_entries: dict[tuple[str, str | None], Entry] = {}
_schedules: dict[tuple[str, str], Entry] = {}


def converter(*operators: str) -> Callable[[_F], _F]:
    """Register the decorated function as converter of ``operators`` on every target.  A later one replaces an earlier.

    Raises :class:`UsageError` for what is no operator's name.
    """
    return _register(operators, None)


def kernel(*operators: str, target: str) -> Callable[[_F], _F]:
    """Register the decorated function as the kernel of ``operators`` on ``target`` (``llvm``, ``webgpu``, ...).

    Raises as :func:`converter`.
    """
    return _register(operators, target)


def schedule(*operators: str, target: str) -> Callable[[_S], _S]:
    """Register how the loops of ``operators`` are executed on ``target``.

    What is decorated is a function of a ``PrimFunc`` and a ``tvm.target.Target``, or a ``tvm.s_tir.dlight.ScheduleRule``
    (or its class, made without arguments).  It gets the whole operator as one function: its arguments are read out of
    one-dimensional memory, then what the converter gave is computed.  It returns a ``tvm.s_tir.Schedule``, or ``None``
    where it does not apply; tapml's own schedule is used then, and the verdict says so.  On a GPU, blocks that it leaves
    without threads get those of tapml's own.

    Raises as :func:`converter`.
    """
    _require_names(operators)
    frame = sys._getframe(1)
    where, module = (frame.f_code.co_filename, frame.f_lineno), str(frame.f_globals.get("__name__", ""))

    def register(rule: _S) -> _S:
        extension = loading()
        for operator in operators:
            _schedules[operator, target] = Entry(operator, target, rule, module, "schedule", extension, where)
        return rule

    return register


def _register(operators: tuple[str, ...], target: str | None) -> Callable[[_F], _F]:
    _require_names(operators)
    kind = "converter" if target is None else "kernel"

    def register(function: _F) -> _F:
        extension = loading()
        for operator in operators:
            _entries[operator, target] = Entry(operator, target, function, function.__module__, kind, extension)
        return function

    return register


def _require_names(operators: tuple[str, ...]) -> None:
    for operator in operators:
        if operator.count(".") != 2:
            raise UsageError(
                f"expected an operator such as aten.mm.default, found {operator!r}",
                hint="`tapml show SUITE` lists operators by their full names",
            )


def find(operator: str, target: str) -> Entry | None:
    """The kernel for ``target`` if there is one, else the converter, else ``None``; the user's before our own."""
    _load_builtin()
    found = [e for e in (_entries.get((operator, target)), _entries.get((operator, None))) if e is not None]
    return next((e for e in found if not e.builtin), found[0] if found else None)


def find_schedule(operator: str, target: str) -> Entry | None:
    """The schedule that was registered for an operator on a target."""
    return _schedules.get((operator, target))


def load_extensions(files: Sequence[str]) -> None:
    """Run the user's Python files, which register converters, kernels and schedules; each once per process.

    Modules beside a file can be imported by it.  Raises :class:`UsageError` when one is missing or raises, with its line.
    """
    _load_builtin()
    for file in files:
        path = Path(file).resolve()
        if path in _loaded:
            continue
        load(file)
        _loaded.add(path)


_loaded: set[Path] = set()


def registered() -> list[Entry]:
    """All entries, ours included, by operator name."""
    _load_builtin()
    found = [*_entries.values(), *_schedules.values()]
    return sorted(found, key=lambda e: (e.operator, e.target or "", e.kind))


def _load_builtin() -> None:
    import tapml.lowering.converters.all  # noqa: F401
