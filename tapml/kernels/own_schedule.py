"""The user's schedule of an operator: a function, or a rule of TVM's dlight."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir.schedule import Schedule

from tapml.errors import CompileError
from tapml.lowering.lower import Lowered
from tapml.lowering.registry import Entry


@dataclass
class OwnSchedule:
    """``entry``: what the user registered, ``None`` where nothing was.  Once it was applied: ``applied``, to how many
    functions; ``declined``, for how many it said that it does not apply."""

    entry: Entry | None
    applied: int = field(default=0)
    declined: int = field(default=0)

    @classmethod
    def of(cls, lowered: Lowered) -> OwnSchedule:
        """That of a lowered signature; none for what is to be plain."""
        return cls(None if lowered.plain else lowered.schedule)

    def apply(self, function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
        """The scheduled function; the very same one where there is no schedule for it.

        Raises what the user's code raises, and :class:`CompileError` for a result that is no schedule.
        """
        if self.entry is None:
            return function
        _defer_intrinsics()
        with target:
            found = _scheduled(self.entry.function, function, target)
        if isinstance(found, list | tuple) and len(found) == 1:
            (found,) = found
        if found is None:
            self.declined += 1
            return function
        if not isinstance(found, Schedule):
            raise CompileError(
                f"schedule {self.entry.place} gives a {type(found).__name__}, expected a tvm.s_tir.Schedule or None"
            )
        self.applied += 1
        (made,) = found.mod.functions.values()
        return made

    @property
    def used(self) -> tuple[str, ...]:
        """Its full name, if it was applied to anything."""
        return (self.entry.full_name,) if self.entry is not None and self.applied else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What the verdict must say when it was not applied."""
        if self.entry is None or not self.declined:
            return ()
        what = "tapml's own was used" if not self.applied else f"for {self.declined} of its functions"
        return (f"schedule {self.entry.place} does not apply ({what})",)


def _scheduled(rule: Any, function: tirx.PrimFunc, target: tvm.target.Target) -> Any:
    if inspect.isclass(rule):
        rule = rule()
    if hasattr(rule, "apply"):  # tvm.s_tir.dlight.ScheduleRule: not to be tuned
        return rule.apply(function, target, False)
    return rule(function, target)


def _defer_intrinsics() -> None:
    """TVM 0.27 parses the matrix instructions of all machines, for a minute, when a rule asks for those of one.

    With a package that imports nothing by itself, each is parsed when it is imported by its own name.
    """
    name = "tvm.s_tir.tensor_intrin"
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        package = ModuleType(name, "Matrix instructions, imported one by one.")
        package.__path__ = list(spec.submodule_search_locations)
        package.__spec__ = spec
        sys.modules[name] = package
