"""Whether a reference computes the same twice, and where it first does not."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tapml.carving.classify import as_bytes, same_bits
from tapml.carving.interception import CallMode, Entry, Operator
from tapml.carving.origin import Module, source_line
from tapml.carving.reference import Reference


@dataclass(frozen=True)
class Digest:
    """What identifies one call of a run, and a hash of its results (empty when those are undefined anyway)."""

    operator: str
    module: str
    source: str
    values: str

    def __str__(self) -> str:
        where = f" in {self.module}" if self.module else ""
        return f"{self.operator}{where} ({self.source or 'source unknown'})"


class DigestMode(CallMode):  # type: ignore[no-untyped-call]
    """Hashes the results of every call into ``digests``."""

    def __init__(self, model: Module | None = None) -> None:
        super().__init__(model)
        self.digests: list[Digest] = []

    def on_call(self, entry: Entry, func: Operator, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> Any:
        output = self.execute(entry, func, args, kwargs, tensors)
        values = ""
        if entry.kind != "undefined":
            digest = hashlib.blake2b(digest_size=16)
            for _, tensor in entry.results(tensors, output):
                digest.update(as_bytes(tensor).numpy().data)
            values = digest.hexdigest()
        self.digests.append(Digest(entry.signature.operator, self.module, source_line(), values))
        return output


def differing_outputs(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> list[str]:
    """Names of the outputs that are not bit for bit the same in both."""
    names = [*first, *(n for n in second if n not in first)]
    return [n for n in names if n not in first or n not in second or not same_bits(first[n], second[n])]


def first_difference(reference: Reference) -> tuple[int, Digest] | None:
    """Run twice more, and find the first call whose operator or results differ: its index and what it was.

    None when the two runs do not differ.
    """
    runs: list[list[Digest]] = []
    for _ in range(2):
        mode = DigestMode(reference.model)
        reference.run(mode)
        runs.append(mode.digests)
    for index, (a, b) in enumerate(zip(*runs, strict=False)):
        if a != b:
            return index, a
    shorter, longer = sorted(runs, key=len)
    return (len(shorter), longer[len(shorter)]) if len(shorter) < len(longer) else None
