"""From a suite and the journals in it to a report.  Only reads: a migration that runs meanwhile is not disturbed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from tapml._version import __version__
from tapml.errors import SuiteError, UsageError
from tapml.lock import owner
from tapml.migration.cache import KernelCache
from tapml.migration.gate import GateResult
from tapml.migration.journal import LOCK, read_events
from tapml.migration.ladder import compute_signatures, kept_in_pytorch
from tapml.migration.outcome import Outcome
from tapml.migration.resume import now
from tapml.report.model import NOT_JUDGED, CaseOrigin, Environment, KernelText, Migration, Report
from tapml.suite.call import Json
from tapml.suite.case import SignatureRecord
from tapml.suite.reader import Suite

_Parsed = TypeVar("_Parsed")

JOURNAL = "journal.jsonl"


def collect(path: Path, devices: Sequence[str] = (), cache: Path | None = None) -> Report:
    """The report of the suite at ``path``: all of its migrations, or those to ``devices`` (names, or targets).

    Raises :class:`UsageError` when there is no such migration, naming what to run; :class:`SuiteError` for a damaged
    suite or journal.
    """
    suite = Suite.open(path)
    records = compute_signatures(suite)
    notes: list[str] = []
    found: list[Migration] = []
    for file in sorted(path.glob(f"migrations/*/{JOURNAL}")):
        events = read_events(file)
        if not events:
            continue
        if events[0].get("suite") != suite.digest:
            notes.append(f"{file.parent.name} is left out: it migrated another carve of this suite")
            continue
        found.append(_parsed(file, lambda file=file, events=events: _migration(file, events, records)))  # type: ignore[misc]
    chosen = _choose(path, found, devices)
    kernels = KernelCache(cache)
    texts = _texts(kernels, chosen, notes)
    return Report(
        suite=str(path.absolute()),
        digest=suite.digest,
        info=suite.info,
        signatures=tuple(records),
        cases={c: _origin(suite, c) for r in records for c in r.cases},
        kept=kept_in_pytorch(suite),
        migrations=tuple(chosen),
        kernels=texts,
        notes=tuple(notes),
        made={"at": now(), "tapml": __version__, "suite": str(path.absolute()), "kernels": str(kernels.root)},
    )


def _choose(path: Path, found: Sequence[Migration], devices: Sequence[str]) -> list[Migration]:
    if not found:
        raise UsageError(
            f"expected a suite with migrations, found none in {path}",
            hint=f"`tapml migrate {path} --target llvm` makes one; `tapml devices` lists what else is here",
        )
    unknown = [d for d in devices if not any(d in (m.device, m.target) for m in found)]
    if unknown:
        raise UsageError(
            f"expected a migration to {unknown[0]}, found those to {', '.join(m.device for m in found)}",
            hint=f"`tapml migrate {path}` with its --target and --device makes one",
        )
    if not devices:
        return list(found)
    order = {id(m): min((i for i, d in enumerate(devices) if d in (m.device, m.target)), default=-1) for m in found}
    return sorted((m for m in found if order[id(m)] >= 0), key=lambda m: order[id(m)])


def _parsed(file: Path, parse: Callable[[], _Parsed]) -> _Parsed:
    try:
        return parse()
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise SuiteError(
            f"{file}: expected what a migration wrote, found something else ({error})",
            hint="migrate again with --restart",
        ) from error


def _migration(file: Path, events: Sequence[Json], records: Sequence[SignatureRecord]) -> Migration:
    begin = events[0]
    outcomes: dict[str, Outcome] = {}
    gates: list[GateResult] = []
    environments = [_environment(e["environment"]) for e in events if e.get("environment")]
    finished = next((e for e in events if e["event"] == "finished"), None)
    for event in events:
        if event["event"] == "judged":
            outcome = _executed(Outcome.from_json(event["outcome"]))
            outcomes[outcome.signature] = outcome
        elif event["event"] == "gate":
            gates.extend(GateResult.from_json(g) for g in event["results"])
    kernels = {s for g in gates for s in g.kernels}
    rejected = {s for g in gates for s in g.rejected}
    statuses = {}
    for record in records:
        known = outcomes.get(record.signature.id)
        statuses[record.signature.id] = _status(known, kernels, rejected)
    if finished is not None:
        state = "finished"
    else:
        lock = file.with_name(LOCK)
        state = "running" if lock.exists() and owner(lock) is not None else "interrupted"
    target, device = str(begin["target"]), str(begin["device"])
    environments = environments or [Environment(device=device)]
    return Migration(
        folder=file.parent.name,
        target=target,
        device=device,
        emulated=environments[-1].mode == "emulated" or device.rpartition(":")[2] == "emulated",
        gate=str(begin["gate"]),
        state=state,
        ended=str((finished or {}).get("at", "")),
        fingerprint=str(begin["fingerprint"]),
        environments=tuple(environments),
        outcomes={r.signature.id: outcomes[r.signature.id] for r in records if r.signature.id in outcomes},
        statuses=statuses,
        gates=tuple(gates),
        final=_final(finished, gates, len(kernels)),
    )


def _executed(outcome: Outcome) -> Outcome:
    """As it is, unless it passed without a kernel on the device: whoever wrote that, it is no pass."""
    launched = outcome.launches > 0 and outcome.cases and all(c.launches > 0 for c in outcome.cases)
    if not outcome.passed or launched:
        return outcome
    return Outcome.from_json(
        {**outcome.to_json(), "status": "failed", "message": "passed in the journal, but no kernel was launched"}
    )


def _status(outcome: Outcome | None, kernels: set[str], rejected: set[str]) -> str:
    if outcome is None:
        return NOT_JUDGED
    if not outcome.passed:
        return outcome.status
    if outcome.signature in kernels:
        return "migrated"
    return "rolled back" if outcome.signature in rejected else "passed"


def _final(finished: Json, gates: Sequence[GateResult], kernels: int) -> GateResult | None:
    """What the journal says, or the last gate when that had everything in place."""
    if finished is not None and finished.get("final"):
        return GateResult.from_json(finished["final"])
    last = gates[-1] if gates else None
    return last if last is not None and last.accepted and last.complete == kernels else None


def _environment(data: Json) -> Environment:
    return Environment(
        at=str(data["at"]),
        device=str(data["device"]),
        mode=str(data["mode"]),
        description=str(data["description"]),
        details={str(k): str(v) for k, v in data["details"].items()},
        versions={str(k): str(v) for k, v in data["versions"].items()},
        host=str(data["host"]),
    )


def _origin(suite: Suite, case: str) -> CaseOrigin:
    entry = suite.entry(case)
    origin = entry.origin
    return CaseOrigin(case, origin.call_index, origin.module, origin.source, str(entry.stress.get("kept", "")))


def _texts(cache: KernelCache, migrations: Sequence[Migration], notes: list[str]) -> dict[str, KernelText]:
    found: dict[str, KernelText] = {}
    for migration in migrations:
        keys = [o.artifact for o in migration.outcomes.values() if o.artifact]
        missing = 0
        for key in keys:
            texts = cache.texts(key)
            if texts is None:
                missing += 1
            else:
                found[key] = KernelText(*texts)
        if missing:
            notes.append(
                f"{migration.label}: the sources of {missing} of {len(keys)} kernels are no longer in {cache.root}; "
                "migrating again with --restart brings them back"
            )
    return found
