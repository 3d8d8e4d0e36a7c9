"""What is to be judged anew when a file of the user was saved, and when that happens.

A save counts when the content of the file, or of a local module that it imports, is another one than before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import watchfiles

from tapml.errors import ExtensionError, UnsupportedError, UsageError
from tapml.lowering.extensions import digests, parts_of
from tapml.lowering.functional import functional_overload
from tapml.lowering.registry import load_extensions, registered
from tapml.migration.outcome import Outcome
from tapml.migration.process import Gone, WorkerProcess
from tapml.migration.settings import Settings
from tapml.suite.call import resolve_operator
from tapml.suite.case import SignatureRecord

_STEP_MS, _DEBOUNCE_MS = 50, 400
"""A save is several events (a new file, its content, a rename): they are one when they come that close together."""
_LOOK_MS = 2000
"""However the system tells of changes (some network file systems never do), files are looked at that often."""
_SECONDS = 60.0


@dataclass(frozen=True)
class Registered:
    """An operator for which a file of the user registers something; ``target``: for which, empty for all."""

    operator: str
    target: str
    file: str


def saves(files: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Those of ``files`` that were saved with other content, each time that happens; ends when the process is interrupted.

    Nothing is lost from this call on, however busy the caller is before the first ``next`` and between two.  A file that is
    not there just now (editors replace files) is waited for.
    """
    return _saves(files, digests(files))


def _saves(files: Sequence[str], known: list[str]) -> Iterator[tuple[str, ...]]:
    while True:
        folders = _folders(files)
        events = watchfiles.watch(
            *folders,
            step=_STEP_MS,
            debounce=_DEBOUNCE_MS,
            recursive=False,
            rust_timeout=_LOOK_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
        )
        for _ in chain([None], events):  # the system tells of nothing that happened before
            now = digests(files)
            changed = tuple(f for f, old, new in zip(files, known, now, strict=True) if new and new != old)
            if changed:
                known = [new or old for old, new in zip(known, now, strict=True)]
                yield changed
            if _folders(files) != folders:
                break  # another module is imported now
        else:
            return


def _folders(files: Sequence[str]) -> set[Path]:
    return {part.parent for file in files for part in parts_of(Path(file)) if part.parent.is_dir()}


def look(settings: Settings) -> tuple[Registered, ...]:
    """What the files register, read by a process of its own.

    Raises :class:`ExtensionError` when one does not load, with its line.
    """
    worker = WorkerProcess(_looker, (settings.extensions,), "tapml-look")
    try:
        found: tuple[Registered, ...] = worker.ask(None, seconds=_SECONDS)
    except Gone as gone:
        raise ExtensionError(
            f"the process that loads converters {gone.status}: {gone.message}",
            hint=f"it printed: {gone.output[-1]}" if gone.output else "import the file in plain Python first",
        ) from None
    finally:
        worker.kill()
    return found


def _looker(extensions: tuple[str, ...]) -> Callable[[None], tuple[Registered, ...]]:
    load_extensions(extensions)

    def answer(_: None) -> tuple[Registered, ...]:
        users = (e for e in registered() if e.extension is not None)
        return tuple(Registered(e.operator, e.target or "", str(e.extension.file)) for e in users if e.extension)

    return answer


def affected(
    records: Iterable[SignatureRecord],
    outcomes: dict[str, Outcome],
    changed: Sequence[str],
    before: Sequence[Registered],
    after: Sequence[Registered],
    target: str,
) -> tuple[str, ...]:
    """The signatures to judge anew because ``changed`` were saved: ids, in the order of ``records``.

    Those of operators for which these files register something, or did, and those that ran by code in them.  When there is
    something for other operators than before, also those that failed or were decomposed: into these, perhaps.
    """
    files = {str(Path(f).resolve()) for f in changed}
    mine = [r for r in (*before, *after) if r.file in files and r.target in ("", target)]
    operators = {r.operator for r in mine}
    others = {r.operator for r in before} != {r.operator for r in after}

    def concerned(record: SignatureRecord) -> bool:
        outcome = outcomes.get(record.signature.id)
        if outcome is None or _functional(record.signature.operator) in operators:
            return True
        if any(code.file in files for code in outcome.own):
            return True
        return others and (outcome.route == "decomposition" or not outcome.passed)

    return tuple(r.signature.id for r in records if concerned(r))


def _functional(operator: str) -> str:
    try:
        return str(functional_overload(resolve_operator(operator)))
    except (UnsupportedError, UsageError):  # a custom operator whose library is not loaded here
        return operator
