"""How long each target takes for the kernels of a suite (SmolLM2's, unless another is named).

    python benchmarks/targets.py --speed --work build/targets [SUITE] [--devices ...]

For each device: one whole ``tapml test`` of the suite with an empty cache and one with a full one; then, in one process and
one signature after another, the seconds to lower and compile, to load (what the driver compiles), and to run for the
first time and warm, all on the signature's first case.  Emulated devices run each kernel at least twice, that is what
they are for; the seconds of a warm launch there are those of one pass.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from zoo import environment

AIMS = {"webgpu:native": 3.0, "metal:emulated": 10.0, "cuda:emulated": 10.0}
"""Minutes for one whole suite on 2 cores."""
WARM = 3
"""Warm runs of a signature; their median counts."""


def speed(suite: Path, options: argparse.Namespace) -> int:
    """Print the table.  0 when every device meets its aim."""
    print(f"{suite.name}: {len(os.sched_getaffinity(0))} cores; {environment()}\n", flush=True)
    head = [
        "device", "test, cold", "test, warm", "signatures", "compile", "load", "first run", "warm run", "launches"
    ]  # fmt: skip
    print("| " + " | ".join(head) + " |\n|---|" + "---:|" * (len(head) - 1), flush=True)
    found, missed = [], []
    for device in options.devices:
        with tempfile.TemporaryDirectory(prefix="tapml-targets-") as cache:
            cold, warm = (whole_suite(suite, device, cache, options.jobs) for _ in range(2))
        figures = one_by_one(suite, device)
        found.append({"device": device, "cold": cold, "warm": warm, **figures})
        medians = [shown([f[key] for f in figures["signatures"]]) for key in ("compile", "load", "first", "warm")]
        launches = sum(f["launches"] for f in figures["signatures"])
        number = f"{len(figures['signatures'])}" + (f" ({len(figures['left'])} left out)" if figures["left"] else "")
        cells = [device, f"{cold:.0f} s", f"{warm:.0f} s", number, *medians, str(launches)]
        print("| " + " | ".join(cells) + " |", flush=True)
        aim = AIMS.get(device)
        if aim is not None and cold > 60 * aim:
            missed.append(f"{device}: {cold / 60:.1f} min for the whole suite, aim {aim:g}")
    print("\ncompile, load, runs: median and sum over the signatures; load is what the driver compiles")
    print("\n".join(f"missed: {m}" for m in missed) or "every aim is met: " + aims(options.devices))
    if options.json:
        options.json.write_text(json.dumps({"environment": environment(), "devices": found}, indent=1) + "\n")
    return 1 if missed else 0


def aims(devices: list[str]) -> str:
    return ", ".join(f"{d} under {AIMS[d]:g} min" for d in devices if d in AIMS) or "none is set for these"


def shown(seconds: list[float]) -> str:
    """Median and sum."""
    if not seconds:
        return "-"
    return f"{1000 * statistics.median(seconds):.2f} ms, {sum(seconds):.1f} s"


def whole_suite(suite: Path, device: str, cache: str, jobs: int | None) -> float:
    """Seconds of ``tapml test``, start-up included.  Ends the benchmark when tapml does not get that far."""
    command = [
        sys.executable, "-m", "tapml.cli.main", "test", str(suite), "--target", device.split(":")[0], "--device", device,
        *(["--jobs", str(jobs)] if jobs else []),
    ]  # fmt: skip
    begin = time.perf_counter()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "TAPML_CACHE": cache}
    )
    if done.returncode not in (0, 1):
        sys.exit(f"error: tapml test on {device} gave {done.returncode}:\n{done.stderr[-2000:]}")
    return time.perf_counter() - begin


def one_by_one(suite: Path, device: str) -> dict[str, Any]:
    """What :func:`main` prints, from a process of its own."""
    command = [sys.executable, __file__, str(suite), device]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        sys.exit(f"error: timing {device} gave {done.returncode}:\n{done.stderr[-2000:]}")
    return found


def main() -> None:
    """Time each compute signature of a suite on a device; JSON on standard output."""
    from tapml.errors import TapmlError
    from tapml.lowering.lower import lower, routes
    from tapml.platform import find_platform
    from tapml.suite.reader import Suite

    suite, device = Suite.open(Path(sys.argv[1])), sys.argv[2]
    target = device.split(":")[0]
    platform = find_platform(target)
    opened = platform.open(device)
    found, left = [], []
    for record in suite.signatures:
        if record.kind != "compute" or not record.cases:
            continue
        signature, case = record.signature, suite.case(record.cases[0])
        try:
            route = routes(signature, target)[0]
            times = [time.perf_counter()]
            artifact = platform.build(lower(signature, target, route), device)
            times.append(time.perf_counter())
            executable = opened.load(artifact, signature)
            times.append(time.perf_counter())
            launches = executable.run(case.tensors).launches
            times.append(time.perf_counter())
            warm = statistics.median(executable.run(case.tensors).seconds for _ in range(WARM))
        except TapmlError as error:
            left.append(f"{signature}: {error.message}")
            continue
        spans = [b - a for a, b in itertools.pairwise(times)]
        found.append(dict(zip(("compile", "load", "first"), spans, strict=True)))
        found[-1] |= {"signature": signature.id, "warm": warm, "launches": launches}
    print(json.dumps({"signatures": found, "left": left}))


if __name__ == "__main__":
    main()
