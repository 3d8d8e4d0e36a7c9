"""Does a plain `tapml migrate` cost more than it did at another commit?  Whole commands of both, taking turns.

    python benchmarks/overhead.py SUITE [--before COMMIT] [--target llvm] [--device D] [--runs 5]

Both trees are built as wheels' contents and run by this interpreter, each with a cache of its own: with empty caches
(cold), then with full ones (warm), without the hybrid run's own noise (``--gate end``).  Prints, for seconds on the clock
and for processor time, the ratio of the fastest runs and the median of the ratios of neighbouring runs.  Exit code 1 when
processor time is above the aim by either.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEFORE = "9db23d2"
"""The last commit before reports, reproduction, boundary cases, blame and scores."""
AIM = 1.05
_PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=Path)
    parser.add_argument("--before", default=BEFORE, help=f"commit to compare with (default: {BEFORE})")
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--device", default="")
    parser.add_argument("--runs", type=int, default=5, help="runs of each, cold and warm")
    options = parser.parse_args()
    adopt()
    with tempfile.TemporaryDirectory(prefix="tapml-overhead-") as folder:
        work = Path(folder)
        trees = {"before": installed(options.before, work / "before"), "now": installed("HEAD", work / "now")}
        missed = False
        print(
            f"{options.suite.name} on {options.device or options.target}: {options.before} and HEAD, {options.runs} runs"
        )
        for state in ("cold", "warm"):
            measured: dict[str, list[tuple[float, float]]] = {name: [] for name in trees}
            for turn in range(options.runs):
                order = list(trees) if turn % 2 == 0 else list(reversed(trees))
                for name in order:
                    cache = work / f"cache-{name}"
                    if state == "cold":
                        shutil.rmtree(cache, ignore_errors=True)
                    measured[name].append(migrate(trees[name], work / f"suite-{name}", cache, options))
            for i, what in enumerate(("clock", "processor")):
                before, now = ([run[i] for run in measured[name]] for name in ("before", "now"))
                fastest = min(now) / min(before)
                paired = statistics.median(n / b for n, b in zip(now, before, strict=True))
                print(
                    f"{state}, {what}: {min(before):.2f} s -> {min(now):.2f} s, ratio {fastest:.3f}, "
                    f"median of paired ratios {paired:.3f}",
                    flush=True,
                )
                missed |= what == "processor" and max(fastest, paired) > AIM
    print(f"missed: aim {AIM}" if missed else f"within {AIM}")
    return int(missed)


def installed(commit: str, folder: Path) -> Path:
    """What a wheel of a commit contains, in a folder to be put on the path."""
    tree = folder / "tree"
    subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", "--quiet", tree, commit], check=True)
    try:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder / "site", tree]
        subprocess.run(command, check=True)
    finally:
        subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", tree], check=True)
    return folder / "site"


def migrate(site: Path, suite: Path, cache: Path, options: argparse.Namespace) -> tuple[float, float]:
    """Seconds on the clock, and of all processes on processors."""
    if not suite.exists():
        shutil.copytree(options.suite, suite, ignore=shutil.ignore_patterns("migrations"))
    environment = {**os.environ, "PYTHONPATH": str(site), "TAPML_CACHE": str(cache)}
    code = (
        "import sys, tapml; assert tapml.__file__.startswith(sys.argv.pop(1)); from tapml.cli.main import main; main()"
    )
    command = [sys.executable, "-c", code, str(site), "migrate", suite, "--target", options.target, "--gate", "end"]
    command += ["--restart", "--json", os.devnull, *(["--device", options.device] if options.device else [])]
    begun, used = time.perf_counter(), processor()
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=suite.parent)
    if ran.returncode not in (0, 1):
        raise SystemExit(f"tapml of {site} failed: {ran.stderr[-2000:]}")
    seconds = time.perf_counter() - begun
    adopted()
    return seconds, processor() - used


def adopt() -> None:
    """Become the parent of workers whose parents end, so that their processor time is counted (Linux, prctl(2))."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise SystemExit("expected a system where processes can be adopted (Linux)")


def adopted() -> None:
    """Wait for the processes that were adopted."""
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        return


def processor() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
