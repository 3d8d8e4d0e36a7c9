"""The report as JUnit XML: a test suite for each migration, a test case for each kept case and each run of the program.

Keeps to the schema that Jenkins publishes (jenkins-junit.xsd) and to the stricter one of Ant (JUnit.xsd), but for the element
``skipped``, which that one lacks.  Statuses stay apart as the ``type`` of a failure or an error.
"""

from __future__ import annotations

import math
import re
import socket
import xml.etree.ElementTree as ElementTree
from datetime import datetime, timezone
from xml.etree.ElementTree import Element, SubElement

from tapml.migration.gate import GateResult
from tapml.migration.outcome import CaseResult, Outcome
from tapml.report.model import NOT_JUDGED, Migration, Report, share
from tapml.suite.case import SignatureRecord

_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no way to write."""

_ELEMENTS = {
    "failed": "failure",
    "rolled back": "failure",
    "unsupported": "error",
    "crashed": "error",
    "timed out": "error",
    NOT_JUDGED: "error",
    "not run": "skipped",
    "skipped": "skipped",
}
"""The element of each status that is no pass.  An error is a case that could not be judged."""


def junit(report: Report) -> bytes:
    """The XML document, UTF-8."""
    root = Element("testsuites")
    for number, migration in enumerate(report.migrations):
        root.append(_suite(report, migration, number))
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="UTF-8", xml_declaration=True)
    return text + b"\n"


def _suite(report: Report, migration: Migration, number: int) -> Element:
    cases = [c for r in report.signatures for c in _cases(report, migration, r)]
    cases.extend(_program(migration, g) for g in migration.gates)
    if migration.final is not None and migration.final not in migration.gates:
        cases.append(_program(migration, migration.final))
    if migration.state != "finished":
        cases.append(
            _case(migration, "the program", "all operators", 0.0, NOT_JUDGED, f"the migration is {migration.state}")
        )
    suite = Element("testsuite", name=_text(f"{report.title} on {migration.heading}"))
    for name, element in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(c.find(element) is not None for c in cases)))
    suite.set("tests", str(len(cases)))
    suite.set("time", f"{sum(migration.seconds.values()):.6f}")
    suite.set("timestamp", _time(migration))
    suite.set("hostname", _text(socket.gethostname()) or "localhost")
    suite.set("id", str(number))
    suite.set("package", _text(migration.target))
    properties = SubElement(suite, "properties")
    environment = migration.environment
    known = {
        "target": migration.target,
        "device": migration.device,
        "mode": migration.mode,
        "adapter": environment.description,
        **environment.details,
        **{f"version of {name}": version for name, version in environment.versions.items()},
        "host": environment.host,
        "suite": report.suite,
        "digest": report.digest,
        "verdict": migration.verdict,
    }
    for name, value in known.items():
        if name and value:
            SubElement(properties, "property", name=_text(name), value=_text(value))
    suite.extend(cases)
    SubElement(suite, "system-out").text = _text(migration.final.explanation if migration.final else "")
    SubElement(suite, "system-err").text = _text("\n".join(report.notes))
    return suite


def _cases(report: Report, migration: Migration, record: SignatureRecord) -> list[Element]:
    """One a kept case of the signature."""
    signature = record.signature
    outcome = migration.outcomes.get(signature.id)
    status = migration.statuses[signature.id]
    judged = {c.case: c for c in outcome.cases} if outcome is not None else {}
    found = []
    for case in record.cases:
        name = f"{case} in {report.cases[case].module or 'the program'}: {signature}"
        result = judged.get(case)
        if result is not None and outcome is not None:
            seconds = sum(outcome.seconds.values()) / len(outcome.cases)
            kind = "" if result.passed and status != "failed" else "failed"
            if result.passed and any(not c.passed for c in outcome.cases):
                kind = ""
            found.append(_case(migration, signature.operator, name, seconds, kind, _explained(outcome, result)))
        elif judged:
            found.append(_case(migration, signature.operator, name, 0.0, "not run", "an earlier case failed"))
        else:
            message = outcome.message if outcome is not None else f"the migration is {migration.state}"
            lines = (
                "\n".join([*(f"route {a.route}: {a.status}: {a.message}" for a in outcome.attempts), *outcome.output])
                if outcome
                else ""
            )
            found.append(_case(migration, signature.operator, name, 0.0, status, message, lines))
    return found


def _explained(outcome: Outcome, result: CaseResult) -> str:
    used = share(result)
    text = result.explanation if not result.passed or outcome.passed else outcome.message
    return f"{text} ({used:.0%} of the tolerance)" if used is not None and math.isfinite(used) else text


def _program(migration: Migration, gate: GateResult) -> Element:
    """A run of the whole program."""
    with_ = f"with {gate.operator} in place" if gate.operator else "with everything in place"
    where = f"{gate.explanation}; first at {gate.where}" if gate.where else gate.explanation
    status = "" if gate.accepted else "rolled back"
    name = f"the program {with_}, {gate.complete} signatures migrated"
    return _case(migration, "the program", name, gate.seconds, status, where)


def _case(
    migration: Migration, group: str, name: str, seconds: float, status: str, message: str, detail: str = ""
) -> Element:
    element = Element(
        "testcase", classname=_text(f"{migration.heading}.{group}"), name=_text(name), time=f"{seconds:.6f}"
    )
    if status:
        kind = _ELEMENTS.get(status, "error")
        found = SubElement(element, kind, message=_text(message))
        if kind != "skipped":
            found.set("type", status)
            found.text = _text("\n".join(line for line in (f"{status}: {message}", detail) if line))
    return element


def _time(migration: Migration) -> str:
    """In UTC, without a zone, as the schema has it; when the journal does not say, the beginning of time."""
    at = migration.environments[0].at
    moment = datetime.fromisoformat(at).astimezone(timezone.utc) if at else datetime.fromtimestamp(0, timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S")


def _text(text: str) -> str:
    """As it is, with what XML cannot hold replaced."""
    return _ILLEGAL.sub("\ufffd", text)
