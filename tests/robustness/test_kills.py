"""What is killed: the command itself at random moments, a worker, the hybrid process, the fork server."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .running import HERE, Place, comparable, place

LOOP = f"{HERE / 'loop_program.py'}:make"


def kill_script() -> Any:
    path = HERE.parent.parent / "benchmarks" / "kill.py"
    spec = importlib.util.spec_from_file_location("tapml_benchmark_kill", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def experiment() -> Iterator[Any]:
    script = kill_script()
    for home in place("kil"):
        yield script.Experiment(home, [LOOP])


def moments(*shares: float) -> list[Any]:
    """Shares of an undisturbed run at which to kill: the second and the fourth always, the others in the slow tests."""
    return [s if i in (1, 3) else pytest.param(s, marks=pytest.mark.slow) for i, s in enumerate(shares)]


@pytest.mark.parametrize("share", moments(0.1, 0.35, 0.6, 0.8, 0.95))
def test_a_carve_that_is_killed_leaves_nothing_in_the_way(experiment: Any, share: float) -> None:
    assert experiment.kill_carve(share * experiment.carve_seconds).problems == ()


@pytest.mark.parametrize("share", moments(0.05, 0.3, 0.55, 0.8, 0.95))
def test_a_migration_that_is_killed_resumes_to_the_same_result(experiment: Any, share: float) -> None:
    assert experiment.kill_migrate(int(share * experiment.events), 0.05).problems == ()


def processes_named(home: Place, name: str) -> list[int]:
    """Workers by what they are: multiprocessing does not name them, so by their temporary directory."""
    found = []
    for pid in home.processes():
        try:
            links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        if any(f"/{name}-" in link for link in links) and _parent_is_fork_server(pid):
            found.append(pid)
    return found


def _parent_is_fork_server(pid: int) -> bool:
    try:
        parent = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]
        return b"forkserver" in Path(f"/proc/{parent}/cmdline").read_bytes()
    except OSError:
        return False


def run_killing(home: Place, arguments: list[str], name: str, times: int) -> subprocess.CompletedProcess[str]:
    """Run to the end, and kill the first ``times`` processes of a name that appear, a moment after they did."""
    process = home.start(*arguments)
    killed: list[int] = []
    end = time.monotonic() + 120
    while process.poll() is None and len(killed) < times and time.monotonic() < end:
        for pid in processes_named(home, name):
            if pid not in killed and len(killed) < times:
                time.sleep(0.2)
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
        time.sleep(0.05)
    out, err = process.communicate(timeout=120)
    assert len(killed) == times
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def fresh(experiment: Any, name: str) -> list[str]:
    work = experiment.home.work
    shutil.rmtree(experiment.home.cache / "kernels", ignore_errors=True)
    shutil.rmtree(work / name, ignore_errors=True)
    shutil.copytree(work / "whole", work / name)
    return ["migrate", name, "--target", "llvm", "--json", f"{name}.json"]


@pytest.mark.parametrize("name", ["tapml-worker", "tapml-hybrid"])
def test_a_process_killed_from_outside_costs_nothing(experiment: Any, name: str) -> None:
    done = run_killing(experiment.home, fresh(experiment, "killed"), name, 1)
    assert done.returncode == 0, done.stderr
    data = json.loads((experiment.home.work / "killed.json").read_text())
    assert set(data["counts"]) == {"migrated"}
    for one in data["signatures"]:
        one["notes"] = [n for n in one["notes"] if "judged in a second process" not in n]
    assert comparable(data) == experiment.whole


def test_no_process_outlives_a_root_that_is_killed_while_a_converter_loops_in_c(place: Place, hostile: Path) -> None:
    shutil.copytree(hostile, place.work / "suite")
    process = place.start(
        "test", "suite", "--target", "llvm", "--select", "aten.cos or aten.sin or reciprocal", "--jobs", 3,
        "--with", HERE / "hostile_converters.py",
    )  # fmt: skip
    end = time.monotonic() + 60
    while not any(f.read_text() for f in place.temporary.glob("*/tapml-worker-*/output.log")):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.1)
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert place.wait_until_alone(5) == []
    assert place.temporaries() != []  # nobody was left to remove them
    done = place.run("test", "suite", "--target", "llvm", "--select", "aten.add")
    assert done.returncode == 0, done.stderr
    assert place.temporaries() == []
