"""What this machine has and lacks, and the command that gets it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from importlib import metadata

from tapml.platform import platform_needs

PINNED = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post1"}
"""Versions that tapml was made for; another one of ``apache-tvm-ffi`` crashes the compiler."""


@dataclass(frozen=True)
class Finding:
    """One thing that tapml can use: what for, whether it is here, and how to get it."""

    name: str
    purpose: str
    present: bool
    found: str
    remedy: str
    optional: bool = False


def examine() -> list[Finding]:
    """Look at packages and programs; nothing heavy is imported."""
    return [
        find_package("torch", "the reference", "pip install torch"),
        find_package("apache-tvm", "compilation", f"pip install apache-tvm=={PINNED['apache-tvm']}"),
        find_package("apache-tvm-ffi", "compilation", f"pip install apache-tvm-ffi=={PINNED['apache-tvm-ffi']}"),
        _linker(),
        find_package(
            "transformers", "Hugging Face directories and GGUF files", "pip install 'tapml[hf]'", optional=True
        ),
        find_package("gguf", "GGUF files", "pip install 'tapml[hf]'", optional=True),
        find_package("accelerate", "GGUF files", "pip install 'tapml[hf]'", optional=True),
        *platform_needs(),
    ]


def find_program(names: tuple[str, ...], purpose: str, remedy: str, *, variable: str = "") -> Finding:
    """The first of several programs that is on the PATH, or that an environment variable names.  Always optional."""
    given = os.environ.get(variable, "") if variable else ""
    found = next((path for name in (given, *names) if name and (path := shutil.which(name))), None)
    return Finding(names[0], purpose, found is not None, found or "not found", remedy, True)


def find_package(name: str, purpose: str, remedy: str, *, optional: bool = False) -> Finding:
    """A Python package, by its name on the index."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, purpose, False, "not installed", remedy, optional)
    wanted = PINNED.get(name)
    if wanted is not None and version != wanted:
        return Finding(name, purpose, False, f"{version}, expected {wanted}", remedy, optional)
    return Finding(name, purpose, True, version, "", optional)


def _linker() -> Finding:
    found = shutil.which("ld") or shutil.which("cc") or shutil.which("clang")
    if found is None:
        return Finding("linker", "target llvm", False, "no ld, cc or clang", "apt-get install binutils")
    return Finding("linker", "target llvm", True, found, "")
