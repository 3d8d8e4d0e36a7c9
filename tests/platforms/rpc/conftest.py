"""One server, one without a compiler, and a tracker with a server, for all tests of the folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.platforms.rpc.servers import Process, Zygote

MISSING = [name for name in ("cloudpickle", "psutil", "tornado") if find_spec(name) is None]
if not Path("/proc/self").exists():
    MISSING.append("/proc")
COMPILER = ("target.llvm_get_system_triple", "target.llvm_get_system_cpu")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if MISSING and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=f"TVM's RPC servers need {', '.join(MISSING)}"))


@dataclass(frozen=True)
class Processes:
    """``tracked``: a server of key ``farm`` that ``tracker`` knows; ``bare``, of key ``phone``, has no compiler."""

    plain: Process
    bare: Process
    tracker: Process
    tracked: Process


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    zygote = Zygote()
    started: list[Process] = []
    try:
        for kind, key, lacking in (("server", "board", ()), ("server", "phone", COMPILER), ("tracker", "-", ())):
            started.append(Process(zygote, kind, key, lacking=lacking))
        started.append(Process(zygote, "server", "farm", started[-1].port))
        yield Processes(*started)
    finally:
        for process in started:
            process.kill()
        zygote.close()


@pytest.fixture
def plain(processes: Processes) -> Process:
    """A server of key ``board``, whatever became of it in the last test."""
    if not processes.plain.runs():
        processes.plain.start()
    return processes.plain
