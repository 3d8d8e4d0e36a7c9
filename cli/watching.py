"""``--watch``: go on after the first run, and do again what a save concerns."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tapml.cli import interrupts

if TYPE_CHECKING:
    from tapml.migration.outcome import Outcome
    from tapml.migration.settings import Settings
    from tapml.migration.watching import Registered
    from tapml.suite.case import SignatureRecord

watch_option = click.option(
    "--watch",
    is_flag=True,
    help="Stay, and judge operators anew when a file given by --with is saved. Ctrl-C ends it.",
)


def require_watchable(extensions: Sequence[Path], json_file: Path | None) -> None:
    """Raises :class:`UsageError` where there is nothing to watch, or where results would run into one another."""
    from tapml.errors import UsageError

    if not extensions:
        raise UsageError("--watch needs a file to watch", hint="give the file with your converters by --with FILE.py")
    if str(json_file) == "-":
        raise UsageError(
            "expected a file for --json, found '-': with --watch there is a result after each save",
            hint="give --json the path of a file, which each run writes anew",
        )


class Watch:
    """The runs of a command that watches.

    ``whole`` runs all of it; ``part`` runs the signatures of which it is given the ids; both give the exit code, and
    ``outcomes`` what is known of each signature by then.
    """

    def __init__(
        self,
        settings: Settings,
        records: Sequence[SignatureRecord],
        whole: Callable[[], int],
        part: Callable[[frozenset[str]], int],
        outcomes: Callable[[], dict[str, Outcome]],
    ) -> None:
        self._settings, self._records = settings, records
        self._whole, self._part, self._outcomes = whole, part, outcomes
        self._complete = False  # whether all that is known is of one run that came to its end
        self._registered: tuple[Registered, ...] = ()
        self._pending: dict[str, None] = {}

    def run(self) -> int:
        """Until Ctrl-C; the exit code of the last run."""
        from tapml.migration.watching import saves

        files = self._settings.extensions
        waiting = saves(files)
        code = self._attempt(())
        while True:
            try:
                click.echo(f"watching {', '.join(Path(f).name for f in files)}; Ctrl-C ends it", err=True)
                changed = next(waiting, None)
            except KeyboardInterrupt:
                changed = None
            if changed is None:
                break
            code = self._attempt(changed)
        number = interrupts.asked_to_end()
        if number not in (None, signal.SIGINT):
            raise interrupts.Interrupted(number)
        interrupts.settled()
        return code

    def _attempt(self, changed: Sequence[str]) -> int:
        """One run; a file that does not load is shown, and costs nothing but this run."""
        from tapml.errors import ExtensionError
        from tapml.migration.watching import affected, look

        self._pending.update(dict.fromkeys(changed))
        try:
            found = look(self._settings)
            if not self._complete:
                code = self._whole()
            else:
                saved = " and ".join(Path(f).name for f in self._pending)
                before = self._registered
                target = self._settings.target
                again = affected(self._records, self._outcomes(), list(self._pending), before, found, target)
                click.echo(f"{time.strftime('%H:%M:%S')} {saved} was saved: {len(again)} signatures to judge")
                self._complete = False
                code = self._part(frozenset(again))
        except ExtensionError as error:
            click.echo(f"error: {error.message}", err=True)
            click.echo(f"hint: {error.hint}", err=True)
            return 2
        self._complete = True
        self._registered = found
        self._pending.clear()
        return code
