"""What a score says: one record a defect, counts of them, and the table by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from tapml.platform import DeviceInfo
from tapml.score.defect import KINDS, Defect
from tapml.score.inputs import CARVED, OTHER, RANDOM
from tapml.suite.call import Json

CAUGHT, MISSED, EXCLUDED = "caught", "missed", "excluded"
REASONS = {
    "identical": "the same code after the compiler's simplification",
    "refused": "refused by a compiler, so that nothing could be executed",
    "same": "bit-identical results on every input that was tried",
    "noise": "no further from float64 than healthy arithmetic on every input that was tried (or a tie)",
}
"""Why a defect is none, by the name of the reason."""


@dataclass(frozen=True)
class Fate:
    """What became of one defect of a signature.

    ``fate``: ``caught`` by a carved case, ``missed`` (no carved case catches it, and it is no equivalent), or ``excluded``
    for ``reason``, a key of :data:`REASONS`.  ``wrong``: explanation by input, of every input that caught it.  ``tried``:
    how many inputs it was executed on.  ``spoilt``: operators that were judged otherwise after it ran beside them.
    """

    signature: str
    operator: str
    defect: Defect
    fate: str
    reason: str = ""
    wrong: dict[str, str] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    tried: int = 0
    spoilt: tuple[str, ...] = ()

    def by(self, group: str) -> list[str]:
        """Names of the inputs of a group that caught it."""
        return [name for name in self.wrong if self.groups.get(name) == group]

    @property
    def cases(self) -> list[str]:
        """Ids of the carved cases that caught it."""
        return [name.removeprefix("carved ") for name in self.by(CARVED)]

    @property
    def placed(self) -> bool:
        """Caught, and no other operator was called wrong for it."""
        return self.fate == CAUGHT and not self.spoilt

    def to_json(self) -> Json:
        return {**asdict(self), "defect": self.defect.to_json(), "placed": self.placed}

    @classmethod
    def from_json(cls, data: Json) -> Fate:
        data = {key: value for key, value in data.items() if key != "placed"}
        return cls(**{**data, "defect": Defect.from_json(data["defect"]), "spoilt": tuple(data["spoilt"])})


@dataclass(frozen=True)
class SignatureScore:
    """One signature.  ``status``: of the healthy candidate (:data:`tapml.migration.outcome.STATUSES`); defects are planted
    in what passed.  ``cases``: ids of its carved cases.  ``alarms``: carved and random inputs on which the healthy candidate
    was judged wrong; ``doubtful``: such inputs among the others, which were not used.  ``inputs``: carved and random ones."""

    signature: str
    operator: str
    status: str
    message: str
    cases: tuple[str, ...]
    inputs: dict[str, int]
    sites: int
    alarms: tuple[str, ...]
    doubtful: tuple[str, ...]
    fates: tuple[Fate, ...]
    artifact: str = ""
    seconds: float = 0.0

    def to_json(self) -> Json:
        return {**asdict(self), "fates": [f.to_json() for f in self.fates]}

    @classmethod
    def from_json(cls, data: Json) -> SignatureScore:
        lists = {name: tuple(data[name]) for name in ("cases", "alarms", "doubtful")}
        return cls(**{**data, **lists, "fates": tuple(Fate.from_json(f) for f in data["fates"])})


@dataclass(frozen=True)
class Located:
    """One defect in the whole program.  ``found``: the operator that the migration's bisection names; empty when the
    program's outputs stay within their bounds with the defect in it (``noticed`` is false then)."""

    signature: str
    operator: str
    defect: str
    noticed: bool
    found: str = ""
    message: str = ""

    @property
    def right(self) -> bool:
        return self.noticed and self.found == self.operator


@dataclass(frozen=True)
class Row:
    """Counts of one kind of defect.  ``random``: of the planted ones (equivalents left out), how many the random inputs
    catch; ``placed``: of the caught ones."""

    kind: str
    planted: int
    excluded: int
    caught: int
    placed: int
    random: int

    @property
    def missed(self) -> int:
        return self.planted - self.caught

    def to_json(self) -> Json:
        return {**asdict(self), "missed": self.missed}


@dataclass(frozen=True)
class Score:
    """The score of a suite on a device.  ``program``: defects tried in the whole program too; ``why_not``: why none was."""

    suite: str
    target: str
    device: DeviceInfo
    seed: int
    limit: int
    signatures: tuple[SignatureScore, ...]
    program: tuple[Located, ...] = ()
    why_not: str = ""
    seconds: float = 0.0

    @property
    def fates(self) -> list[Fate]:
        return [fate for s in self.signatures for fate in s.fates]

    @property
    def rows(self) -> list[Row]:
        """A row a kind, and one named ``all``."""
        found = [self._row(kind, [f for f in self.fates if f.defect.kind == kind]) for kind in KINDS]
        return [*(r for r in found if r.planted or r.excluded), self._row("all", self.fates)]

    @staticmethod
    def _row(kind: str, fates: list[Fate]) -> Row:
        planted = [f for f in fates if f.fate != EXCLUDED]
        caught = [f for f in planted if f.fate == CAUGHT]
        return Row(
            kind,
            len(planted),
            len(fates) - len(planted),
            len(caught),
            sum(f.placed for f in caught),
            sum(bool(f.by(RANDOM)) for f in planted),
        )

    @property
    def excluded(self) -> dict[str, int]:
        """Number of excluded defects by reason."""
        return dict(Counter(f.reason for f in self.fates if f.fate == EXCLUDED))

    @property
    def missed(self) -> list[Fate]:
        return [f for f in self.fates if f.fate == MISSED]

    @property
    def alarms(self) -> list[str]:
        """Carved and random inputs on which a healthy candidate was judged wrong."""
        return [f"{s.operator} {s.signature} {text}" for s in self.signatures for text in s.alarms]

    @property
    def judged(self) -> int:
        """How many carved and random inputs the healthy candidates were judged on."""
        return sum(sum(s.inputs.values()) for s in self.signatures)

    def to_json(self) -> Json:
        return {
            "suite": self.suite,
            "target": self.target,
            **self.device.to_json(),
            "seed": self.seed,
            "limit": self.limit,
            "kinds": [row.to_json() for row in self.rows],
            "excluded": self.excluded,
            "false_alarms": self.alarms,
            "judged": self.judged,
            "statuses": dict(Counter(s.status for s in self.signatures)),
            "program": [{**asdict(p), "right": p.right} for p in self.program],
            "program_why_not": self.why_not,
            "seconds": self.seconds,
            "signatures": [s.to_json() for s in self.signatures],
        }


def witnesses(fate: Fate) -> str:
    """What catches a defect that no carved case does, in words."""
    found = ["N(0, 1) as with random tests"] if fate.by(RANDOM) else []
    found += fate.by(OTHER)
    if not found:
        return "nothing that was tried, though its errors are not those of healthy arithmetic"
    more = f", and {len(found) - 1} other inputs" if len(found) > 1 else ""
    return f"{found[0]}{more}"


def carrying(fates: Iterable[Fate]) -> dict[str, set[str]]:
    """Case -> ids of the defects that it catches."""
    found: dict[str, set[str]] = {}
    for fate in fates:
        for case in fate.cases if fate.fate == CAUGHT else ():
            found.setdefault(case, set()).add(fate.defect.id)
    return found
