"""Names for the bytes of large tensors that do not change, such as parameters, so that a device may keep them."""

from __future__ import annotations

import itertools

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_FROM_BYTES = 1 << 14
"""Smaller tensors are sent each time: they change more often than not, and cost little."""
_MOST = 4096
_serial = itertools.count()
_known: dict[int, tuple[StorageWeakRef, int]] = {}
"""By the address of a storage: a reference that tells when it is gone, and a number that no other ever had."""


def key_of(tensor: torch.Tensor, flat: torch.Tensor) -> str:
    """A name of the bytes of ``flat``, a view of the whole memory of ``tensor``; empty when they have none.

    It holds the storage's number, the place in it, the dtype (on which it depends what is sent) and PyTorch's count of
    changes.  A change that PyTorch does not count (through ``.data``, NumPy or a pointer) would be missed; so parameters
    only, which no program changes that way while it is evaluated, and which were not made in inference mode, where
    nothing is counted.
    """
    nbytes = flat.numel() * flat.element_size()
    if nbytes < _FROM_BYTES or tensor.is_inference():
        return ""
    base = tensor if tensor._base is None else tensor._base
    if not isinstance(base, torch.nn.Parameter) and not base.requires_grad:
        return ""
    storage = tensor.untyped_storage()
    found = _known.get(storage._cdata)
    if found is None or found[0].expired():  # type: ignore[no-untyped-call]
        if len(_known) >= _MOST:
            _known.clear()
        found = _known[storage._cdata] = (StorageWeakRef(storage), next(_serial))  # type: ignore[no-untyped-call]
    return f"{found[1]}:{tensor.storage_offset()}:{nbytes}:{tensor.dtype}:{tensor._version}"
