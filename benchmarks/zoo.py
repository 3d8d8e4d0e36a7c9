"""Carve and migrate any architecture of transformers, small and with random weights.

    python benchmarks/zoo.py                                  # the ten of the table in docs/, float32, to llvm
    python benchmarks/zoo.py gpt2 bert --dtype bfloat16 --json zoo.json
    tapml carve benchmarks/zoo.py:qwen3 -o suite              # one of them by hand: every name is a factory

A configuration is made small by what its own attributes are called and hold, see :mod:`zoo_models`; nothing here knows
an architecture.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from zoo_models import make

DEFAULT = ("gpt2", "qwen3", "gemma3_text", "phi3", "mixtral", "mamba", "t5", "vit", "convnext", "whisper")
STATUSES = ("migrated", "failed", "unsupported", "crashed", "timed out", "skipped", "rolled back")


def __getattr__(name: str) -> Callable[[], Any]:
    """Every name of an architecture is a factory: ``benchmarks/zoo.py:gpt2``."""
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda: make(name)


@dataclass
class Row:
    """What became of one architecture.

    ``classes``: signatures by class.  ``outcomes``: compute signatures by status.  ``left``: those that did not migrate.
    """

    architecture: str
    dtype: str
    calls: int = 0
    classes: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    accepted: bool = False
    hybrid: str = ""
    launches: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    left: list[dict[str, str]] = field(default_factory=list)
    routes: dict[str, int] = field(default_factory=dict)
    error: str = ""

    @property
    def compute(self) -> int:
        return sum(self.outcomes.values())


def measure(architecture: str, dtype: str, args: argparse.Namespace, folder: Path) -> Row:
    """Carve one architecture and migrate it.  Whatever goes wrong is in the row."""
    from tapml.carving.carve import carve
    from tapml.carving.sources import find_source
    from tapml.errors import TapmlError
    from tapml.migration.ladder import migrate
    from tapml.migration.settings import Settings

    row = Row(architecture, dtype)
    suite = folder / f"{architecture}-{dtype}"
    name = architecture.replace("-", "_")
    try:
        begin = time.perf_counter()
        own = None if dtype == "float32" else dtype
        spec = find_source(f"{Path(__file__).resolve()}:{name}", dtype=own, seed=args.seed)
        summary = carve(spec, suite, force=True)
        row.seconds["carve"] = time.perf_counter() - begin
        row.calls = summary.calls
        row.classes = {kind: signatures for kind, (_, signatures) in summary.classes.items()}
        begin = time.perf_counter()
        settings = Settings(args.target, args.device, gate=args.gate, jobs=args.jobs)
        result = migrate(suite, settings, resume=False, listen=lambda kind, value: None)
        row.seconds["migrate"] = time.perf_counter() - begin
    except TapmlError as error:
        row.error = f"{error.message} ({error.hint.strip().splitlines()[-1]})" if error.hint else error.message
        return row
    row.outcomes = dict(result.counts)
    row.accepted = result.final is not None and result.final.accepted
    row.hybrid = result.final.explanation if result.final else "nothing to run"
    row.launches = result.final.launches if result.final else 0
    row.routes = dict(Counter(o.route for o in result.outcomes.values() if o.passed))
    records = {r.signature.id: r.signature for r in _signatures(suite)}
    for identity, outcome in result.outcomes.items():
        if result.status(identity) != "migrated":
            row.left.append(
                {
                    "signature": f"{identity} {records[identity]}",
                    "status": result.status(identity),
                    "cause": " | ".join(dict.fromkeys([outcome.message, *(a.message for a in outcome.attempts)])),
                }
            )
    return row


def _signatures(suite: Path) -> Sequence[Any]:
    from tapml.suite.reader import Suite

    return Suite.open(suite).signatures


# -- showing ----------------------------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table, with totals."""
    kinds = sorted({k for r in rows for k in r.classes} - {"compute"})
    shown = [s for s in STATUSES if any(s in r.outcomes for r in rows)]
    head = ["architecture", "dtype", "calls", *kinds, "compute", *shown, "hybrid run", "carve s", "migrate s"]
    lines = [head, ["---", "---", *["---:"] * (len(head) - 5), "---", "---:", "---:"]]
    for row in rows:
        hybrid = row.error or f"{'accepted' if row.accepted else 'REJECTED'}: {row.hybrid}"
        lines.append(
            [
                row.architecture, row.dtype, str(row.calls), *(str(row.classes.get(k, 0)) for k in kinds),
                str(row.classes.get("compute", 0)), *(str(row.outcomes.get(s, 0)) for s in shown), hybrid,
                *(f"{row.seconds.get(s, 0):.1f}" for s in ("carve", "migrate")),
            ]
        )  # fmt: skip
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def totals(rows: Sequence[Row]) -> str:
    """One sentence about all rows."""
    compute = sum(r.classes.get("compute", 0) for r in rows)
    migrated = sum(r.outcomes.get("migrated", 0) for r in rows)
    accepted = sum(r.accepted for r in rows)
    share = 100 * migrated / compute if compute else 0.0
    return (
        f"{migrated} of {compute} compute signatures migrated ({share:.2f} %), {accepted} of {len(rows)} hybrid runs "
        f"accepted, {sum(sum(r.seconds.values()) for r in rows):.0f} s"
    )


def environment() -> str:
    versions = ", ".join(f"{p} {metadata.version(p)}" for p in ("torch", "apache-tvm", "transformers"))
    return f"{platform.machine()}, Python {platform.python_version()}, {versions}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("architectures", nargs="*", default=list(DEFAULT), help="names that AutoConfig.for_model takes")
    parser.add_argument("--dtype", nargs="+", default=["float32"], choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--device", default="")
    parser.add_argument("--gate", default="end", choices=["call", "operator", "end"])
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--suites", type=Path, help="keep the suites in this directory")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    parser.add_argument("--table", action="store_true", help="print the table alone")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.suites or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for dtype in args.dtype:
            for architecture in args.architectures:
                row = measure(architecture, dtype, args, folder)
                rows.append(row)
                if not args.table:
                    migrated = f"{row.outcomes.get('migrated', 0)}/{row.classes.get('compute', 0)}"
                    print(f"{architecture} {dtype}: {row.error or f'{migrated} migrated, {row.hybrid}'}", flush=True)
    if not args.table:
        print(f"\n{environment()}\n")
    print(table(rows))
    print(f"\n{totals(rows)}")
    for row in rows:
        for entry in row.left:
            print(f"left: {row.architecture} {row.dtype} {entry['status']}: {entry['signature']}: {entry['cause']}")
    if args.json:
        document = {"environment": environment(), "rows": [asdict(r) for r in rows], "totals": totals(rows)}
        args.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(r.accepted and not r.left for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
