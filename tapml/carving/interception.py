"""Every ATen call of a running program, seen once, understood once per kind, and handed on.

:class:`CallMode` is what the recorder and the hybrid executor have in common: a PyTorch dispatch mode that maps each
call to an :class:`Entry` by a key that is cheap to compute, and leaves to :meth:`CallMode.on_call` what to do with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tapml.carving.classify import Observation, classify, is_undefined, tensors_in
from tapml.carving.origin import Module, ModuleTracker
from tapml.carving.portable import PortableCall, is_composite, portable, take_apart
from tapml.errors import UnsupportedError
from tapml.suite.call import Signature, TensorSpec, canonical_json, collect_results, encode_arguments, mutated_tensors

Operator = torch._ops.OpOverload
Tensors = Sequence[torch.Tensor]
Key = tuple[Any, ...]


class Entry:
    """All that calls of one key share.

    ``operator`` (portable) and ``signature`` say what is recorded; ``pick`` maps each tensor of the signature to its
    place among the tensors of the call as it was seen; ``mutated`` are the signature's written tensors, ``raw_mutated``
    those of the call as seen.  ``kind`` (one of :data:`tapml.suite.case.CLASSES`) and ``signature.results`` are known
    when ``complete``: after the first execution, or never when the mode does not observe.  ``data`` is the owner's.
    """

    __slots__ = (
        "complete",
        "data",
        "decompose",
        "func",
        "kind",
        "mutated",
        "operator",
        "output",
        "pick",
        "raw_mutated",
        "signature",
        "single",
    )

    def __init__(self, func: Operator, call: PortableCall, tensors: Tensors) -> None:
        try:
            template, used = encode_arguments(call.args, call.kwargs)
        except UnsupportedError as error:
            raise UnsupportedError(f"{func}: {error.message}", hint=error.hint) from error
        places = {id(t): i for i, t in enumerate(tensors)}
        self.func = func
        self.decompose = False
        self.operator = call.operator
        self.output = call.output
        self.pick = tuple(places[id(t)] for t in used)
        self.mutated = mutated_tensors(call.operator, template)
        self.raw_mutated = tuple(dict.fromkeys(self.pick[i] for i in self.mutated))
        self.signature = Signature(str(call.operator), canonical_json(template), tuple(TensorSpec.of(t) for t in used))
        returns = call.operator._schema.returns
        self.single = not self.mutated and len(returns) == 1 and str(returns[0].type) == "Tensor"
        self.kind = ""
        self.complete = False
        self.data: Any = None

    def arguments(self, tensors: Tensors) -> list[torch.Tensor]:
        """Tensors of the call as seen -> tensors of the signature."""
        return [tensors[i] for i in self.pick]

    def results(self, tensors: Tensors, output: Any) -> list[tuple[str, torch.Tensor]]:
        """Results of the portable call, uncopied: ``tensors`` and ``output`` are those of the call as seen."""
        if self.output is not None:
            output = output[self.output]
        if self.single:
            return [("out0", output)]
        return collect_results(self.operator, self.mutated, self.arguments(tensors), output)

    def restore(self, output: Any) -> Any:
        """Output of the portable call -> something the caller of the original can take.

        Other outputs of the original (a log-sum-exp which inference never reads) are left undefined or zero.
        """
        if self.output is None:
            return output
        values = [None if "Tensor" in str(r.type) else 0 for r in self.func._schema.returns]
        return (*values[: self.output], output, *values[self.output + 1 :])


class CallMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Calls :meth:`on_call` for every ATen call while active (``with mode: model(...)``).

    ``model`` gives the module paths their names.  With ``observe`` the first call of each kind is looked at, so that
    its entry gets its class and results.  Operators that are made of others, which the dispatcher shows whole in
    inference mode, are taken apart, so that the calls seen are the same with and without it.

    For one thread.  Sparse tensors and Python objects as arguments raise :class:`UnsupportedError`.
    """

    def __init__(self, model: Module | None = None, *, observe: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tracker = ModuleTracker(model, self.on_enter)
        self.calls = 0
        self._observe = observe
        self._entries: dict[Key, Entry] = {}
        self._signatures: dict[Signature, Signature] = {}
        self._defined: set[Operator] = set()
        self._depth = 0

    # -- what an owner overrides ----------------------------------------------------------------------------------

    def on_call(self, entry: Entry, func: Operator, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> Any:
        """Return the output of the call.  ``tensors`` are its tensor arguments in order of appearance."""
        return self.execute(entry, func, args, kwargs, tensors)

    def on_entry(self, entry: Entry) -> None:
        """A call of a new kind is about to be made; ``entry.data`` can be set here."""

    def on_enter(self, module: Module) -> None:
        """A module's forward is about to run."""

    # -- what an owner calls --------------------------------------------------------------------------------------

    @property
    def module(self) -> str:
        """Path of the innermost module that is running."""
        return self.tracker.current

    def execute(self, entry: Entry, func: Operator, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> Any:
        """The call itself, in PyTorch; completes the entry when it is the first of its kind."""
        if entry.complete or not self._observe:
            return func(*args, **kwargs)
        seen = Observation(func, args, kwargs)
        output = func(*args, **kwargs)
        _require_strided(func, tensors_in(output))
        results = entry.results(tensors, output)
        kind = classify(entry.operator, seen, results)
        if kind == "compute" and func not in self._defined:
            if is_undefined(seen, tensors_in(output)):
                kind = "undefined"
            else:
                self._defined.add(func)
        specs = tuple((name, TensorSpec.of(t)) for name, t in results)
        known = entry.signature
        signature = Signature(known.operator, known.arguments, known.tensors, specs)
        entry.signature = self._signatures.setdefault(signature, signature)
        entry.kind = kind
        entry.complete = True
        return output

    def execute_defined(self, entry: Entry, func: Operator, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> Any:
        """The same, and values that the call left undefined are zero, so that two runs of one program are the same.

        A program that reads such values shows it: its outputs differ from those of a run in which nobody zeroes them.
        """
        output = self.execute(entry, func, args, kwargs, tensors)
        if entry.kind == "undefined":
            given = {t.untyped_storage()._cdata for t in tensors}
            for tensor in tensors_in(output):
                if tensor.untyped_storage()._cdata not in given:
                    tensor.zero_()
        return output

    # -- the dispatcher's side ------------------------------------------------------------------------------------

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the wrapper it would add costs more than the rest of a call, and imports the compiler

    def __enter__(self) -> CallMode:
        if self._depth == 0:
            self.tracker.attach()
        self._depth += 1
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._depth -= 1
        if self._depth == 0:
            self.tracker.detach()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if kwargs is None:
            kwargs = {}
        tensors: list[torch.Tensor] = []
        key: list[Any] = [func]
        _append_key(key, tensors, args)
        for name, value in kwargs.items():
            key.append(name)
            _append_key(key, tensors, (value,))
        frozen = tuple(key)
        entry = self._entries.get(frozen)
        if entry is None:
            if types and not all(t in _PLAIN_TENSORS for t in types):
                return NotImplemented  # a tensor subclass with its own dispatch takes itself apart first
            entry = self._entries[frozen] = self._build(func, args, kwargs, tensors)
        if entry.decompose:
            with self:
                return take_apart(func, args, kwargs)
        self.calls += 1
        return self.on_call(entry, func, args, kwargs, tensors)

    def _build(self, func: Operator, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> Entry:
        if is_composite(func):
            entry = Entry.__new__(Entry)
            entry.decompose = True
            return entry
        _require_strided(func, tensors)
        if len({id(t) for t in tensors}) < len(tensors):  # x * x: tell the occurrences apart, another call is x * y
            tensors = []
            args, kwargs = pytree.tree_map_only(torch.Tensor, partial(_alias, tensors), (args, kwargs))
        entry = Entry(func, portable(func, args, kwargs), tensors)
        self.on_entry(entry)
        return entry


def _require_strided(func: Operator, tensors: Tensors) -> None:
    for tensor in tensors:
        if tensor.layout != torch.strided:
            raise UnsupportedError(
                f"{func}: expected strided tensors, found one of layout {str(tensor.layout).removeprefix('torch.')}",
                hint="convert it with .to_dense() before the reference runs",
            )


def _alias(aliases: list[torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    aliases.append(tensor.detach())
    return aliases[-1]


_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def _append_key(key: list[Any], tensors: list[torch.Tensor], values: Sequence[Any]) -> None:
    """Append to ``key`` what tells ``values`` from others: types included, for 1, 1.0 and True are equal in Python."""
    append = key.append
    for value in values:
        kind = type(value)
        if kind is int or kind is bool or kind is str:
            append(kind)
            append(value)
        elif value is None:
            append(None)
        elif isinstance(value, torch.Tensor):
            tensors.append(value)
            append(value.shape)
            try:
                append(value.stride())
            except RuntimeError as error:
                raise UnsupportedError(f"expected strided tensors, found one of layout {value.layout}") from error
            append(value.dtype)
        elif kind is float:
            append(value.hex())  # tells -0.0 from 0.0, and finds NaN again
        else:
            append(kind)
            if kind is list or kind is tuple:
                append(len(value))
                _append_key(key, tensors, value)
            else:
                append(repr(value))
