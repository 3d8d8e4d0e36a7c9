"""The hooks that are in force when ``--tapml-target`` is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tapml.errors import TapmlError
from tapml.migration.ladder import compute_signatures
from tapml.migration.process import start_fork_server
from tapml.migration.settings import Settings
from tapml.pytest_plugin.explain import with_hint
from tapml.pytest_plugin.items import CaseItem, SuiteFile
from tapml.pytest_plugin.judging import Judging
from tapml.pytest_plugin.summary import WORDS, counted, heading, lines
from tapml.suite_format import MANIFEST, looks_like_suite

_FACTS = "tapml"
"""Attribute of a report: the facts of its case."""


class SuitePlugin:
    """Collects suites and judges their cases; in pytest-xdist's controller, only says how they are shared out."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._facts: list[dict[str, Any]] = []
        self._suites: dict[str, Path] = {}

    @cached_property
    def judging(self) -> Judging:
        """Raises :class:`pytest.UsageError` for a target, device or file that is not there."""
        given = getattr(self._config, "workerinput", None)
        if given is not None:
            return Judging.from_json(given[_FACTS], sharing=int(given["workercount"]))
        option = self._config.getoption
        target = option("tapml_target")
        settings = Settings(
            target,
            option("tapml_device"),
            jobs=1,
            seconds=option("tapml_timeout"),
            memory_mb=option("tapml_memory_limit"),
            extensions=tuple(str(Path(self._config.invocation_params.dir, f)) for f in option("tapml_with")),
        )
        try:
            settings, info = settings.resolved()
        except TapmlError as error:
            raise pytest.UsageError(with_hint(error)) from error
        except ImportError as error:
            raise pytest.UsageError(
                f"target {target} needs a package that is not installed: {error}\n"
                "hint: `tapml doctor` says how to get it"
            ) from error
        return Judging(settings, info, sharing=1)

    # -- before the tests ---------------------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        _ = self.judging  # what is wrong with the options is said before anything is collected

    def pytest_report_header(self) -> str:
        return f"tapml: {heading(self.judging.settings.target, self.judging.info)}"

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> SuiteFile | None:
        if file_path.name != MANIFEST or not looks_like_suite(file_path.parent):
            return None
        if not self._config.getoption("collectonly"):
            start_fork_server(file_path.parent)  # one that was not given by name
        file: SuiteFile = SuiteFile.from_parent(parent, path=file_path, judging=self.judging, known=self._suites)
        return file

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        if self._config.pluginmanager.hasplugin("xdist"):
            for item in items:
                if isinstance(item, CaseItem):
                    item.add_marker(pytest.mark.xdist_group(item.record.signature.id))

    def pytest_report_collectionfinish(self, items: Sequence[pytest.Item]) -> list[str]:
        files = {node for item in items for node in item.listchain() if isinstance(node, SuiteFile)}
        if not files:
            where = ", ".join(self._config.args)
            return [f"tapml: no case of a suite in {where}: a suite is a directory that `tapml carve` writes"]
        return [_described(file, items) for file in sorted(files, key=lambda f: f.nodeid)]

    # -- results ------------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if isinstance(item, CaseItem) and call.when == "call":
            setattr(report, _FACTS, {**item.facts, "suite": str(item.directory)})
            if report.skipped and isinstance(report.longrepr, tuple):  # said of the suite, not of a line of tapml
                report.longrepr = (str(item.path), 1, report.longrepr[2])
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        words = WORDS.get(getattr(report, _FACTS, {}).get("status", ""))
        return words if words is not None and words[0] == _category(report) else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if hasattr(report, _FACTS):
            self._facts.append(getattr(report, _FACTS))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._facts:
            info = self.judging.info
            terminalreporter.section(f"tapml: {self.judging.settings.target} on {info.name} ({info.mode})")
            for line in lines(self._facts):
                terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        if "judging" in self.__dict__:
            self.judging.close()

    # -- pytest-xdist -------------------------------------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_FACTS] = self.judging.to_json()

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Instead of ``--dist load``, which is what ``-n`` means: it would deal the cases of a signature to all."""
        if config.getoption("dist") != "load":
            return None
        from tapml.pytest_plugin.scheduling import SignatureScheduling

        return SignatureScheduling(config, log)


def _category(report: pytest.TestReport) -> str:
    return "xfailed" if hasattr(report, "wasxfail") and report.skipped else report.outcome


def _described(file: SuiteFile, items: Sequence[pytest.Item]) -> str:
    cases = [item for item in items if isinstance(item, CaseItem) and item.path == file.path]
    chosen, all_of = {c.record.signature.id for c in cases}, len(compute_signatures(file.suite))
    kept = Counter(r.kind for r in file.suite.signatures if r.kind != "compute")
    others = ", ".join(f"{number} {kind}" for kind, number in kept.items())
    text = f"tapml: {file.path.parent}: {counted(len(cases), 'case')} of {len(chosen)} of {all_of} compute signatures"
    return text + (f"; kept in PyTorch and not tested: {others}" if others else "")
