"""Whether a journal is gone on with, or a new one begun."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tapml._version import __version__
from tapml.errors import UsageError
from tapml.migration.journal import Journal
from tapml.migration.settings import Settings
from tapml.platform import find_platform
from tapml.suite.call import Json
from tapml.suite.reader import Suite


def header(suite: Suite, settings: Settings) -> Json:
    """What a journal depends on: another suite, compiler, device or gate makes its entries void."""
    extensions = [hashlib.sha256(Path(e).read_bytes()).hexdigest() for e in settings.extensions]
    return {
        "suite": suite.digest,
        "target": settings.target,
        "device": settings.device,
        "gate": settings.gate,
        "tapml": __version__,
        "fingerprint": find_platform(settings.target).fingerprint(settings.device),
        "extensions": extensions,
    }


def begin(journal: Journal, suite: Suite, settings: Settings, resume: bool | None) -> bool:
    """Make the journal ready; returns whether an earlier run is gone on with.

    Raises :class:`UsageError` when ``resume`` is True and there is nothing to go on with, or it depends on other things.
    """
    wanted = header(suite, settings)
    found = journal.header
    if resume is False or (resume is None and (found is None or journal.finished)):
        journal.restart(wanted)
        return False
    if found is None:
        raise UsageError(
            f"nothing to resume: no migration to {settings.target} on {settings.device} was begun",
            hint="run without --resume",
        )
    changed = [name for name, value in wanted.items() if found.get(name) != value]
    if not changed:
        return True
    if resume is None:
        journal.restart(wanted)
        return False
    raise UsageError(
        f"the journal was begun with another {', '.join(changed)}",
        hint="begin again with --restart; compiled kernels that are still valid are taken from the cache",
    )
