"""The tree that pytest sees: the manifest of a suite, its operators, their signatures, and the cases of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tapml.errors import SuiteError, TapmlError
from tapml.migration.ladder import compute_signatures
from tapml.migration.outcome import Outcome
from tapml.pytest_plugin.explain import CaseOutcome, case_outcome, explain, notes, properties, with_hint
from tapml.pytest_plugin.judging import Judging
from tapml.suite.case import SignatureRecord
from tapml.suite.manifest import CaseEntry
from tapml.suite.reader import Suite

if TYPE_CHECKING:
    from _pytest._code.code import TerminalRepr

NO_CASE = "no-case"
"""Name of the item of a signature of which the suite keeps no case: skipped, so that it is not overlooked."""


class CaseFailed(Exception):
    """A case did not pass.  ``summary``: on one line.  The text is for the reader; where it was raised is not."""

    def __init__(self, summary: str, text: str) -> None:
        super().__init__(text)
        self.summary = summary


class SuiteFile(pytest.File):
    """The ``manifest.json`` of a suite.  Its items are the cases of compute signatures, by operator and signature."""

    suite: Suite

    def __init__(self, *, judging: Judging, known: dict[str, Path], **rest: Any) -> None:
        super().__init__(**rest)
        self.judging = judging
        self._known = known

    def collect(self) -> Iterator[OperatorNode]:
        other = self._known.setdefault(self.nodeid, self.path)
        if other != self.path:  # outside of its root directory pytest takes names that are not unique
            raise self.CollectError(
                f"expected suites with different node ids, found {other} and {self.path}, both {self.nodeid}\n"
                "hint: give pytest --rootdir with a directory that both are in"
            )
        try:
            self.suite = Suite.open(self.path.parent)
        except TapmlError as error:
            raise self.CollectError(with_hint(error)) from error
        by_operator: dict[str, list[SignatureRecord]] = {}
        for record in compute_signatures(self.suite):
            by_operator.setdefault(record.signature.operator, []).append(record)
        for operator, records in by_operator.items():
            yield OperatorNode.from_parent(self, name=operator, file=self, records=records)


class OperatorNode(pytest.Collector):
    """An operator of a suite."""

    def __init__(self, *, file: SuiteFile, records: Sequence[SignatureRecord], **rest: Any) -> None:
        super().__init__(**rest)
        self._file, self._records = file, records

    def collect(self) -> Iterator[SignatureNode]:
        for record in self._records:
            yield SignatureNode.from_parent(self, name=record.signature.id, file=self._file, record=record)


class SignatureNode(pytest.Collector):
    """A signature: what is compiled once, and judged on each of its cases."""

    def __init__(self, *, file: SuiteFile, record: SignatureRecord, **rest: Any) -> None:
        super().__init__(**rest)
        self._file, self._record = file, record

    def collect(self) -> Iterator[CaseItem]:
        for case in self._record.cases or (f"{self._record.signature.id}/{NO_CASE}",):
            entry = self._file.suite.entry(case) if self._record.cases else None
            name = case.partition("/")[2]
            yield CaseItem.from_parent(self, name=name, file=self._file, record=self._record, entry=entry)


class CaseItem(pytest.Item):
    """One case; ``entry`` is ``None`` for a signature without any."""

    def __init__(self, *, file: SuiteFile, record: SignatureRecord, entry: CaseEntry | None, **rest: Any) -> None:
        super().__init__(**rest)
        self.record = record
        self._entry, self._judging = entry, file.judging
        self.directory = file.path.parent
        self.facts: dict[str, Any] = {"signature": record.signature.id, "operator": record.signature.operator}
        """What the summary is made of; pytest-xdist carries it, so: strings and lists of strings."""
        self.extra_keyword_matches.update((self.directory.resolve().name, *record.modules))

    @property
    def title(self) -> str:
        return f"{self.record.signature.operator} {self.record.signature.id}/{self.name}"

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.title

    def runtest(self) -> None:
        """Judge the signature if that has not been done, and be what it says of this case.

        Raises pytest's own exceptions for ``unsupported`` (xfail) and ``skipped``, :class:`CaseFailed` for all else
        that is not ``passed``.
        """
        if self._entry is None:
            self.facts["status"] = "skipped"
            raise pytest.skip.Exception("the suite keeps no case of this signature")
        try:
            outcome = self._judging.outcome(self.directory, self.record)
        except TapmlError as error:
            if not isinstance(error, SuiteError):  # the device or the user's file: it is the same for all cases
                self.session.shouldfail = error.message
            raise CaseFailed(f"not judged: {error.message}", f"not judged: {with_hint(error)}") from error
        case = case_outcome(outcome, self._entry.id)
        self._record_facts(outcome, case)
        self._raise_unless_passed(outcome, case, self._entry)

    def _record_facts(self, outcome: Outcome, case: CaseOutcome) -> None:
        target, info = self._judging.settings.target, self._judging.info
        said = notes(outcome, case)
        self.facts.update(status=case.status, notes=said)
        self.user_properties.extend(properties(outcome, case, target, info))
        self.user_properties.extend(("note", note) for note in said)

    def _raise_unless_passed(self, outcome: Outcome, case: CaseOutcome, entry: CaseEntry) -> None:
        if case.status == "passed":
            return
        if case.status == "skipped":
            raise pytest.skip.Exception(case.explanation)
        if case.status == "unsupported" and not self.config.getoption("runxfail"):
            raise pytest.xfail.Exception(f"unsupported: {case.explanation}")
        target, info = self._judging.settings.target, self._judging.info
        text = explain(outcome, case, entry, self.record, self.directory, target, info)
        raise CaseFailed(f"{case.status}: {' '.join(case.explanation.split())}", text)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str | TerminalRepr:
        """The explanation instead of a traceback, which would lead to tapml and to nothing of the reader's."""
        error = excinfo.value
        if not isinstance(error, CaseFailed):
            return super().repr_failure(excinfo)
        shown = excinfo.getrepr(style="value", chain=False)
        if shown.reprcrash is not None:
            shown.reprcrash.path, shown.reprcrash.lineno = str(self.path), 1
            shown.reprcrash.message = error.summary
        return shown
