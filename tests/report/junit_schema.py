"""The rules of jenkins-junit.xsd and, but for ``skipped``, of Ant's JUnit.xsd, as far as they concern what tapml writes."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

_SUITE = {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname", "id", "package"}
_NUMBER = re.compile(r"\d+")
_SECONDS = re.compile(r"\d+(\.\d+)?")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


def check(root: Element) -> None:
    """Raises AssertionError at the first thing that is not as the schemas want it."""
    assert root.tag == "testsuites" and not (root.text or "").strip()
    for number, suite in enumerate(root):
        assert suite.tag == "testsuite" and set(suite.attrib) == _SUITE
        assert suite.get("id") == str(number) and suite.get("name") and suite.get("hostname") and suite.get("package")
        assert _TIMESTAMP.fullmatch(suite.get("timestamp", "")) and _SECONDS.fullmatch(suite.get("time", ""))
        tags = [child.tag for child in suite]
        cases = suite.findall("testcase")
        assert tags == ["properties", *["testcase"] * len(cases), "system-out", "system-err"]
        assert suite.get("tests") == str(len(cases))
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert _NUMBER.fullmatch(suite.get(name, "")) and int(suite.get(name, "")) == len(
                suite.findall(f".//{tag}")
            )
        for item in suite.find("properties") or ():
            assert item.tag == "property" and set(item.attrib) == {"name", "value"} and all(item.attrib.values())
        for case in cases:
            _check_case(case)


def _check_case(case: Element) -> None:
    assert set(case.attrib) == {"classname", "name", "time"} and case.get("classname") and case.get("name")
    assert _SECONDS.fullmatch(case.get("time", ""))
    assert len(case) <= 1, "a case has one outcome"
    for outcome in case:
        assert outcome.tag in ("failure", "error", "skipped") and not len(outcome)
        wanted = {"message"} if outcome.tag == "skipped" else {"message", "type"}
        assert set(outcome.attrib) == wanted and (outcome.tag == "skipped" or outcome.get("type"))
