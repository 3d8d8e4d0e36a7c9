"""Kernels in Metal's or CUDA's language -> a shared library that the emulator executes."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from tapml.errors import CompileError, DeviceError
from tapml.kernels.plan import Plan
from tapml.platforms.simt.translate import Dialect, Translation, translate

_HERE = Path(__file__).parent
_ENGINE = ("engine.cc", "engine.h", "prelude.h", "metal.h", "cuda.h")
_TRAILER = b"\nsimt "
_LARGE = 60_000
"""Characters of kernel code from which it is compiled at -O1: unrolled to the full, -O2 would take seconds for it."""


def library_name(fast_math: bool) -> str:
    """The name of the compiled kernels among an artifact's files."""
    return "emulation-fast.so" if fast_math else "emulation.so"


def compile_kernels(plan: Plan, files: Mapping[str, bytes], dialect: Dialect, fast_math: bool = False) -> bytes:
    """The shared library for a plan whose kernels' sources are ``files``; to be stored as :func:`library_name`.

    Raises :class:`CompileError` when the C++ compiler refuses a kernel, in its words, with the lines of the source;
    :class:`UnsupportedError` for what cannot be emulated; :class:`DeviceError` without a C++ compiler.
    """
    return compile_translation(translate(plan, files, dialect), fast_math)


def compile_translation(translation: Translation, fast_math: bool) -> bytes:
    """As :func:`compile_kernels`, for kernels that have been translated."""
    compiler = find_compiler()
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "kernels.cc"), Path(folder, "kernels.so")
        source.write_text(translation.text)
        engine = Path(folder, "engine.o")
        engine.write_bytes(_engine_object(compiler))
        _call([compiler, *flags(translation, fast_math), "-shared", "-nodefaultlibs", "-I", str(_HERE),
               str(source), str(engine), "-lm", "-lc", "-lgcc", "-o", str(out)])  # fmt: skip
        return out.read_bytes() + _trailer(translation, fast_math)


def matches(library: bytes, translation: Translation, fast_math: bool) -> bool:
    """Whether a library was made from just these kernels by just this emulator, for a processor like this one."""
    return library.endswith(_trailer(translation, fast_math))


def flags(translation: Translation, fast_math: bool) -> list[str]:
    """The compiler's options for kernels."""
    options = [
        "-std=gnu++17",
        "-O1" if len(translation.text) > _LARGE else "-O2",
        "-fPIC",
        "-w",
        "-fno-strict-aliasing",
        "-ffp-contract=off",
        "-fno-exceptions",
        "-fno-asynchronous-unwind-tables",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fvisibility=hidden",
        "-fstack-clash-protection",  # no variable is so large that it lies beyond the guard of its stack
        "-ftrivial-auto-var-init=pattern",
        *_processor(),
    ]
    return [*options, "-DSIMT_FAST_MATH", "-ffinite-math-only"] if fast_math else options


@lru_cache(maxsize=None)
def find_compiler() -> str:
    """The C++ compiler: ``$CXX``, else g++ or clang++.  Raises :class:`DeviceError` where there is none."""
    named = os.environ.get("CXX", "")
    for name in (named,) if named else ("g++", "clang++", "c++"):
        found = shutil.which(name)
        if found:
            return found
    raise DeviceError(
        f"expected a C++ compiler ({named or 'g++ or clang++'}) on the PATH, found none", hint="apt-get install g++"
    )


@lru_cache(maxsize=None)
def _processor() -> tuple[str, ...]:
    """Options for the instructions that make conversions of half fast, where this processor has them."""
    if platform.machine() == "x86_64" and Path("/proc/cpuinfo").exists():
        words = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
        if words and {"f16c", "avx2"} <= set(words[1].split()):
            return ("-mavx2", "-mf16c")
    return ()


@lru_cache(maxsize=None)
def _engine_object(compiler: str) -> bytes:
    """The engine, compiled once in a process."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "engine.o")
        _call(
            [
                compiler,
                "-std=gnu++17",
                "-O2",
                "-fPIC",
                "-fvisibility=hidden",
                "-fstack-clash-protection",  # no variable is so large that it lies beyond the guard of its stack
                "-fno-exceptions",
                "-c",
                str(_HERE / "engine.cc"),
                "-o",
                str(out),
            ]
        )
        return out.read_bytes()


@lru_cache(maxsize=None)
def _engine_digest() -> str:
    hasher = hashlib.sha256()
    for name in _ENGINE:
        hasher.update((_HERE / name).read_bytes())
    return hasher.hexdigest()


def _trailer(translation: Translation, fast_math: bool) -> bytes:
    text = "\0".join([_engine_digest(), *flags(translation, fast_math), translation.text])
    return _TRAILER + hashlib.sha256(text.encode()).hexdigest().encode()


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        raise CompileError(
            f"{Path(command[0]).name} refused the emulated kernel: {' '.join(errors[:2])[:400] or 'no words'}"
        )
