"""Where a call comes from: the module that is running, and the user's source line."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

import tapml

Module = torch.nn.Module


class ModuleTracker:
    """Follows which module is running, by name, from :meth:`attach` to :meth:`detach`.

    ``current`` is the path of the innermost running module, with the names of ``model.named_modules()``.  Without a
    model, a module that runs on its own is named after its class, and its descendants after it.  A module from
    elsewhere that a module calls (an activation out of a table) is named after both.  ``parameters`` holds the storage
    pointers of the parameters of every module that has run or belongs to ``model``.

    ``on_enter`` is called with each module that is not from elsewhere before its forward; what it raises ends the run.
    """

    def __init__(self, model: Module | None = None, on_enter: Callable[[Module], None] | None = None) -> None:
        self.current = ""
        self.parameters: set[int] = set()
        self._names: dict[int, str] = {}
        self._known: dict[int, Module] = {}  # keeps the modules alive, so that their ids stay theirs
        self._stack: list[tuple[Module, str]] = []
        self._handles: list[Any] = []
        self._on_enter = on_enter
        if model is not None:
            self._learn(model, "")

    def name(self, module: Module) -> str:
        """Path of a module of the model, empty for the model itself and for modules not seen yet."""
        return self._names.get(id(module), "")

    def attach(self) -> None:
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._stack.clear()
        self.current = ""

    def _learn(self, root: Module, prefix: str) -> None:
        for name, module in root.named_modules(prefix=prefix):
            if id(module) not in self._names:
                self._names[id(module)] = name
                self._remember_parameters(module)

    def _remember_parameters(self, module: Module) -> None:
        self._known[id(module)] = module
        for parameter in module._parameters.values():
            if type(parameter) is torch.nn.Parameter:
                self.parameters.add(parameter.untyped_storage()._cdata)

    def _enter(self, module: Module, args: Any) -> None:
        name = self._names.get(id(module))
        if name is None and self._stack:
            name = f"{self.current}.{type(module).__name__}" if self.current else type(module).__name__
            if id(module) not in self._known:
                self._remember_parameters(module)
        else:
            if name is None:
                self._learn(module, type(module).__name__)
                name = self._names[id(module)]
            if self._on_enter is not None:
                self._on_enter(module)
        self._stack.append((module, self.current))
        self.current = name

    def _leave(self, module: Module, args: Any, output: Any) -> None:
        while self._stack:
            left, before = self._stack.pop()
            self.current = before
            if left is module:
                return


_OURS = tuple(os.path.dirname(os.path.abspath(m.__file__ or "")) + os.sep for m in (torch, tapml))
_INSTALLED = tuple(
    sorted({sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib", "stdlib")}, key=len, reverse=True)
)
_known_sources: dict[tuple[str, int, str], str] = {}


def source_line() -> str:
    """``path:line in function`` of the innermost running frame that is neither PyTorch's nor tapml's.

    The path is relative to where packages are installed or to the working directory.  Empty without such a frame.
    """
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        filename = code.co_filename
        if not filename.startswith(_OURS) and not filename.startswith("<"):
            key = (filename, frame.f_lineno, code.co_name)
            found = _known_sources.get(key)
            if found is None:
                found = _known_sources[key] = f"{_short(filename)}:{frame.f_lineno} in {code.co_name}"
            return found
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def _short(filename: str) -> str:
    path = os.path.abspath(filename)
    for root in (*_INSTALLED, os.getcwd() + os.sep):
        if path.startswith(root):
            return path.removeprefix(root)
    return os.path.join(*path.split(os.sep)[-2:])
