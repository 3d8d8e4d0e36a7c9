"""What happened to one signature on a target: a value that goes from worker to journal to report."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from tapml.suite.call import Json

STATUSES = ("passed", "failed", "unsupported", "crashed", "timed out", "skipped", "refused")
"""``passed``: executed on the device and right.  ``failed``: executed and wrong, or refused by the compiler.
``unsupported``: no way to the target.  ``crashed``, ``timed out``: the process that compiled or ran it did not survive.
``skipped``: not tried, for a reason that is no fault of the candidate (the device lacks a feature).  ``refused``: a boundary
case that PyTorch does not execute either."""
WRONG = ("failed", "crashed", "timed out")
"""The statuses of what was compiled or executed, and is not right."""


@dataclass(frozen=True)
class Attempt:
    """One route (see :mod:`tapml.lowering.lower`) and how far it came."""

    route: str
    status: str
    message: str


@dataclass(frozen=True)
class CaseResult:
    """The verdict on one case (as JSON, see :class:`tapml.numerics.verdict.Verdict`) with launches and seconds."""

    case: str
    passed: bool
    code: str
    explanation: str
    warnings: tuple[str, ...]
    launches: int
    seconds: float
    verdict: Json


@dataclass(frozen=True)
class OwnCode:
    """Code of the user that an operator runs by.

    ``kind``: ``converter``, ``kernel`` or ``schedule``.  ``where``: its own file and line, ``my_ops.py:12``.  ``file``: the
    path that was given by ``--with``; ``digest``: SHA-256 of the content of that file and of the local modules that it
    imports, as they were executed.
    """

    kind: str
    name: str
    where: str
    file: str
    digest: str

    def __str__(self) -> str:
        given = Path(self.file).name
        place = f"of {self.where}" if self.where.startswith(f"{given}:") else f"({self.where}) of {given}"
        return f"{self.kind} {self.name} {place} (sha256 {self.digest[:12]})"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one signature.

    ``artifact``: key of the compiled kernel in the cache.  ``launches``: kernels launched by one execution, more than 0
    whenever ``status`` is ``passed``.  ``output``: the last lines that a crashed or hung worker printed.  ``seconds``:
    time by phase (``lower``, ``build``, ``run``, ``judge``).  ``boundary``: which neighbour of the signature this is about
    (:mod:`tapml.boundary`), empty for the signature itself.  ``own``: the code of the user that it was judged by.
    """

    signature: str
    operator: str
    status: str
    message: str
    route: str = ""
    converters: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    artifact: str = ""
    cached: bool = False
    launches: int = 0
    attempts: tuple[Attempt, ...] = ()
    cases: tuple[CaseResult, ...] = ()
    output: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    boundary: str = ""
    own: tuple[OwnCode, ...] = ()

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Distinct warnings of all cases, in order."""
        return tuple(dict.fromkeys(w for c in self.cases for w in c.warnings))

    def to_json(self) -> Json:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Json) -> Outcome:
        data = dict(data)
        data["attempts"] = tuple(Attempt(**a) for a in data["attempts"])
        data["cases"] = tuple(CaseResult(**{**c, "warnings": tuple(c["warnings"])}) for c in data["cases"])
        for name in ("converters", "notes", "output"):
            data[name] = tuple(data[name])
        data["own"] = tuple(OwnCode(**o) for o in data.get("own", ()))
        return cls(**data)
