"""Record a reference run: every call counted, and of each signature a few instances with their values."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tapml.carving.interception import CallMode, Entry, Operator
from tapml.carving.origin import Module, source_line
from tapml.carving.selection import Figures, Instance, Selection, has_figures
from tapml.errors import UsageError
from tapml.suite.call import Signature, clone_strided

Progress = Callable[[int, int, int], None]
"""Called now and then with calls, signatures and bytes held so far."""

PROGRESS_SECONDS = 0.1
NONFINITE_NOTES = 5


@dataclass(frozen=True)
class NonFinite:
    """A call that made NaN or Inf out of finite inputs."""

    operator: str
    module: str
    source: str
    call_index: int

    def __str__(self) -> str:
        where = f" in {self.module}" if self.module else ""
        return f"{self.operator}{where} made NaN or Inf out of finite inputs ({self.source or 'source unknown'})"


@dataclass(eq=False)
class Recorded:
    """What a run said of one signature."""

    signature: Signature
    kind: str
    selection: Selection
    modules: dict[str, int] = field(default_factory=dict)
    carved_from: dict[str, int] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        return sum(self.modules.values())


class _Seen:
    """An entry's part of the count: calls by module path."""

    __slots__ = ("inputs", "modules", "outputs", "recorded", "selection")

    def __init__(self, recorded: Recorded, inputs: list[int], outputs: list[int]) -> None:
        self.recorded = recorded
        self.selection = recorded.selection
        self.modules: dict[str, int] = {}
        self.inputs = inputs  # tensors of the signature that have figures and are not written to
        self.outputs = outputs  # results that have figures


