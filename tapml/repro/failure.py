"""What a bundle is about."""

from __future__ import annotations

from dataclasses import dataclass

from tapml.platform import DeviceInfo
from tapml.repro.kind import Kind
from tapml.repro.shrink import Shrunk
from tapml.repro.subject import Subject
from tapml.repro.trial import Finding
from tapml.suite.call import Json


@dataclass(frozen=True)
class Failure:
    """``kinds``: that it was seen to be of, more than one where it changes from run to run.  ``origin``: the case, module
    path and source line of the call; ``command``: what made the bundle; ``before``: the call before it was shrunk."""

    case: str
    subject: Subject
    finding: Finding
    kind: Kind
    kinds: tuple[Kind, ...]
    route: str
    target: str
    device: DeviceInfo
    origin: dict[str, str]
    versions: dict[str, str]
    command: str
    extensions: tuple[str, ...] = ()
    seconds: float = 120.0
    shrunk: Shrunk | None = None
    before: Subject | None = None

    def to_json(self) -> Json:
        """What failed, where and how: the part that all figures of a bundle begin with."""
        return {
            "case": self.case,
            "operator": self.subject.operator,
            "target": self.target,
            **self.device.to_json(),
            "route": self.route,
            "status": self.finding.status,
            "failure": self.kind.to_json(),
            "explanation": self.finding.explanation,
        }
