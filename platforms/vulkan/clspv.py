"""OpenCL C -> SPIR-V for Vulkan, by way of clspv: as a Python package (pyclspv) or as a program on the PATH."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tapml.errors import CompileError
from tapml.kernels.driver_output import captured, errors_in
from tapml.platforms.vulkan.spirv import MAGIC


def find_clspv() -> str | None:
    """``pyclspv``, else the path of ``clspv``, else ``None``: what :func:`compile_spirv` would use."""
    return "pyclspv" if importlib.util.find_spec("pyclspv") else shutil.which("clspv")


def compile_spirv(source: str, *, options: Sequence[str] = ()) -> bytes:
    """The SPIR-V module (for Vulkan 1.1, little-endian) of OpenCL C source, in this process or in one that it starts.

    ``options``: more options for the program clspv; pyclspv takes none.  Additions and multiplications are decorated
    with NoContraction by default.  Raises :class:`CompileError` with clspv's words, or when there is no clspv.
    """
    found = find_clspv()
    if found is None:
        raise CompileError(
            "expected clspv, found neither the package pyclspv nor a program clspv on the PATH",
            hint="pip install pyclspv (Linux on x86-64), or put a build of clspv on the PATH",
        )
    if found == "pyclspv" and options:
        raise CompileError(f"expected no options for pyclspv, found {' '.join(options)}", hint="use the program clspv")
    compiled = _call(source) if found == "pyclspv" else _run(found, source, options)
    if not compiled.startswith(MAGIC):
        raise CompileError(f"expected a SPIR-V module from clspv, found {compiled[:16]!r}")
    return compiled


def _call(source: str) -> bytes:
    """Compile with pyclspv, which writes what it has to say to file descriptor 2 and raises without it."""
    pyclspv = _package()
    with captured() as words:
        try:
            compiled = bytes(pyclspv.compile(source))
        except RuntimeError as error:
            raise CompileError(f"clspv: {errors_in(words()) or error}") from error
    return compiled


@lru_cache(maxsize=1)
def _package() -> Any:
    """The module ``pyclspv``, bound to its own LLVM: to another one that a driver has loaded before, for everyone (Mesa's
    OpenGL does), it would crash."""
    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags | getattr(os, "RTLD_DEEPBIND", 0))
    try:
        import pyclspv
    finally:
        sys.setdlopenflags(flags)
    return pyclspv


def _run(program: str, source: str, options: Sequence[str]) -> bytes:
    """Compile with the program."""
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "kernel.cl"), Path(folder, "kernel.spv")
        given.write_text(source, encoding="utf-8")
        command = [program, *options, str(given), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not made.exists():
            raise CompileError(f"clspv: {errors_in(done.stderr) or f'exit code {done.returncode}'}")
        return made.read_bytes()
