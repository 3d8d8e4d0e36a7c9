"""The gate: the program with one more step in place, in a process of its own; and bisection when it leaves the bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace

from tapml.errors import SuiteError
from tapml.migration.hybrid import HybridRequest, HybridResult, HybridSetup, open_program
from tapml.migration.process import Gone, WorkerProcess
from tapml.suite.call import Json


@dataclass(frozen=True)
class GateResult:
    """One decision.

    ``operator``: what was put in place (empty: everything).  ``kernels``: what stays in place because of this decision.
    ``rejected``: signatures taken back.  ``where``: the call at which the program left the bounds.  ``complete``: number of
    signatures in place during the run.  ``comparison``: see :class:`tapml.numerics.model.ModelComparison`.
    """

    operator: str
    accepted: bool
    explanation: str
    kernels: dict[str, str] = field(default_factory=dict)
    rejected: tuple[str, ...] = ()
    where: str = ""
    complete: int = 0
    launches: int = 0
    seconds: float = 0.0
    on_target: dict[str, int] = field(default_factory=dict)
    in_torch: dict[str, int] = field(default_factory=dict)
    comparison: Json = None
    text: str = ""
    unknown: tuple[str, ...] = ()

    def to_json(self) -> Json:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Json) -> GateResult:
        return cls(**{**data, "rejected": tuple(data["rejected"]), "unknown": tuple(data["unknown"])})


class Gate:
    """Owns the hybrid process; starts another when a kernel takes it down."""

    def __init__(self, setup: HybridSetup, seconds: float) -> None:
        self._setup, self._seconds = setup, seconds
        self._worker: WorkerProcess | None = None
        self._sound = False  # whether the program was seen to give the suite's outputs

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self._discard()

    def limit(self, seconds: float) -> None:
        """How long a run may take from now on, at most what it might before."""
        self._seconds = min(self._seconds, seconds)

    def start(self) -> None:
        """Begin loading the reference."""
        if self._worker is None:
            self._worker = WorkerProcess(open_program, (self._setup,), "tapml-hybrid")

    def decide(
        self, name: str, added: dict[str, str], kernels: dict[str, str], operator_of: Callable[[str], str]
    ) -> Iterator[GateResult]:
        """Run the program with ``added`` on top of ``kernels``.

        When it leaves its bounds, the operator at fault is found (by bisection, if ``added`` holds several), named with the
        call at which it happened, and taken back; the rest is tried again.
        """
        remaining = dict(added)
        while remaining:
            result = self.check(name, remaining, kernels)
            if result.accepted:
                yield result
                return
            before, operator = self.operator_at_fault(remaining, kernels, operator_of)
            bad = {s: k for s, k in remaining.items() if operator_of(s) == operator}
            where = self._call_at_fault(operator, bad, {**kernels, **before})
            remaining = {s: k for s, k in remaining.items() if s not in bad}
            yield replace(result, operator=operator, kernels={}, rejected=tuple(bad), where=where)

    def check(self, name: str, added: dict[str, str], kernels: dict[str, str]) -> GateResult:
        """One run.  A process that crashes twice or takes too long is a rejection.

        Before the first rejection the program is run without any kernel.  Raises :class:`SuiteError` when it is the
        reference itself that is no longer what it was, or does not run.
        """
        together = {**kernels, **added}
        try:
            result = self._run(HybridRequest(together))
        except Gone as gone:
            self._require_sound_reference()
            text = f"the program {gone.status}: {gone.message}"
            return GateResult(name, False, text, complete=len(together), comparison={"output": list(gone.output)})
        if result.comparison.accepted:
            self._sound = True
        else:
            self._require_sound_reference()
        return GateResult(
            name,
            result.comparison.accepted,
            result.comparison.explanation,
            dict(added) if result.comparison.accepted else {},
            complete=len(together),
            launches=result.launches,
            seconds=result.seconds,
            on_target=result.on_target,
            in_torch=result.in_torch,
            comparison=result.comparison.to_json(),
            text=result.text,
            unknown=result.unknown,
        )

    def _require_sound_reference(self) -> None:
        if self._sound:
            return
        hint = "is the model still what it was? carve the suite again"
        try:
            comparison = self._run(HybridRequest({})).comparison
        except Gone as gone:
            raise SuiteError(f"the reference, without any kernel, {gone.status}: {gone.message}", hint=hint) from None
        if not comparison.accepted:
            raise SuiteError(
                f"the reference, without any kernel, gives other outputs than the suite has: {comparison.explanation}",
                hint=hint,
            )
        self._sound = True

    def _run(self, request: HybridRequest) -> HybridResult:
        """A crash counts when it happens twice: the first may have come from outside."""
        try:
            return self._run_once(request)
        except Gone as gone:
            if not gone.died:
                raise
        return self._run_once(request)

    def _run_once(self, request: HybridRequest) -> HybridResult:
        self._load()
        assert self._worker is not None
        try:
            answer: HybridResult = self._worker.ask(request, seconds=self._seconds)
        except Gone:
            self._discard()
            raise
        return answer

    def _load(self) -> None:
        """Wait until the reference is loaded.  Raises :class:`SuiteError` when the process dies of that, twice."""
        for last in (False, True):
            self.start()
            assert self._worker is not None
            try:
                self._worker.wait_ready()
                return
            except Gone as gone:
                self._discard()
                if last or not gone.died:
                    raise SuiteError(
                        f"loading the reference {gone.status}: {gone.message}",
                        hint=f"it printed: {gone.output[-1]}" if gone.output else "is there enough memory?",
                    ) from None

    def _discard(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _accepted(self, request: HybridRequest) -> tuple[bool, str]:
        try:
            result = self._run(request)
        except Gone:
            return False, ""
        return result.comparison.accepted, result.last

    def operator_at_fault(
        self, added: dict[str, str], kernels: dict[str, str], operator_of: Callable[[str], str]
    ) -> tuple[dict[str, str], str]:
        """(what comes before it in ``added``, the first operator, in order, with which the program leaves its bounds)."""
        operators = list(dict.fromkeys(operator_of(s) for s in added))
        low, high = 0, len(operators)  # with the first `high` operators it is out of bounds
        while high - low > 1:
            middle = (low + high) // 2
            chosen = {s: k for s, k in added.items() if operator_of(s) in operators[:middle]}
            if self._accepted(HybridRequest({**kernels, **chosen}))[0]:
                low = middle
            else:
                high = middle
        at_fault = high - 1
        return {s: k for s, k in added.items() if operator_of(s) in operators[:at_fault]}, operators[at_fault]

    def _call_at_fault(self, operator: str, bad: dict[str, str], kernels: dict[str, str]) -> str:
        """The call of ``operator`` from which on the program is out of bounds, by bisection over its calls."""
        together = {**kernels, **bad}
        try:
            calls = self._run(HybridRequest(together, operator, 1 << 60)).on_target.get(operator, 0)
        except Gone:
            return "found no single call: the process does not survive"
        low, high, where = 0, calls, ""
        while high - low > 1:
            middle = (low + high) // 2
            accepted, _ = self._accepted(HybridRequest(together, operator, middle))
            low, high = (middle, high) if accepted else (low, middle)
        if calls:
            accepted, where = self._accepted(HybridRequest(together, operator, high))
            if accepted:
                return "found no single call: the error adds up"
        return where
