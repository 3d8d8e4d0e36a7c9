"""Whose fault it was: the user's converter, tapml, the kernel, or the machine's."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

import torch

from tapml.carving.classify import same_bits
from tapml.errors import TapmlError
from tapml.lowering.functional import functional_overload
from tapml.lowering.registry import Entry, find, find_schedule
from tapml.suite.call import Signature, resolve_operator

__all__ = ["blames", "described", "own_memory", "require_space", "same_bits", "users_converter", "users_schedule"]

_FULL = (errno.ENOSPC, errno.EDQUOT)
_SPACE = 1 << 20
"""Bytes; with less than that free, a failure is the disk's."""


def users_converter(signature: Signature, target: str) -> Entry | None:
    """The converter or kernel that the user registered for a signature's operator, if any."""
    entry = find(str(functional_overload(resolve_operator(signature.operator))), target)
    return None if entry is None or entry.builtin else entry


def users_schedule(signature: Signature, target: str) -> Entry | None:
    """The schedule that the user registered for a signature's operator, if any."""
    return find_schedule(str(functional_overload(resolve_operator(signature.operator))), target)


def blames(error: BaseException, files: Sequence[str]) -> str:
    """``file.py:12`` of the innermost line of ``files`` that an exception came through; empty when it did not."""
    wanted = {os.path.realpath(f) for f in files}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if os.path.realpath(frame.filename) in wanted:
            return f"{Path(frame.filename).name}:{frame.lineno}"
    return ""


def described(error: BaseException) -> str:
    """``ValueError: what it says`` on one line, whatever its ``__str__`` does."""
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}"[:400] if text else type(error).__name__


def require_space(error: BaseException, cache: Path) -> None:
    """Raise a :class:`TapmlError` if ``error`` came of a full disk: that is no fault of the candidate."""
    folders = [folder for folder in (cache, Path(tempfile.gettempdir())) if folder.is_dir()]
    full = [folder for folder in folders if shutil.disk_usage(folder).free < _SPACE]
    if full or (isinstance(error, OSError) and error.errno in _FULL):
        where = full[0] if full else cache
        raise TapmlError(
            f"the disk is full: no compiled kernel can be kept in {where}",
            hint="free some space, or set TAPML_CACHE and TMPDIR to another disk, and run again with --resume",
        ) from error
    if isinstance(error, OSError) and error.filename and Path(error.filename).is_relative_to(cache):
        raise TapmlError(
            f"cannot keep compiled kernels in {cache}: {error.strerror or error}",
            hint="set TAPML_CACHE to a directory that can be written to",
        ) from error


def own_memory(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of the memory that a tensor spans, seen with the same shape and strides."""
    if not tensor.numel():
        return tensor.clone()
    length = 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    flat = torch.as_strided(tensor.detach(), (length,), (1,), tensor.storage_offset()).clone()
    return torch.as_strided(flat, tensor.shape, tensor.stride())
