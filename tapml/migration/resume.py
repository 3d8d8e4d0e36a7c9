"""Whether a journal is gone on with, or a new one begun."""

from __future__ import annotations

import platform
from collections.abc import Set
from datetime import datetime, timezone
from importlib import metadata

from tapml._version import __version__
from tapml.errors import UsageError
from tapml.lowering.extensions import digests
from tapml.migration.journal import Journal
from tapml.migration.settings import Settings
from tapml.platform import DeviceInfo, find_platform
from tapml.suite.call import Json
from tapml.suite.reader import Suite


def header(suite: Suite, settings: Settings) -> Json:
    """What a journal depends on: another suite, compiler, device or gate makes its entries void."""
    return {
        "suite": suite.digest,
        "target": settings.target,
        "device": settings.device,
        "gate": settings.gate,
        "tapml": __version__,
        "fingerprint": find_platform(settings.target).fingerprint(settings.device),
        "extensions": digests(settings.extensions),
    }


def environment(device: DeviceInfo) -> Json:
    """Where and with what a run happens, for whoever reads its results; its entries do not depend on it."""
    packages = ("tapml", "torch", "apache-tvm", "apache-tvm-ffi")
    return {
        "at": now(),
        **device.to_json(),
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in packages}},
        "host": platform.platform(),
    }


def now() -> str:
    """The time, in UTC and ISO 8601, to a second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def begin_again(journal: Journal, suite: Suite, settings: Settings, device: DeviceInfo, again: Set[str]) -> None:
    """Begin a new journal that takes over what a finished one says of all signatures but ``again``.

    Decisions of the gate about those go; what was decided about others stays.  Raises :class:`UsageError` when the
    journal there is unfinished or depends on anything else but the user's files.
    """
    wanted = header(suite, settings)
    found = journal.header or {}
    changed = [name for name, value in wanted.items() if name != "extensions" and found.get(name) != value]
    if changed or not journal.finished:
        raise UsageError(
            f"expected a finished migration, found one with another {', '.join(changed)}"
            if changed
            else "expected a finished migration, found one that was interrupted",
            hint="run it to its end first",
        )
    kept = [e for e in journal.of_kind("judged") if e["outcome"]["signature"] not in again]
    kept += [e for e in journal.of_kind("gate") if not again & set(e["step"].split("+"))]
    journal.restart({**wanted, "environment": environment(device)}, kept)


def begin(journal: Journal, suite: Suite, settings: Settings, device: DeviceInfo, resume: bool | None) -> bool:
    """Make the journal ready; returns whether an earlier run is gone on with.

    A run that goes on notes its environment, too: it may be another day's driver.

    Raises :class:`UsageError` when ``resume`` is True and there is nothing to go on with, or it depends on other things.
    """
    wanted = header(suite, settings)
    begun = {**wanted, "environment": environment(device)}
    found = journal.header
    if resume is False or (resume is None and (found is None or journal.finished)):
        journal.restart(begun)
        return False
    if found is None:
        raise UsageError(
            f"nothing to resume: no migration to {settings.target} on {settings.device} was begun",
            hint="run without --resume",
        )
    changed = [name for name, value in wanted.items() if found.get(name) != value]
    if not changed:
        if not journal.finished:
            journal.append({"event": "resumed", "environment": begun["environment"]})
        return True
    if resume is None:
        journal.restart(begun)
        return False
    raise UsageError(
        f"the journal was begun with another {', '.join(changed)}",
        hint="begin again with --restart; compiled kernels that are still valid are taken from the cache",
    )
