"""`tapml --help` answers at once, because it imports nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "tvm", "tvm_ffi", "numpy", "rich", "transformers", "safetensors", "filelock")

SCRIPT = """
import sys
from tapml.cli.main import run
code = run(sys.argv[1:])
print("imported", *[m for m in {heavy!r} if m in sys.modules], file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["frobnicate"], *([name, "--help"] for name in ("carve", "show", "test", "migrate"))],
)
def test_nothing_heavy_is_imported(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(heavy=HEAVY), *arguments],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.stderr.splitlines()[-1] == "imported", done.stderr
    assert done.returncode == (2 if arguments == ["frobnicate"] else 0)
