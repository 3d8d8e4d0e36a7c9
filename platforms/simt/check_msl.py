"""Whether a source is valid Metal, without a Mac: clang's front end, with the types of Metal's standard library.

Metal's language is C++14 with address spaces, and so is C++ for OpenCL (clang's ``-x clcpp``), from whose address spaces
``msl_shim.h`` makes Metal's.  This checks types, names, overloads and address spaces; not what Apple's compiler makes of
it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from tapml.platforms.simt.compiles import Compiles

_HERE = Path(__file__).parent
_OLDEST, _NEWEST = 16, 30
_LIMIT = 60


def check_msl(source: str) -> Compiles:
    """Check the syntax and types of a Metal source.  ``not checked`` where there is no clang 16 or newer."""
    clang, by = _clang()
    if not clang:
        return Compiles("not checked", message=f"expected clang {_OLDEST} or newer on the PATH, found none")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.metal")
        path.write_text(_prepare(source))
        command = [clang, "-x", "clcpp", "-cl-std=clc++2021", "-target", "spir64", "-cl-no-stdinc",
                   "-fsyntax-only", "-w",
                   "-include", str(_HERE / "msl_shim.h"), str(path)]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT)
        except subprocess.TimeoutExpired:
            return Compiles("not checked", by, f"clang took longer than {_LIMIT} s")
        words = done.stderr.replace(str(path), "kernel.metal")
    if done.returncode == 0:
        return Compiles("compiles", by)
    errors = [line for line in words.splitlines() if re.search(r"^kernel\.metal:\d+:\d+: (fatal )?error", line)]
    if not errors:
        return Compiles("not checked", by, f"clang failed: {words.strip()[:300]}")
    if re.search(r"\bbool[234]\b", source):  # OpenCL has none: its comparisons give vectors of integers
        return Compiles("not checked", by, f"vectors of bool are beyond this check: {errors[0][:200]}")
    return Compiles("refused", by, "; ".join(errors[:2])[:400])


def _prepare(source: str) -> str:
    """The source without attributes and includes. Lines stay where they are."""
    source = re.sub(r"^[ \t]*#[ \t]*include\b.*$", "", source, flags=re.M)
    source = re.sub(r"\[\[[^\]]*\]\]", "", source)
    return re.sub(r"\bconstant(\s+\w+)\s*&", r"\1 ", source)  # an argument of OpenCL's is no reference


@lru_cache(maxsize=None)
def _clang() -> tuple[str, str]:
    """The newest clang, and what it calls itself."""
    for name in ("clang", *(f"clang-{n}" for n in range(_NEWEST, _OLDEST - 1, -1))):
        path = shutil.which(name)
        if path is None:
            continue
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        found = re.search(r"clang version (\d+)\.\S+", done.stdout)
        if found and int(found[1]) >= _OLDEST:
            return path, f"clang {found[0].split()[-1]}, types of Metal only"
    return "", ""
