"""What pytest's own counts lump together, told apart at the end: statuses, and notes of cases that passed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tapml.platform import DeviceInfo
from tapml.report.style import in_order

WORDS = {
    "crashed": ("failed", "C", "CRASHED"),
    "timed out": ("failed", "T", "TIMED OUT"),
    "unsupported": ("xfailed", "u", "UNSUPPORTED"),
}
"""Status -> pytest's category, letter and word, where they are not pytest's own."""


def heading(target: str, info: DeviceInfo) -> str:
    """Where the results come from.  An emulated device is called that."""
    return f"target {target}, device {info.name} ({info.mode}): {info.description}"


def lines(facts: Iterable[dict[str, object]]) -> list[str]:
    """Cases by status, then each distinct note.  ``facts``: those of :class:`tapml.pytest_plugin.items.CaseItem`."""
    counts: Counter[str] = Counter()
    signatures: set[object] = set()
    said: dict[str, list[str]] = {}
    for fact in facts:
        counts[str(fact.get("status", "not judged"))] += 1
        signatures.add((fact.get("suite"), fact["signature"]))
        found = fact.get("notes", ())
        for note in found if isinstance(found, list | tuple) else ():
            said.setdefault(str(note), []).append(str(fact["operator"]))
    told = ", ".join(f"{counts[s]} {s}" for s in in_order(counts))
    cases, of = counted(counts.total(), "case"), counted(len(signatures), "signature")
    shown = [f"{cases} of {of}: {told}"]
    for note, operators in said.items():
        shown.append(f"note: {note} ({counted(len(operators), 'case')}, such as {operators[0]})")
    return shown


def counted(number: int, what: str) -> str:
    """``1 case``, ``2 cases``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
