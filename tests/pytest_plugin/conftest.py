"""A directory in which pytest is run, with the suites of small programs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tapml.platform import find_platform
from tapml.pytest_plugin import plugin

CONVERTERS = Path(__file__).resolve().parent.parent / "converters"

SLOW = ("-p", "no:hypothesispytest", "-p", "no:unraisableexception")
"""Plugins that import for seconds, or collect garbage, in each run."""


class Run:
    """``run("suite", "--tapml-target", "llvm")`` in the directory ``path``; its ``cases`` are those of JUnit XML."""

    def __init__(self, pytester: pytest.Pytester, carved: Callable[..., Path]) -> None:
        self.pytester, self.path = pytester, pytester.path
        self._carved = carved

    def suite(self, program: str, name: str = "suite", keep: int = 3) -> Path:
        """A copy of the program's suite."""
        ignored = shutil.ignore_patterns("migrations")
        return Path(shutil.copytree(self._carved(program, keep), self.path / name, ignore=ignored))

    def __call__(self, *arguments: object, subprocess: bool = False) -> pytest.RunResult:
        report = self.path / "junit.xml"
        report.unlink(missing_ok=True)
        given = [*map(str, arguments), "-p", "no:cacheprovider", f"--junitxml={report}"]
        if subprocess:
            return self.pytester.runpytest_subprocess(*given, timeout=200)
        return self.pytester.runpytest_inprocess(*given, *SLOW)

    @property
    def junit(self) -> ElementTree.Element:
        """The element ``testsuite`` of the last run."""
        (suite,) = ElementTree.parse(self.path / "junit.xml").getroot()
        return suite

    @property
    def cases(self) -> dict[str, ElementTree.Element]:
        """By class name and name, without the file."""
        return {f"{c.get('classname')}.{c.get('name')}".partition("json.")[2]: c for c in self.junit.iter("testcase")}

    @property
    def statuses(self) -> dict[str, str]:
        """Operator and number of a case -> ``passed``, or JUnit's word for what it is instead."""
        found = {}
        for name, case in self.cases.items():
            operator, _, number = name.rpartition(".")
            others = [child.tag for child in case if child.tag != "properties"]
            found[f"{operator.rpartition('.')[0]}/{number}"] = others[0] if others else "passed"
        return found


def properties(case: ElementTree.Element) -> dict[str, str]:
    """The properties of a case in JUnit XML."""
    return {str(p.get("name")): str(p.get("value")) for p in case.iter("property")}


@pytest.fixture(scope="session")
def imported() -> None:
    """What a run inside of a test imports is forgotten after it: let it import nothing that takes long."""
    assert plugin.SuitePlugin and find_platform("llvm")


@pytest.fixture
def run(pytester: pytest.Pytester, carved: Callable[..., Path], imported: None) -> Run:
    return Run(pytester, carved)
