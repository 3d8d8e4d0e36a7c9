"""What a bundle is about."""

from __future__ import annotations

from dataclasses import dataclass

from tapml.platform import DeviceInfo
from tapml.repro.kind import Kind
from tapml.repro.shrink import Shrunk
from tapml.repro.subject import Subject
from tapml.repro.trial import Finding


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
