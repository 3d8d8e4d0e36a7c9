"""A smaller suite with the same score: without the cases that catch nothing which the others do not."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tapml.errors import UsageError
from tapml.score.result import Score, SignatureScore, carrying
from tapml.suite.call import Json
from tapml.suite.case import Case, SignatureRecord
from tapml.suite.reader import Suite
from tapml.suite.record import TensorRecord
from tapml.suite.writer import SuiteWriter

_EXACT = 10
"""Cases of a signature up to which every choice of them is looked at; beyond, the best case is taken first."""


@dataclass(frozen=True)
class Minimised:
    """``nbytes``: of the tensors of all cases, each case for itself; ``stored``: of the suite on the disk, where equal
    values are kept once.  ``caught``: defects that the kept cases catch."""

    path: str
    cases: int
    cases_before: int
    nbytes: int
    nbytes_before: int
    stored: int
    stored_before: int
    caught: int
    caught_before: int

    def to_json(self) -> Json:
        return asdict(self)


def require_output(suite: Path, output: Path, *, force: bool) -> None:
    """Find out before the work is done that nothing can be written at ``output``.  Raises :class:`UsageError`."""
    if output.resolve() == suite.resolve():
        raise UsageError(f"expected another directory than the suite itself, found {output}", hint="choose another -o")
    with SuiteWriter(output, force=force):
        pass


def write_minimised(score: Score, suite: Path, output: Path, *, force: bool = False) -> Minimised:
    """Write the suite with the kept cases only to ``output``; nothing else of it changes, its program included.

    Of a signature that was scored, the cheapest choice of cases that catches what all of them catch; of one that has
    nothing to score (a view) one; of one that was not scored (it does not pass, or was not selected) all.
    """
    opened = Suite.open(suite)
    kept = choose(score, opened)
    records = []
    with SuiteWriter(output, force=force) as writer:
        for record in opened.signatures:
            ids = []
            for old in kept[record.signature.id]:
                case = opened.case(old)
                new = f"{record.signature.id}/{len(ids)}"
                writer.add_case(Case(new, case.signature, case.origin, case.tensors, case.results, case.stress))
                ids.append(new)
            records.append(
                SignatureRecord(
                    record.signature, record.kind, record.calls, record.modules, tuple(ids), record.carved_from
                )
            )
        info = {**opened.info, "minimised": {"from": opened.digest, "seed": score.seed, "limit": score.limit}}
        info.pop("created", None)
        path = writer.commit(records, info=info, reference_outputs=opened.reference_outputs())
    caught = {case: ids for case, ids in carrying(score.fates).items()}
    chosen = {case for ids in kept.values() for case in ids}
    every = {(case.partition("/")[0], d) for case, ids in caught.items() for d in ids}
    still = {(case.partition("/")[0], d) for case, ids in caught.items() if case in chosen for d in ids}
    return Minimised(
        str(path),
        len(chosen),
        len(opened.case_ids),
        sum(_bytes(opened, case) for case in chosen),
        sum(_bytes(opened, case) for case in opened.case_ids),
        Suite.open(path).nbytes,
        opened.nbytes,
        len(still),
        len(every),
    )


def choose(score: Score, suite: Suite) -> dict[str, list[str]]:
    """The cases to keep, in order, by signature."""
    scored = {s.signature: s for s in score.signatures}
    kept: dict[str, list[str]] = {}
    held: set[str] = set()
    for record in sorted(suite.signatures, key=lambda r: -max((_bytes(suite, c) for c in r.cases), default=0)):
        signature = record.signature.id
        found = scored.get(signature)
        if record.kind == "compute" and (found is None or found.status != "passed" or not found.fates):
            kept[signature] = list(record.cases)
        else:
            kept[signature] = _cheapest(suite, record.cases, found, held)
        for case in kept[signature]:
            held |= {r.buffer for r in suite.entry(case).records}
    return kept


def _cheapest(suite: Suite, cases: Sequence[str], found: SignatureScore | None, held: set[str]) -> list[str]:
    """Cases that catch what all of them do, with the fewest bytes that no kept case has already."""
    caught = carrying(found.fates) if found is not None else {}
    wanted = set().union(*(caught.get(c, set()) for c in cases)) if cases else set()

    def cost(chosen: Sequence[str]) -> tuple[int, int]:
        buffers = {r.buffer: _size(r) for c in chosen for r in suite.entry(c).records if r.buffer not in held}
        return sum(buffers.values()), sum(_bytes(suite, c) for c in chosen)

    def covers(chosen: Sequence[str]) -> bool:
        return wanted <= set().union(*(caught.get(c, set()) for c in chosen))

    if len(cases) <= _EXACT:
        choices = [c for n in range(1, len(cases) + 1) for c in itertools.combinations(cases, n) if covers(c)]
        return list(min(choices, key=cost, default=()))
    chosen: list[str] = []
    while not chosen or not covers(chosen):
        missing = wanted - set().union(*(caught.get(c, set()) for c in chosen))
        rest = [c for c in cases if c not in chosen]
        chosen.append(max(rest, key=lambda c: (len(caught.get(c, set()) & missing), -cost([c])[1])))
    return [c for c in cases if c in chosen]


def _bytes(suite: Suite, case: str) -> int:
    return sum(_size(record) for record in suite.entry(case).records)


def _size(record: TensorRecord) -> int:
    """Bytes of the tensor's distinct values."""
    from tapml.suite.record import DTYPES, distinct_shape

    count = 1
    for extent in distinct_shape(record.spec):
        count *= extent
    return count * DTYPES[record.spec.dtype].itemsize
