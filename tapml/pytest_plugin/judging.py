"""What this pytest process knows of the target: its device, its worker, and the outcomes that it has found so far."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tapml.errors import TapmlError
from tapml.migration.outcome import Outcome
from tapml.migration.pool import WorkerPool
from tapml.migration.settings import Settings
from tapml.platform import DeviceInfo
from tapml.suite.case import SignatureRecord


class Judging:
    """One worker process, kept warm, and the outcome of each signature that was asked for.

    A signature is compiled and judged once, on all its cases, whichever of them is asked for first: so a verdict does
    not depend on what was selected.
    """

    def __init__(self, settings: Settings, info: DeviceInfo, *, sharing: int) -> None:
        self.settings = settings
        self.info = info
        self._sharing = sharing
        self._pool: WorkerPool | None = None
        self._outcomes: dict[tuple[Path, str], Outcome] = {}

    def outcome(self, suite: Path, record: SignatureRecord) -> Outcome:
        """The outcome of a signature of the suite in directory ``suite``.

        Raises :class:`TapmlError` where nothing can be judged: a damaged suite, a device that is gone.
        """
        key = (suite, record.signature.id)
        if key not in self._outcomes:
            self._outcomes[key] = self._judge(suite, record)
        return self._outcomes[key]

    def _judge(self, suite: Path, record: SignatureRecord) -> Outcome:
        if self._pool is None:
            limit, files = self.settings.memory_mb, self.settings.extensions
            self._pool = WorkerPool(1, memory_mb=limit, extensions=files, sharing=self._sharing)
        job = replace(self.settings.job(suite, record), every_case=True)
        try:
            outcomes = list(self._pool.run([job]))
        except BaseException:  # the worker may still be busy with it, and would answer the next question with that
            self.close()
            raise
        if [o.signature for o in outcomes] != [job.signature]:
            raise TapmlError(f"the worker was asked for signature {job.signature}, and answered for another")
        return outcomes[0]

    def close(self) -> None:
        """End the worker."""
        if self._pool is not None:
            self._pool.close()

    def to_json(self) -> dict[str, Any]:
        """What another process needs to judge in the same way on the same device."""
        return {"settings": asdict(self.settings), "info": asdict(self.info)}

    @classmethod
    def from_json(cls, data: dict[str, Any], *, sharing: int) -> Judging:
        settings = Settings(**{**data["settings"], "extensions": tuple(data["settings"]["extensions"])})
        return cls(settings, DeviceInfo(**data["info"]), sharing=sharing)
