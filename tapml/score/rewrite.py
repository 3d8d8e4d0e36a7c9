"""A suite written anew from its score: without the cases that add nothing to it, or with inputs that catch what it misses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from tapml.errors import UsageError
from tapml.score.inputs import other_inputs, random_inputs
from tapml.score.result import CAUGHT, MISSED, Score, SignatureScore, carrying
from tapml.suite.call import Json
from tapml.suite.case import Case
from tapml.suite.reader import Suite
from tapml.suite.record import DTYPES, TensorRecord, distinct_shape
from tapml.suite.writer import SuiteWriter

_EXACT = 10
"""Cases of a signature up to which every choice of them is looked at; beyond, the best case is taken first."""


@dataclass(frozen=True)
class Rewritten:
    """``cases``: carved ones that were kept; ``added``: drawn ones.  ``nbytes``: of the tensors of all cases, each case for
    itself, without parameters that are referred to; ``stored``: of the suite on the disk, where equal values are kept
    once.  ``caught``: defects that its cases catch."""

    path: str
    cases: int
    added: int
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


def write_rewritten(
    score: Score, suite: Path, output: Path, *, minimise: bool, strengthen: bool, force: bool = False
) -> Rewritten:
    """Write the suite anew to ``output``; nothing but its cases changes, its program included.  Parameters that it refers
    to stay in their checkpoint.

    ``minimise``: of a signature that was scored, the cheapest choice of cases that catches what all of them catch, one at
    least; of one that was not scored (it does not pass, or was not selected) all; of one that stays in PyTorch (a view)
    none, as nothing is judged on them.
    ``strengthen``: with drawn inputs that catch what the cases miss, as cases whose results PyTorch gives now.
    """
    opened = Suite.open(suite)
    kept = choose(score, opened) if minimise else {r.signature.id: list(r.cases) for r in opened.signatures}
    added = {s.signature: _witnesses(opened, s, score.seed) for s in score.signatures} if strengthen else {}
    records = []
    sources: dict[int, tuple[str, str, int]] = {}
    with SuiteWriter(output, force=force, params="reference", external=lambda t: sources.get(t.data_ptr())) as writer:
        for record in opened.signatures:
            signature = record.signature.id
            found = [opened.case(case) for case in kept[signature]]
            sources = {t.data_ptr(): where for case in found for t, where in _referred(opened, case)}
            found += [chosen for chosen, _ in added.get(signature, ())]
            numbered = [replace(case, id=f"{signature}/{number}") for number, case in enumerate(found)]
            for case in numbered:
                writer.add_case(case)
            records.append(replace(record, cases=tuple(case.id for case in numbered)))
        what = {"minimised": minimise, "strengthened": strengthen}
        info = {**opened.info, "rewritten": {"from": opened.digest, "seed": score.seed, "limit": score.limit, **what}}
        info.pop("created", None)
        path = writer.commit(records, info=info, reference_outputs=opened.reference_outputs())
    chosen = {case for ids in kept.values() for case in ids}
    every = {(f.signature, f.defect.id) for f in score.fates if f.fate == CAUGHT}
    still = {(f.signature, f.defect.id) for f in score.fates if f.fate == CAUGHT and chosen & set(f.cases)}
    gained = {(s, defect) for s, inputs in added.items() for _, defects in inputs for defect in defects}
    fresh = Suite.open(path)
    return Rewritten(
        str(path),
        len(chosen),
        sum(len(inputs) for inputs in added.values()),
        len(opened.case_ids),
        sum(_bytes(fresh, case) for case in fresh.case_ids),
        sum(_bytes(opened, case) for case in opened.case_ids),
        fresh.nbytes,
        opened.nbytes,
        len(still | gained),
        len(every),
    )


def _referred(suite: Suite, case: Case) -> Iterator[tuple[torch.Tensor, tuple[str, str, int]]]:
    """The tensors of a case that are a checkpoint's, with file, name and offset."""
    entry = suite.entry(case.id)
    tensors = (*case.tensors, *(tensor for _, tensor in case.results))
    for tensor, record in zip(tensors, entry.records, strict=True):
        where = suite.checkpoint_tensor(record)
        if where is not None:
            yield tensor, where


def _witnesses(suite: Suite, score: SignatureScore, seed: int) -> list[tuple[Case, set[str]]]:
    """Drawn inputs that together catch what the carved cases of a signature miss, each with the defects that it catches;
    the one that catches most comes first."""
    by_input: dict[str, set[str]] = {}
    for fate in score.fates:
        for name in fate.wrong if fate.fate == MISSED else ():
            by_input.setdefault(name, set()).add(fate.defect.id)
    if not by_input:
        return []
    cases = list(suite.cases(score.signature))
    drawn = {i.name: i.case for i in (*random_inputs(cases, seed), *other_inputs(cases, seed))}
    chosen: list[tuple[Case, set[str]]] = []
    missing = set().union(*by_input.values())
    while missing:
        name = max(sorted(by_input), key=lambda n: len(by_input[n] & missing))
        if not by_input[name] & missing:
            break
        missing -= by_input[name]
        chosen.append((replace(drawn[name], stress={"kept": "drawn", "input": name}), by_input[name]))
    return chosen


def choose(score: Score, suite: Suite) -> dict[str, list[str]]:
    """The cases to keep, in order, by signature."""
    scored = {s.signature: s for s in score.signatures}
    kept: dict[str, list[str]] = {}
    records = [r for case in suite.case_ids for r in suite.entry(case).records]
    held = {r.buffer for r in records if suite.checkpoint_tensor(r) is not None}  # they take no room in the suite
    for record in sorted(suite.signatures, key=lambda r: -max((_bytes(suite, c) for c in r.cases), default=0)):
        signature = record.signature.id
        found = scored.get(signature)
        if record.kind != "compute":
            kept[signature] = []
        elif found is None or found.status != "passed" or not found.fates:
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

    def cost(chosen: Iterable[str]) -> tuple[int, int]:
        chosen = list(chosen)
        buffers = {r.buffer: _size(r) for c in chosen for r in suite.entry(c).records if r.buffer not in held}
        return sum(buffers.values()), sum(_bytes(suite, c) for c in chosen)

    def covers(chosen: Iterable[str]) -> bool:
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
    return sum(_size(record) for record in suite.entry(case).records if suite.checkpoint_tensor(record) is None)


def _size(record: TensorRecord) -> int:
    """Bytes of the tensor's distinct values."""
    return math.prod(distinct_shape(record.spec)) * DTYPES[record.spec.dtype].itemsize
