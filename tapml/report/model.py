"""What a report is made of: one suite, its migrations side by side, and the text of their kernels.

The HTML page, the JSON, the JUnit XML and the terminal all show this and nothing else.  It is read from the suite, the
journals of its migrations and the cache of kernels by :mod:`tapml.report.collect`; nothing is executed for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from tapml.migration.gate import GateResult
from tapml.migration.outcome import CaseResult, Outcome
from tapml.numerics.tolerance import limits_of
from tapml.suite.call import Json, torch_dtype
from tapml.suite.case import SignatureRecord

NOT_JUDGED = "not judged"
"""The status of a signature that an unfinished migration has not come to."""


@dataclass(frozen=True)
class CaseOrigin:
    """Where a kept case came from.  ``kept``: why (``first``, ``magnitude``, ``range``)."""

    case: str
    call_index: int
    module: str
    source: str
    kept: str


@dataclass(frozen=True)
class Environment:
    """Where and with what a run of a migration happened; times in UTC.

    ``mode``: ``native`` or ``emulated``, empty in journals that do not say.  ``description`` and ``details``: the
    adapter, its driver, features and limits.
    """

    at: str = ""
    device: str = ""
    mode: str = ""
    description: str = ""
    details: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    host: str = ""


@dataclass(frozen=True)
class Migration:
    """One migration as its journal has it.

    ``state``: ``finished``, ``interrupted``, or ``running``.  ``statuses``: of every compute signature, by id.
    ``outcomes``: of those that were judged.  ``final``: the run of the whole program with all that stayed in place.
    ``environments``: of its first run and of each one that went on with it.
    """

    folder: str
    target: str
    device: str
    emulated: bool
    gate: str
    state: str
    ended: str
    fingerprint: str
    environments: tuple[Environment, ...]
    outcomes: dict[str, Outcome]
    statuses: dict[str, str]
    gates: tuple[GateResult, ...]
    final: GateResult | None

    @property
    def label(self) -> str:
        """The device, and the target where the device's name does not begin with it."""
        return self.device if self.device.startswith(self.target) else f"{self.target} on {self.device}"

    @property
    def mode(self) -> str:
        """``native`` or ``emulated``."""
        return "emulated" if self.emulated else "native"

    @property
    def heading(self) -> str:
        """The label with the mode: ``metal:emulated (emulated)``."""
        return f"{self.label} ({self.mode})"

    @property
    def environment(self) -> Environment:
        """That of its last run."""
        return self.environments[-1]

    @property
    def counts(self) -> dict[str, int]:
        """Number of compute signatures by status."""
        return dict(Counter(self.statuses.values()))

    @property
    def accepted(self) -> bool:
        """Every compute signature is on the target, and the program with all of them is accepted."""
        everything = set(self.counts) <= {"migrated"}
        return self.state == "finished" and everything and self.final is not None and self.final.accepted

    @property
    def verdict(self) -> str:
        """``accepted``, ``not accepted``, or the state of a migration that has not finished."""
        return self.state if self.state != "finished" else "accepted" if self.accepted else "not accepted"

    @property
    def share(self) -> float | None:
        """The largest share of its tolerance that any case uses up; ``None`` when no case has one."""
        return largest(share(c) for o in self.outcomes.values() for c in o.cases)

    @property
    def launches(self) -> int:
        """Kernels launched, once for each case and once for the program."""
        cases = sum(c.launches for o in self.outcomes.values() for c in o.cases)
        return cases + (self.final.launches if self.final is not None else 0)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by phase over all signatures, and of the last run of the program."""
        found: dict[str, float] = {}
        for outcome in self.outcomes.values():
            for phase, seconds in outcome.seconds.items():
                found[phase] = found.get(phase, 0.0) + seconds
        if self.final is not None:
            found["program"] = self.final.seconds
        return found

    def to_json(self) -> Json:
        return {
            "folder": self.folder,
            "target": self.target,
            "device": self.device,
            "mode": self.mode,
            "gate": self.gate,
            "state": self.state,
            "accepted": self.accepted,
            "ended": self.ended,
            "fingerprint": self.fingerprint,
            "environments": [asdict(e) for e in self.environments],
            "counts": self.counts,
            "share_of_tolerance": self.share,
            "seconds": self.seconds,
            "final": self.final.to_json() if self.final else None,
            "gates": [g.to_json() for g in self.gates],
            "signatures": [
                {**(self.outcomes[s].to_json() if s in self.outcomes else {"signature": s}), "status": status}
                for s, status in self.statuses.items()
            ],
        }


@dataclass(frozen=True)
class KernelText:
    """What can be read of a compiled kernel: files by name, and the sizes in bytes of those that are binary."""

    files: dict[str, str]
    binaries: dict[str, int]


@dataclass(frozen=True)
class Report:
    """``signatures``: the compute signatures in order of their first call.  ``kernels``: by cache key, those that the
    cache still has.  ``notes``: what is not in the report and why.  ``made``: when, from what, by which version."""

    suite: str
    digest: str
    info: dict[str, Json]
    signatures: tuple[SignatureRecord, ...]
    cases: dict[str, CaseOrigin]
    kept: dict[str, int]
    migrations: tuple[Migration, ...]
    kernels: dict[str, KernelText]
    notes: tuple[str, ...]
    made: dict[str, str]

    @property
    def title(self) -> str:
        """The suite's name: its directory."""
        return self.suite.rstrip("/").rpartition("/")[2] or self.suite

    @property
    def accepted(self) -> bool:
        """Whether every migration is."""
        return all(m.accepted for m in self.migrations)

    def to_json(self) -> Json:
        """All figures.  The text of the kernels is in the HTML page and in the cache."""
        return {
            "suite": self.suite,
            "digest": self.digest,
            "info": self.info,
            "kept": self.kept,
            "made": self.made,
            "notes": list(self.notes),
            "signatures": [
                {
                    "signature": r.signature.id,
                    "operator": r.signature.operator,
                    "text": str(r.signature),
                    "calls": r.calls,
                    "modules": r.modules,
                    "cases": [asdict(self.cases[c]) for c in r.cases],
                }
                for r in self.signatures
            ],
            "migrations": [m.to_json() for m in self.migrations],
        }


