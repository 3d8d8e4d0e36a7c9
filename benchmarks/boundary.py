"""What do neighbours of the carved calls find that the carved calls do not?

    python benchmarks/boundary.py --work build/targets                          # the zoo on llvm and on webgpu:native
    python benchmarks/boundary.py gpt2-float32 --devices metal:emulated

Suites and ``--work`` are those of ``targets.py``.  Each row is one ``tapml test --boundary``, whose figures stay in
``--work/boundary``: an interrupted benchmark goes on where it was.  Prints the rows, and what is not right by its cause.
Exit code 1 when a command gave no figures.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from targets import Row, causes, file_of, find_suite, last_lines, recall, tapml
from zoo import DEFAULT as ARCHITECTURES
from zoo import environment

SUITES = [f"{name}-float32" for name in ARCHITECTURES]


def measure(suite: str, device: str, options: argparse.Namespace) -> Row:
    """One row, or the one of an earlier run.  Its outcomes are the neighbours'; ``refused`` are in its figures."""
    file = options.work / "boundary" / file_of(suite, device, options.work).name
    row = None if options.again else recall(file)
    if row is not None and not row.error:
        return row
    figures, log = file.with_suffix(".tapml"), file.with_suffix(".log")
    figures.unlink(missing_ok=True)
    path, target = str(find_suite(suite, options.work)), device.split(":")[0]
    jobs = ("--jobs", str(options.jobs)) if options.jobs else ()
    command = ("test", path, "--boundary", "--target", target, "--device", device, *jobs, "--json", str(figures))
    code, seconds = tapml(*command, log=log)
    if figures.is_file():
        found = json.loads(figures.read_text())
        kept = {"mode": found["mode"], "refused": found["refused"], "signatures": found["boundary"]}
        row = Row(Path(suite).name, device, seconds, kept)
        figures.unlink()
    else:
        row = Row(Path(suite).name, device, seconds, {}, f"exit code {code}: {last_lines(log)}")
    file.write_text(json.dumps(row.__dict__) + "\n")
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", help="names, or paths of carved suites (default: the zoo, in float32)")
    parser.add_argument("--devices", nargs="+", default=["llvm:cpu", "webgpu:native"])
    parser.add_argument("--work", type=Path, default=Path("build/targets"), help="where suites and rows go")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--again", action="store_true", help="measure rows anew that are there")
    options = parser.parse_args()
    (options.work / "boundary").mkdir(parents=True, exist_ok=True)
    rows = []
    for device in options.devices:
        for suite in options.suites or SUITES:
            row = measure(suite, device, options)
            rows.append(row)
            print(f"{row.suite} on {device}: {row.count('verified')}/{len(row.outcomes)} right {row.error}", flush=True)
    print(f"\n{environment()}\n")
    print(
        "| suite | device | mode | neighbours | right | failed | unsupported | skipped | crashed | refused by PyTorch |"
    )
    print("|---|---|---|" + "---:|" * 7)
    for row in rows:
        counts = [row.count(kind) for kind in ("verified", "failed", "unsupported", "skipped", "crashed")]
        numbers = [len(row.outcomes), *counts, row.figures.get("refused", 0)]
        print(f"| {row.suite} | {row.device} | {row.figures.get('mode', '')} | {' | '.join(map(str, numbers))} |")
    print("\nNot right, by cause:\n")
    print("\n".join(causes(rows)) or "nothing")
    return int(any(row.error for row in rows))


if __name__ == "__main__":
    sys.exit(main())
