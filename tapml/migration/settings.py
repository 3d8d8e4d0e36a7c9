"""What a user can choose about a test or a migration."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from tapml.errors import UsageError
from tapml.migration.job import Job
from tapml.platform import DeviceInfo, find_device, find_platform
from tapml.suite.case import SignatureRecord

GATES = ("call", "operator", "end")
"""How often the hybrid program runs: after each signature, after each operator, or once at the end."""


@dataclass(frozen=True)
class Settings:
    """``seconds`` limits one signature (compilation, execution, judgement), ``hybrid_seconds`` one hybrid run;
    ``memory_mb`` limits the memory of a worker.  ``jobs``: number of workers, ``None`` for one a core."""

    target: str
    device: str = ""
    gate: str = "operator"
    jobs: int | None = None
    seconds: float = 120.0
    hybrid_seconds: float = 1800.0
    memory_mb: int = 6144
    extensions: tuple[str, ...] = ()
    cache: str | None = None

    def resolved(self) -> tuple[Settings, DeviceInfo]:
        """With the device filled in.

        Raises UsageError for an unknown target or gate or a missing file of converters, DeviceError without device.
        """
        if self.gate not in GATES:
            raise UsageError(f"expected a gate of {', '.join(GATES)}, found {self.gate!r}")
        info = find_device(find_platform(self.target), self.device or None)
        extensions = tuple(str(Path(e).resolve()) for e in self.extensions)
        for given, extension in zip(self.extensions, extensions, strict=True):
            if not os.path.isfile(extension) or not os.access(extension, os.R_OK):
                raise UsageError(
                    f"expected a readable Python file with converters, found none at {given}",
                    hint="give --with the path of a .py file",
                )
        return replace(self, device=info.name, extensions=extensions), info

    def job(self, suite: Path, record: SignatureRecord) -> Job:
        """The work that one signature is."""
        return Job(
            os.path.abspath(suite),
            record.signature.id,
            record.signature.operator,
            self.target,
            self.device,
            self.extensions,
            self.cache,
            self.seconds,
            self.memory_mb,
        )
