"""A planted defect, as data: what was changed, and where."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tapml.suite.call import Json

KINDS = ("constant", "operator", "index", "guard", "accumulator", "dtype", "extent", "barrier", "launch")
"""``constant``: a literal; ``operator``: an arithmetic operator, comparison or function; ``index``: where an element is
read; ``guard``: a condition; ``accumulator``: what a reduction begins with or carries on; ``dtype``: values kept in fewer
bits; ``extent``: a loop one iteration short; ``barrier``: removed; ``launch``: fewer blocks of threads."""


@dataclass(frozen=True)
class Defect:
    """``level``: ``module`` (a TVM function, before it is scheduled) or ``kernel`` (the source of a device function).

    ``function``: the TVM function, or the kernel.  ``number``: which of the sites of this kind in that function.
    ``line``: from 1, in the text of the function as TVMScript, or of the kernel's source file; ``before`` and ``after``:
    that line without and with the defect.  These three are empty until the defect is planted.
    """

    level: str
    kind: str
    function: str
    number: int
    what: str
    line: int = 0
    before: str = ""
    after: str = ""

    @property
    def id(self) -> str:
        """Stable for one signature, version of tapml and of TVM: ``module:softmax:constant:0``."""
        return f"{self.level}:{self.function}:{self.kind}:{self.number}"

    @property
    def place(self) -> str:
        """Function and line."""
        return f"{self.function}, line {self.line}" if self.line else self.function

    def to_json(self) -> Json:
        return {"id": self.id, **asdict(self)}

    @classmethod
    def from_json(cls, data: Json) -> Defect:
        return cls(**{key: value for key, value in data.items() if key != "id"})


def numbered(sites: Sequence[tuple[str, str]], level: str, function: str) -> list[Defect]:
    """Defects for the (kind, what) of each site in one function, in order."""
    counts: dict[str, int] = {}
    found = []
    for kind, what in sites:
        found.append(Defect(level, kind, function, counts.get(kind, 0), what))
        counts[kind] = counts.get(kind, 0) + 1
    return found


def sample(defects: Sequence[Defect], limit: int, seed: int, signature: str) -> list[Defect]:
    """At most ``limit`` of them, as many of each kind and level as of any other as far as there are, drawn with ``seed``.

    A smaller limit gives a part of what a larger one gives.
    """
    draw = random.Random(zlib.crc32(f"{seed} {signature}".encode()))
    groups: dict[tuple[str, str], list[Defect]] = {}
    for defect in defects:
        groups.setdefault((defect.kind, defect.level), []).append(defect)
    queues = []
    for key in sorted(groups):
        draw.shuffle(groups[key])
        queues.append(groups[key])
    draw.shuffle(queues)
    chosen: list[Defect] = []
    while queues and len(chosen) < limit:
        for queue in list(queues):
            if len(chosen) < limit:
                chosen.append(queue.pop())
            if not queue:
                queues.remove(queue)
    return chosen


def difference(before: str, after: str) -> tuple[int, str, str]:
    """(number of the first line that differs, that line, the other one); zero and nothing where none does."""
    old, new = before.splitlines(), after.splitlines()
    for number, (one, other) in enumerate(zip(old, new, strict=False), 1):
        if one != other:
            return number, one.strip(), other.strip() if len(old) == len(new) else "(and more lines)"
    if len(old) == len(new):
        return 0, "", ""
    number = min(len(old), len(new))
    return number + 1, [*old, ""][number].strip(), [*new, ""][number].strip()
