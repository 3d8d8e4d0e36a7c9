"""What the metal platform uses of a machine."""

from __future__ import annotations

from tapml.doctor import Finding, find_program


def examine() -> list[Finding]:
    """A C++ compiler for the emulator, and clang for the check of types."""
    return [
        find_program(("g++", "clang++"), "emulating targets metal and cuda", "apt-get install g++", variable="CXX"),
        find_program(
            ("clang-16", "clang-17", "clang-18", "clang-19", "clang-20", "clang-21"),
            "target metal: checking that kernels compile",
            "apt-get install clang-16",
        ),
    ]
