"""The reference program with some of its operators on the target, and the others in PyTorch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tapml.carving.interception import CallMode, Entry
from tapml.carving.origin import source_line
from tapml.carving.reference import Reference
from tapml.carving.sources import SourceSpec, load_source
from tapml.errors import DeviceError, SuiteError, TapmlError, UnsupportedError, UsageError
from tapml.lowering.registry import load_extensions
from tapml.migration.cache import KernelCache
from tapml.migration.job import open_device, open_suite
from tapml.numerics.model import ModelComparison, compare_outputs
from tapml.platform import Device, Executable
from tapml.suite.call import Signature
from tapml.suite.case import SignatureRecord

Operator = torch._ops.OpOverload


@dataclass(frozen=True)
class HybridSetup:
    """What a hybrid process is started with."""

    suite: str
    target: str
    device: str
    extensions: tuple[str, ...] = ()
    cache: str | None = None


@dataclass(frozen=True)
class HybridRequest:
    """One run: the kernel (cache key) of each migrated signature, by signature id.

    ``limited``: an operator of which only the first ``limit`` calls run on the target (for bisection).
    """

    kernels: dict[str, str]
    limited: str = ""
    limit: int = 0


@dataclass(frozen=True)
class HybridResult:
    """Comparison with the recorded outputs of the reference, and what executed where.

    ``on_target`` and ``in_torch``: calls by operator.  ``last``: where the last call of the limited operator that ran on
    the target came from.  ``text``: what the outputs say, if they are text.
    """

    comparison: ModelComparison
    on_target: dict[str, int]
    in_torch: dict[str, int]
    launches: int
    seconds: float
    last: str = ""
    text: str = ""
    unknown: tuple[str, ...] = ()


class HybridMode(CallMode):  # type: ignore[no-untyped-call]
    """Runs migrated calls on a device, writes results where the operator would have, and leaves the rest to PyTorch."""

    def __init__(
        self,
        model: torch.nn.Module | None,
        records: Mapping[str, SignatureRecord],
        load: Callable[[Signature], Executable],
        request: HybridRequest,
    ) -> None:
        super().__init__(model, observe=False)
        self._known = records
        self._load = load
        self._request = request
        self.on_target: dict[str, int] = {}
        self.in_torch: dict[str, int] = {}
        self.unknown: dict[str, None] = {}
        self.launches = 0
        self.last = ""
        self._used = 0

    def on_entry(self, entry: Entry) -> None:
        """Decide once per kind of call."""
        record = self._known.get(entry.signature.id)
        if record is None:
            self.unknown[str(entry.signature)] = None
            return
        entry.kind = record.kind
        if record.signature.id in self._request.kernels:
            entry.data = (self._load(record.signature), record.signature)

    def on_call(self, entry: Entry, func: Operator, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> Any:
        name = entry.signature.operator
        if entry.data is None or not self._allowed(name):
            self.in_torch[name] = self.in_torch.get(name, 0) + 1
            return self.execute_defined(entry, func, args, kwargs, tensors)
        executable, signature = entry.data
        inputs = entry.arguments(tensors)
        execution = executable.run(inputs)
        self.launches += execution.launches
        self.on_target[name] = self.on_target.get(name, 0) + 1
        return entry.restore(_assemble(entry.operator, signature, inputs, execution.results, args, kwargs))

    def _allowed(self, operator: str) -> bool:
        if operator != self._request.limited:
            return True
        if self._used >= self._request.limit:
            return False
        self._used += 1
        if self._used == self._request.limit:
            self.last = f"call {self._used} of {operator} in {self.module or 'the program'} ({source_line()})"
        return True


def _assemble(
    operator: Operator,
    signature: Signature,
    inputs: list[torch.Tensor],
    results: tuple[torch.Tensor, ...],
    args: Any,
    kwargs: Any,
) -> Any:
    """Write mutated arguments and build what the operator returns from its results."""
    fresh = []
    for (name, _), value in zip(signature.results, results, strict=True):
        if name.startswith("arg"):
            inputs[int(name[3:])].copy_(value)
        else:
            fresh.append(value)
    feed = iter(fresh)
    returned = []
    for declared in operator._schema.returns:
        if declared.alias_info is not None and declared.alias_info.is_write:
            returned.append(_written(operator, declared, args, kwargs))
        elif "[]" in str(declared.type):
            returned.append(list(feed))
        else:
            returned.append(next(feed))
    return returned[0] if len(returned) == 1 else tuple(returned)


def _written(operator: Operator, declared: Any, args: Any, kwargs: Any) -> Any:
    """The argument that a return value of an in-place operator is."""
    for i, argument in enumerate(operator._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.before_set & declared.alias_info.before_set:
            return kwargs[argument.name] if argument.name in kwargs else args[i]
    raise DeviceError(f"{operator} returns an alias of no argument")


@dataclass
class HybridProgram:
    """A loaded reference which can be run with any set of kernels.  Lives in a worker process."""

    setup: HybridSetup
    reference: Reference
    records: dict[str, SignatureRecord]
    expected: dict[str, torch.Tensor]
    device: Device
    _loaded: dict[str, Executable] = field(default_factory=dict)

    @classmethod
    def open(cls, setup: HybridSetup) -> HybridProgram:
        """Load the suite's source again.  Raises what loading raises, and :class:`SuiteError` for a suite without one."""
        load_extensions(setup.extensions)
        suite = open_suite(setup.suite)
        spec = suite.info.get("source")
        if spec is None:
            raise SuiteError(f"{setup.suite}: expected the source of the reference in the suite, found none")
        _, device = open_device(setup.target, setup.device)
        return cls(
            setup,
            load_source(SourceSpec.from_json(spec)),
            {record.signature.id: record for record in suite.signatures},
            suite.reference_outputs(),
            device,
        )

    def run(self, request: HybridRequest) -> HybridResult:
        """One hybrid run, compared with the reference's recorded outputs.

        A program that raises, with these kernels, is one that is not accepted.
        """
        for signature, key in request.kernels.items():
            self._executable(self.records[signature].signature, key)
        mode = HybridMode(
            self.reference.model, self.records, lambda s: self._executable(s, request.kernels[s.id]), request
        )
        begin = time.perf_counter()
        text = ""
        try:
            outputs = self.reference.run(mode)
        except (UsageError, DeviceError, UnsupportedError) as error:
            comparison = ModelComparison(False, error.message, ())
        else:
            comparison = compare_outputs(self.expected, outputs)
            text = self.reference.text(outputs)
        seconds = time.perf_counter() - begin
        return HybridResult(
            comparison,
            mode.on_target,
            mode.in_torch,
            mode.launches,
            seconds,
            mode.last,
            text,
            tuple(mode.unknown),
        )

    def _executable(self, signature: Signature, key: str) -> Executable:
        if key not in self._loaded:
            artifact = KernelCache(Path(self.setup.cache) if self.setup.cache else None).get(key)
            if artifact is None:
                raise TapmlError(
                    f"the compiled kernel of {signature} has gone from the cache", hint="run again with --restart"
                )
            self._loaded[key] = self.device.load(artifact, signature)
        return self._loaded[key]


def open_program(setup: HybridSetup) -> Callable[[HybridRequest], HybridResult]:
    """Worker set-up (see :mod:`tapml.migration.worker`): load the program, return its run function."""
    return HybridProgram.open(setup).run
