"""How the directory of a suite is told from others, for those who must not import PyTorch to find out."""

from __future__ import annotations

from pathlib import Path

FORMAT = "tapml-suite"
MANIFEST = "manifest.json"


def is_suite(directory: Path) -> bool:
    """Whether there is a manifest which, damaged or not, says that this is a suite (of any version)."""
    try:
        text = (directory / MANIFEST).read_bytes()
    except OSError:
        return False
    return f'"format":"{FORMAT}"'.encode() in b"".join(text.split())


def looks_like_suite(directory: Path) -> bool:
    """Whether somebody who names this directory means a suite: one with a damaged manifest is told by its packs."""
    if is_suite(directory):
        return True
    return (directory / MANIFEST).is_file() and any(directory.glob("tensors/pack-*.safetensors"))
