"""pytest runs suites: ``pytest SUITE --tapml-target llvm``, one item a case.

pytest loads this module wherever tapml is installed: it imports nothing heavy, and does nothing without
``--tapml-target``.  :mod:`tapml.pytest_plugin.plugin` has the rest.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from tapml.suite_format import MANIFEST, looks_like_suite

__all__ = ["pytest_addoption", "pytest_configure"]


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")
    return value


def _megabytes(text: str) -> int:
    if not text.isdecimal() or int(text) < 256:
        raise argparse.ArgumentTypeError(f"expected a whole number of megabytes, at least 256, found {text!r}")
    return int(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of ``tapml test``, each with ``tapml-`` before its name."""
    group = parser.getgroup("tapml", "suites of tapml (pytest SUITE --tapml-target llvm)")
    group.addoption(
        "--tapml-target",
        metavar="TARGET",
        help="Run the suites that are given, or found below what is given, as tests of this target: llvm, webgpu, ... "
        "Without it suites are left alone.",
    )
    group.addoption(
        "--tapml-device",
        metavar="DEVICE",
        default="",
        help="Where kernels execute, as `tapml devices` names it.  [default: the best one of the target]",
    )
    group.addoption(
        "--tapml-with",
        metavar="FILE.py",
        action="append",
        default=[],
        help="Python file that registers converters or kernels (repeatable).",
    )
    group.addoption(
        "--tapml-timeout",
        metavar="SECONDS",
        type=_positive,
        default=120.0,
        help="Seconds that one signature may take.  [default: 120]",
    )
    group.addoption(
        "--tapml-memory-limit",
        metavar="MB",
        type=_megabytes,
        default=6144,
        help="Megabytes that the worker process may use.  [default: 6144]",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register what collects suites.  Raises :class:`pytest.UsageError` for a suite that is given without a target."""
    if config.getoption("tapml_target"):
        _load_ahead(config)
        from tapml.pytest_plugin.plugin import SuitePlugin

        config.pluginmanager.register(SuitePlugin(config), "tapml-suites")
    elif config.args_source == pytest.Config.ArgsSource.ARGS:
        for argument, directory in _given(config):
            if looks_like_suite(directory):
                raise pytest.UsageError(
                    f"expected --tapml-target with the suite {argument}, found none\n"
                    f"hint: such as `pytest {argument} --tapml-target llvm`; `tapml devices` lists targets and devices"
                )


def _given(config: pytest.Config) -> Iterator[tuple[str, Path]]:
    """Each argument with the directory that it names."""
    for argument in config.args:
        path = Path(config.invocation_params.dir, argument.partition("::")[0])
        yield argument, path.parent if path.name == MANIFEST else path


def _load_ahead(config: pytest.Config) -> None:
    """Have the worker load what it needs while this process does; neither takes less than seconds."""
    controller = config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")
    if not controller and not config.getoption("collectonly"):
        from tapml.migration.process import start_fork_server

        for _, directory in _given(config):
            start_fork_server(directory)