# -- figures ----------------------------------------------------------------------------------------------------------


def largest(values: Iterable[float | None]) -> float | None:
    """The largest of those that exist; NaN when one of them is not known."""
    found = [v for v in values if v is not None]
    if any(math.isnan(v) for v in found):
        return math.nan
    return max(found) if found else None


def result_share(result: Json) -> float | None:
    """Error over tolerance of one result: what the rule that came nearest to failing saw over what it allows.

    Above 1 is a defect; 0 is equal to what PyTorch recorded.  ``None`` where the decision is not one about an error: a
    wrong shape, a NaN in the wrong place, wrong integers.  NaN where it is, and the journal does not say: it is of a
    version of tapml that did not write that down.
    """
    figures = result.get("figures") or {}
    if figures.get("tolerance"):
        error, allowed = float(figures["tolerance"]["error"]), float(figures["tolerance"]["allowed"])
        return error / allowed if allowed else math.inf
    if result.get("code") == "exact":
        return 0.0 if result.get("passed") else None
    return math.nan if "rmse" in figures and result.get("passed") else None


def share(case: CaseResult) -> float | None:
    """The largest :func:`result_share` of a case."""
    return largest(result_share(r) for r in (case.verdict or {}).get("results", ()))


def headroom(record: SignatureRecord, case: CaseResult) -> tuple[float, float, str] | None:
    """(largest magnitude, the largest that its dtype holds, dtype) of the result that comes nearest to overflowing."""
    worst: tuple[float, float, str] | None = None
    dtypes = {name: spec.dtype for name, spec in record.signature.results}
    for result in (case.verdict or {}).get("results", ()):
        part = (result.get("figures") or {}).get("headroom")
        if part is None or result["name"] not in dtypes:
            continue
        limit = limits_of(torch_dtype(dtypes[result["name"]])).largest
        if worst is None or part > worst[0] / worst[1]:
            worst = (float(part) * limit, limit, dtypes[result["name"]])
    return worst
