"""Which neighbours a carved call has, and how one is made of it.

A neighbour differs from the carved call in one thing: the values of one argument (:mod:`tapml.boundary.values`), one
extent (:mod:`tapml.boundary.extents`), or how one argument lies in memory (:mod:`tapml.boundary.strides`).  Which there
are follows from shapes, dtypes and strides alone, so that they can be listed without reading tensors.  Whether such a
call exists is PyTorch's to say: what it refuses is no neighbour.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from tapml.boundary import extents, strides, values
from tapml.errors import TapmlError, UsageError
from tapml.suite.call import Signature, TensorSpec, canonical_json, clone_strided, execute
from tapml.suite.case import Case, SignatureRecord

MOST_ELEMENTS = 1 << 22
"""Neighbours whose arguments or results have more elements together are left out."""


class RefusedError(TapmlError):
    """PyTorch does not execute the call, so that there is no right answer to compare with."""


@dataclass(frozen=True)
class Neighbour:
    """``name``: how it differs, such as ``arg0 one NaN`` or ``extent 64 -> 65``; ``kind``: the same without numbers."""

    name: str
    kind: str


def neighbours_of(signature: Signature) -> list[Neighbour]:
    """All neighbours of a call, in a fixed order."""
    names = [*values.names(signature), *extents.names(signature), *strides.names(signature)]
    return [Neighbour(name, re.sub(r"(?<=extent )\d+", "n", name)) for name in names]


def require_neighbour(signature: Signature, name: str) -> None:
    """Raises :class:`UsageError` when a call has no neighbour of that name."""
    names = [n.name for n in neighbours_of(signature)]
    if name not in names:
        close = difflib.get_close_matches(name, names, 3) or names[:3]
        raise UsageError(
            f"expected a neighbour of {signature}, found {name!r}",
            hint=f"such as {', '.join(map(repr, close))}; `tapml test --boundary --json FILE` names all"
            if close
            else "",
        )


def choose(records: Sequence[SignatureRecord]) -> list[tuple[SignatureRecord, Neighbour]]:
    """The neighbours to try for a suite: each kind once for calls that differ in extents and numbers only."""
    found: list[tuple[SignatureRecord, Neighbour]] = []
    seen: set[tuple[str, ...]] = set()
    for record in records:
        structure = _structure(record.signature)
        for neighbour in neighbours_of(record.signature) if record.cases else ():
            key = (*structure, neighbour.kind)
            if key not in seen:
                seen.add(key)
                found.append((record, neighbour))
    return found


def _structure(signature: Signature) -> tuple[str, ...]:
    """What is left of a call without its numbers: operator, kinds of arguments, dtypes, ranks, which extents are 1."""
    arguments = re.sub(r"(?<=[\[:,])-?\d+(\.\d+)?(e[-+]?\d+)?(?=[\],}])", "0", signature.arguments)
    tensors = [
        f"{s.dtype}{['1' if e == 1 else 'n' for e in s.shape]}{strides.describe(s.shape, s.strides)}"
        for s in signature.tensors
    ]
    return (signature.operator, arguments, *tensors)


def make(case: Case, name: str) -> Case:
    """The neighbour of that name as a case of its own, its results computed by PyTorch.

    Raises :class:`RefusedError` where PyTorch raises, or the call is too large.
    """
    tensors, template = list(case.tensors), case.signature.template
    if name.startswith("extent "):
        _require_small(extents.elements(case.signature, name), "arguments")
        tensors, template = extents.change(case.signature, tensors, name)
    else:
        place, what = name.split(" ", 1)
        index = int(place.removeprefix("arg"))
        changed = strides.change if what in strides.WAYS else values.change
        tensors[index] = changed(tensors[index], what)
    signature = Signature(case.signature.operator, canonical_json(template), tuple(TensorSpec.of(t) for t in tensors))
    _require_small(_result_elements(signature, tensors), "results")
    try:
        with torch.no_grad():
            results = [(n, _kept(t)) for n, t in execute(signature, tensors)]
    except Exception as error:  # PyTorch raises whatever it likes
        lines = str(error).strip().splitlines()
        raise RefusedError(f"PyTorch refuses it: {lines[0][:200] if lines else type(error).__name__}") from error
    signature = replace(signature, results=tuple((n, TensorSpec.of(t)) for n, t in results))
    if not any(spec.numel for _, spec in signature.results):
        raise RefusedError("its results have no elements, so that there is nothing to compute")
    return Case(f"{case.id} {name}", signature, case.origin, tuple(tensors), tuple(results), {"boundary": name})


def _require_small(count: int, what: str) -> None:
    if count > MOST_ELEMENTS:
        raise RefusedError(f"expected {what} of at most {MOST_ELEMENTS:,} elements together, found {count:,}")


def _result_elements(signature: Signature, tensors: Sequence[torch.Tensor]) -> int:
    """As PyTorch knows it without executing the call; 0 where it does not."""
    try:
        return sum(t.numel() for _, t in execute(signature, [t.to("meta") for t in tensors]))
    except Exception:  # no such kernel, or shapes that depend on values: executing it tells
        return 0


def _kept(tensor: torch.Tensor) -> torch.Tensor:
    return clone_strided(tensor.detach().resolve_conj().resolve_neg())