class Recorder(CallMode):  # type: ignore[no-untyped-call]
    """``with Recorder(model) as recorder: model(...)``, then :meth:`finish`.

    Values are held by reference.  Before a call writes to a storage that a held instance refers to, the instance gets
    copies; arguments that a call writes to are copied before it, and after it when the instance is kept.  So memory
    grows with what is kept, and the reference run pays for copies where there is a write.

    Raises :class:`UsageError` when a module runs in training mode, :class:`UnsupportedError` for calls with arguments
    that have no representation.
    """

    def __init__(self, model: Module | None = None, *, keep: int = 3, progress: Progress | None = None) -> None:
        if keep < 1:
            raise UsageError(f"expected to keep at least 1 case a signature, found {keep}")
        super().__init__(model)
        self.nonfinite: list[NonFinite] = []
        self.warnings: list[str] = []
        self._keep = keep
        self._progress = progress
        self._next_progress = 0.0
        self._bytes = 0
        self._recorded: dict[str, Recorded] = {}
        self._seen: list[tuple[Entry, _Seen]] = []
        self._holders: dict[int, list[Instance]] = {}

    def finish(self) -> list[Recorded]:
        """What was recorded, in order of first appearance."""
        for entry, seen in self._seen:
            recorded = seen.recorded
            for module, count in seen.modules.items():
                recorded.modules[module] = recorded.modules.get(module, 0) + count
            if entry.func is not entry.operator and (count := sum(seen.modules.values())):
                name = str(entry.func)
                recorded.carved_from[name] = recorded.carved_from.get(name, 0) + count
        self._verify()
        self._seen.clear()
        self._next_progress = 0.0
        self._report()
        return list(self._recorded.values())

    # -- one call -------------------------------------------------------------------------------------------------

    def on_enter(self, module: Module) -> None:
        if module.training:
            name = self.tracker.name(module)
            raise UsageError(
                f"expected a model in evaluation mode, found {name or type(module).__name__} in training mode",
                hint="call .eval() on the model before it is carved",
            )

    def on_call(self, entry: Entry, func: Operator, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> Any:
        if self._progress is not None and not self.calls & 63:
            self._report()
        seen: _Seen | None = entry.data
        if seen is None:
            return self._first_call(entry, func, args, kwargs, tensors)
        module = self.tracker.current
        seen.modules[module] = seen.modules.get(module, 0) + 1
        mutated = entry.raw_mutated
        if mutated:
            self._copy_on_write(tensors, mutated)
        if entry.kind != "compute" and seen.selection.first is not None:
            return self.execute_defined(entry, func, args, kwargs, tensors)
        before = self._before(entry, tensors)
        output = func(*args, **kwargs)
        self._consider(entry, seen, before, entry.results(tensors, output))
        return output

    def _first_call(self, entry: Entry, func: Operator, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> Any:
        self._copy_on_write(tensors, entry.raw_mutated)
        before = self._before(entry, tensors)
        output = self.execute_defined(entry, func, args, kwargs, tensors)
        results = entry.results(tensors, output)
        signature = entry.signature
        recorded = self._recorded.get(signature.id)
        if recorded is None:
            recorded = Recorded(signature, entry.kind, Selection(self._keep if entry.kind == "compute" else 1))
            self._recorded[signature.id] = recorded
        inputs, outputs = [], []
        if entry.kind == "compute":
            inputs = [i for i, t in enumerate(before) if i not in entry.mutated and has_figures(t)]
            outputs = [i for i, (_, t) in enumerate(results) if has_figures(t)]
        seen = _Seen(recorded, inputs, outputs)
        seen.modules[self.module] = 1
        entry.data = seen
        self._seen.append((entry, seen))
        self._consider(entry, seen, before, results)
        return output

    def _consider(
        self, entry: Entry, seen: _Seen, before: list[torch.Tensor], results: list[tuple[str, torch.Tensor]]
    ) -> None:
        parameters = self.tracker.parameters
        figures = None
        data = [i for i in seen.inputs if before[i].untyped_storage()._cdata not in parameters]
        if seen.outputs or data:
            figures = Figures([results[i][1] for i in seen.outputs], [before[i] for i in data])
            if not figures.finite_results and figures.finite_inputs:
                self._note_nonfinite(entry, before)
        if not seen.selection.wants(figures):
            return
        written = entry.mutated
        tensors = [t if i in written else t.detach() for i, t in enumerate(before)]
        results = [(n, clone_strided(t) if n.startswith("arg") else t.detach()) for n, t in results]
        unshared = [t for t in (*tensors, *(t for _, t in results)) if t.untyped_storage()._cdata not in parameters]
        nbytes = sum(t.numel() * t.itemsize for t in unshared)
        instance = Instance(self.calls - 1, self.module, source_line(), tensors, results, data, figures, nbytes)
        gone = seen.selection.add(instance)
        self._bytes += instance.nbytes - sum(i.nbytes for i in gone)
        for tensor in _held_tensors(instance):
            holders = self._holders.setdefault(tensor.untyped_storage()._cdata, [])
            if instance not in holders:
                holders.append(instance)
        for left in gone:
            self._let_go(left)

    def _let_go(self, instance: Instance) -> None:
        for tensor in _held_tensors(instance):
            key = tensor.untyped_storage()._cdata
            holders = self._holders.get(key, [])
            if instance in holders:
                holders.remove(instance)
                if not holders:
                    del self._holders[key]

    # -- values ---------------------------------------------------------------------------------------------------

    def _copy_on_write(self, tensors: list[torch.Tensor], mutated: Sequence[int]) -> None:
        for index in mutated:
            holders = self._holders.pop(tensors[index].untyped_storage()._cdata, None)
            if holders is not None:
                written = tensors[index].untyped_storage()._cdata
                for instance in holders:
                    _own(instance, written)

    def _before(self, entry: Entry, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """The signature's tensors; those that share storage with one that the call writes to are copied, together."""
        arguments = entry.arguments(tensors)
        if entry.mutated:
            written = {arguments[i].untyped_storage()._cdata for i in entry.mutated}
            for storage in written:
                _copy_shared(arguments, storage)
        return arguments

    def _note_nonfinite(self, entry: Entry, before: list[torch.Tensor]) -> None:
        if len(self.nonfinite) >= NONFINITE_NOTES or '{"float":' in entry.signature.arguments:
            return
        if any(n.operator == entry.signature.operator and n.module == self.module for n in self.nonfinite):
            return
        if all(bool(torch.isfinite(t).all()) for t in before):
            self.nonfinite.append(NonFinite(entry.signature.operator, self.module, source_line(), self.calls - 1))

    def _verify(self) -> None:
        """Drop instances whose held values have changed without a call that says so (through NumPy, a raw pointer)."""
        for recorded in self._recorded.values():
            for instance in recorded.selection.held():
                if instance.has_changed():
                    recorded.selection.drop(instance)
                    where = f" in {instance.module}" if instance.module else ""
                    self.warnings.append(
                        f"call {instance.call_index} of {recorded.signature.operator}{where} was not kept: something "
                        "other than a PyTorch operator changed its values later"
                    )

    def _report(self) -> None:
        now = time.monotonic()
        if now >= self._next_progress and self._progress is not None:
            self._next_progress = now + PROGRESS_SECONDS
            self._progress(self.calls, len(self._recorded), self._bytes)


def _held_tensors(instance: Instance) -> list[torch.Tensor]:
    return [*instance.tensors, *(t for _, t in instance.results)]


def _own(instance: Instance, storage: int) -> None:
    """Give an instance copies of the tensors it holds in ``storage``; those that shared memory still do."""
    tensors = _held_tensors(instance)
    _copy_shared(tensors, storage)
    count = len(instance.tensors)
    instance.tensors = tensors[:count]
    instance.results = [(n, t) for (n, _), t in zip(instance.results, tensors[count:], strict=True)]


def _copy_shared(tensors: list[torch.Tensor], storage: int) -> None:
    """Replace, in place, the tensors that lie in ``storage`` by copies that share memory as they did."""
    members = [i for i, t in enumerate(tensors) if t.untyped_storage()._cdata == storage]
    if len(members) == 1:
        tensors[members[0]] = clone_strided(tensors[members[0]])
        return
    spans = [_byte_span(tensors[i]) for i in members]
    begin, end = min(s[0] for s in spans), max(s[1] for s in spans)
    original = tensors[members[0]]
    align = 16  # so that every dtype finds its elements at whole offsets again
    begin -= begin % align
    source = torch.empty(0, dtype=torch.uint8, device=original.device)
    copy = source.set_(original.untyped_storage(), begin, (end - begin,), (1,)).clone().untyped_storage()
    for i in members:
        tensor = tensors[i]
        offset = tensor.storage_offset() - begin // tensor.itemsize
        fresh = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        tensors[i] = fresh.set_(copy, offset, tensor.shape, tensor.stride())


def _byte_span(tensor: torch.Tensor) -> tuple[int, int]:
    """First and past-the-last byte, within its storage, that a tensor touches."""
    begin = int(tensor.storage_offset()) * tensor.itemsize
    if tensor.numel() == 0:
        return begin, begin
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (reach + 1) * tensor.itemsize
