"""Real defects of TVM as bundles of ``tapml repro``, before and after shrinking, each run where there is no tapml.

    python benchmarks/repro.py [--work build/repro] [--budget 60] [--markdown FILE]

The program of ``repro_program.py`` is carved; each of its operators, converted by TVM's own front end, becomes a bundle
twice: as it was carved, and shrunk.  The script of the shrunk one runs in a virtual environment that has torch and tvm
only, which is made once.  Exit code 1 when one does not reproduce there, or the median bundle is larger than 50 kB.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from repro_program import WHAT
from rich.progress import track

from tapml.suite.reader import Suite

HERE = Path(__file__).resolve().parent
AIM = 50_000
"""Bytes of the median bundle."""
PACKAGES = ("torch", "apache-tvm", "apache-tvm-ffi", "numpy")


@dataclass(frozen=True)
class Row:
    """One defect.  ``code``: exit code of the script in the clean environment."""

    operator: str
    before: dict[str, Any]
    after: dict[str, Any]
    code: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("build/repro"))
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--markdown", type=Path, help="write the table there as well")
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    python = clean_environment(work / "venv")
    suite = work / "suite"
    tapml("carve", f"{HERE / 'repro_program.py'}:calls", "-o", suite, "--force")
    signatures = {
        r.signature.operator: r.signature.id for r in Suite.open(suite).signatures if r.signature.operator in WHAT
    }
    missing = sorted(set(WHAT) - set(signatures))
    assert not missing, f"expected the program to call {missing}"
    rows = []
    for operator in track(WHAT, "bundles"):
        rows.append(measure(operator, suite, signatures[operator], work, python, options.budget))
    text = table(rows)
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n")
    median = statistics.median(r.after["bytes"] for r in rows)
    return 0 if median < AIM and all(r.code == 1 for r in rows) else 1


def clean_environment(folder: Path) -> Path:
    """The interpreter of a virtual environment with torch and tvm only."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        constraints = HERE.parent / "constraints.txt"
        pip = [python, "-m", "pip", "--disable-pip-version-check", "-qq", "install", "-c", constraints]
        subprocess.run([*pip, *PACKAGES], check=True)
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec('tapml') is not None)"
    subprocess.run([python, "-I", "-c", probe], check=True)
    return python


def tapml(*words: object) -> int:
    """The exit code of a command."""
    done = subprocess.run([sys.executable, "-m", "tapml.cli.main", *map(str, words)], stdout=subprocess.DEVNULL)
    return done.returncode


def measure(operator: str, suite: Path, signature: str, work: Path, python: Path, budget: float) -> Row:
    """Both bundles of one defect."""
    name = operator.split(".")[1]
    figures = []
    for label, more in (("carved", ()), ("shrunk", ("--shrink", "--budget", budget))):
        out, file = work / f"{name}-{label}", work / f"{name}-{label}.json"
        command = ("repro", suite, signature, "--target", "llvm", "--route", "frontend", "-o", out, "--force")
        if tapml(*command, "--json", file, *more) not in (0, 1):
            raise SystemExit(f"tapml {' '.join(map(str, command))} failed")
        figures.append(json.loads(file.read_text()))
    script = work / f"{name}-shrunk" / "reproduce.py"
    done = subprocess.run([python, "-I", script], cwd="/", capture_output=True, text=True)
    return Row(operator, figures[0], figures[1], done.returncode)


def table(rows: list[Row]) -> str:
    lines = [
        f"{platform.machine()}, Python {platform.python_version()}; {rows[0].before['device']}",
        "",
        "| operator | what is wrong | elements carved | shrunk | tensors left | bytes carved | shrunk | seconds | "
        "reproduced with torch and tvm only |",
        "|---|---|--:|--:|---|--:|--:|--:|---|",
    ]
    for row in rows:
        shrunk = row.after["shrink"]
        outcome = f"yes ({row.after['how']})" if row.code == 1 else f"NO (exit code {row.code})"
        lines.append(
            f"| `{row.operator}` | {WHAT[row.operator]} | {row.after['elements before']:,} | {row.after['elements']:,} | "
            f"{', '.join(row.after['tensors'])} | {row.before['bytes']:,} | {row.after['bytes']:,} | "
            f"{shrunk['seconds']:.1f} | {outcome} |"
        )
    sizes = [[r.before["bytes"] for r in rows], [r.after["bytes"] for r in rows]]
    count = sum(r.code == 1 for r in rows)
    lines += [
        "",
        f"{count} of {len(rows)} reproduce; median bundle {statistics.median(sizes[0]):,.0f} bytes as carved, "
        f"{statistics.median(sizes[1]):,.0f} shrunk",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
