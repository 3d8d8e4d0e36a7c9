"""A recorded tensor: a view of a buffer.  Buffers are what the store keeps, once each, under their content's hash."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch

from tapml.errors import SuiteError, UnsupportedError
from tapml.suite.call import Json, TensorSpec, dtype_name, has_overlap, span
from tapml.suite.pack import ALIGNMENT, CODES

_AS_BITS: dict[torch.dtype, torch.dtype] = {
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
    torch.float8_e4m3fnuz: torch.uint8,
    torch.float8_e5m2fnuz: torch.uint8,
    **{
        getattr(torch, name): torch.uint8
        for name in ("float8_e8m0fnu", "float4_e2m1fn_x2")  # not in every PyTorch that tapml runs with
        if hasattr(torch, name)
    },
}

STORED_AS: dict[torch.dtype, torch.dtype] = {**{dtype: dtype for dtype in CODES.values()}, **_AS_BITS}
"""A tensor's dtype -> the dtype of its buffer: the same, or one that has the same bits and every safetensors knows."""

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
"""Item size in bytes -> a dtype that PyTorch can copy and index, which it cannot with each of the exotic ones."""

DTYPES: dict[str, torch.dtype] = {dtype_name(dtype): dtype for dtype in STORED_AS}
"""Names of all dtypes that a suite can hold."""


@dataclass(frozen=True)
class TensorRecord:
    """``spec`` seen at element ``offset`` of the buffer, in elements of ``spec.dtype``.

    ``packed``: the buffer has the logical values, row-major, with one value along each dimension of stride 0; the
    strides describe the tensor to rebuild, and ``offset`` is 0.
    """

    buffer: str
    spec: TensorSpec
    offset: int = 0
    packed: bool = False

    def to_json(self) -> Json:
        record = {"buffer": self.buffer, **self.spec.to_json(), "offset": self.offset}
        return {**record, "packed": True} if self.packed else record


def buffer_hash(data: torch.Tensor, dtype: torch.dtype) -> str:
    """SHA-256 (hex) of the dtype's name, a zero byte (``float8_e4m3fn`` begins ``float8_e4m3fnuz``), and the bytes."""
    digest = hashlib.sha256(dtype_name(dtype).encode() + b"\0")
    digest.update(data.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def distinct_shape(spec: TensorSpec) -> tuple[int, ...]:
    """``spec.shape`` with extent 1 in place of dimensions along which the values repeat (stride 0)."""
    return tuple(1 if n > 1 and stride == 0 else n for n, stride in zip(spec.shape, spec.strides, strict=True))


def is_sparse_view(spec: TensorSpec) -> bool:
    """Whether the span has elements that the view does not touch, and the view's own can be stored row-major."""
    distinct = distinct_shape(spec)
    return span(spec.shape, spec.strides) != math.prod(distinct) and not has_overlap(distinct, spec.strides)


def check_recordable(tensor: torch.Tensor) -> None:
    """Raise :class:`UnsupportedError` for a tensor that is no plain strided tensor with data."""
    kind = ""
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        kind = f"the tensor subclass {type(tensor).__name__}"
    elif tensor.is_nested:
        kind = "a nested tensor"
    elif tensor.layout != torch.strided:
        kind = f"layout {str(tensor.layout).removeprefix('torch.')}"
    elif tensor.device.type == "meta":
        kind = "a meta tensor"
    elif tensor.dtype not in STORED_AS:
        kind = f"dtype {dtype_name(tensor.dtype)}"
    if kind:
        raise UnsupportedError(
            f"expected a dense tensor with data in a dtype that a suite can hold, found {kind}",
            hint=f"a suite holds {', '.join(sorted(DTYPES))}",
        )


def as_stored(flat: torch.Tensor) -> torch.Tensor:
    """A 1-D tensor, contiguous, on the CPU, in its stored dtype; shares memory with ``flat`` where that is there."""
    stored = STORED_AS[flat.dtype]
    flat = flat.cpu().contiguous().as_strided((flat.numel(),), (1,))  # one element may have any stride
    return flat if flat.dtype == stored else flat.view(stored)


def flatten(tensor: torch.Tensor, spec: TensorSpec) -> tuple[torch.Tensor, bool]:
    """``tensor``, which has the shape and dtype of ``spec`` -> its buffer and whether that is packed.

    The buffer may share memory with the tensor.  Strides are those of ``spec``, whatever the tensor's own are: a copy
    of an expanded tensor is recorded as expanded.
    """
    tensor = tensor.detach()
    lazy = tensor.is_conj() or tensor.is_neg() or torch._is_zerotensor(tensor)
    if spec.numel == 0:
        return as_stored(tensor.new_empty(0)), False
    plain = not lazy and tuple(tensor.stride()) == spec.strides
    if plain and not is_sparse_view(spec):
        return as_stored(tensor.as_strided((span(spec.shape, spec.strides),), (1,))), False
    tensor = tensor.clone() if torch._is_zerotensor(tensor) else tensor.resolve_conj().resolve_neg()
    dtype, tensor = tensor.dtype, tensor.view(_BITS[tensor.itemsize])
    distinct = distinct_shape(spec)
    values = tensor[tuple(slice(n) for n in distinct)] if distinct else tensor
    if has_overlap(distinct, spec.strides):
        base = tensor.new_zeros(span(spec.shape, spec.strides))
        base.index_put_((_offsets(distinct, spec.strides).to(base.device),), values.reshape(-1))
        return as_stored(base.view(dtype)), False
    if is_sparse_view(spec):
        return as_stored(values.reshape(-1).view(dtype)), True
    base = tensor.new_zeros(span(spec.shape, spec.strides))
    base.as_strided(distinct, spec.strides).copy_(values)
    return as_stored(base.view(dtype)), False


def _offsets(shape: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    """``int64[numel]``: the element offset of each index, row-major."""
    offsets = torch.zeros((), dtype=torch.int64)
    for extent, stride in zip(shape, strides, strict=True):
        offsets = offsets.unsqueeze(-1) + torch.arange(extent) * stride
    return offsets.reshape(-1)


def alias_groups(tensors: Sequence[torch.Tensor], written: Sequence[int]) -> list[tuple[int, ...]]:
    """Indices of tensors, grouped by storage, for each storage that one of the ``written`` lives in."""
    groups: dict[int, list[int]] = {}
    for index in sorted(written):
        if tensors[index].numel():
            groups.setdefault(tensors[index].untyped_storage().data_ptr(), [])
    for index, tensor in enumerate(tensors):
        if tensor.numel() and not torch._is_zerotensor(tensor):
            group = groups.get(tensor.untyped_storage().data_ptr())
            if group is not None:
                group.append(index)
    return [tuple(group) for group in groups.values()]


def flatten_group(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, list[int]]:
    """Tensors of one storage -> one buffer with all that any of them touches, and the offset of each, in elements.

    The buffer has the tensors' stored dtype when they agree, else it is ``uint8``.  Raises :class:`UnsupportedError`
    for a lazily conjugated or negated member: its values are not those in the storage.
    """
    if any(t.is_conj() or t.is_neg() for t in tensors):
        raise UnsupportedError(
            "expected the arguments that share storage with a mutated one to be plain views, found a lazy conjugate",
            hint="resolve it in the model with resolve_conj() or resolve_neg()",
        )
    widest = max(t.itemsize for t in tensors)
    begin = min(t.storage_offset() * t.itemsize for t in tensors) // widest * widest
    end = max((t.storage_offset() + span(t.shape, t.stride())) * t.itemsize for t in tensors)
    end += -end % widest
    storage = tensors[0].untyped_storage()
    data = torch.empty(0, dtype=torch.uint8, device=storage.device)
    data = data.set_(storage, begin, (min(end, storage.nbytes()) - begin,), (1,)).cpu()
    if data.numel() < end - begin:
        data = torch.cat([data, data.new_zeros(end - begin - data.numel())])
    offsets = [int(t.storage_offset()) - begin // t.itemsize for t in tensors]
    dtypes = {STORED_AS[t.dtype] for t in tensors}
    if len(dtypes) == 1:
        dtype = dtypes.pop()
        data = (data.clone() if data.data_ptr() % dtype.itemsize or begin % dtype.itemsize else data).view(dtype)
    return data, offsets


def view_buffer(data: torch.Tensor, record: TensorRecord) -> torch.Tensor:
    """The recorded tensor as a view of the buffer's bytes (``uint8``), which :mod:`tapml.suite.manifest` has checked.

    A packed one is rebuilt in memory of its own, with zeros between its elements.  Raises :class:`SuiteError` when
    there is no memory for that.
    """
    spec, dtype = record.spec, DTYPES[record.spec.dtype]
    if spec.numel == 0:
        return torch.empty_strided(spec.shape, spec.strides, dtype=dtype)
    if not record.packed:
        flat = data.view(dtype)
        return flat.as_strided(spec.shape, spec.strides, flat.storage_offset() + record.offset)
    distinct, bits = distinct_shape(spec), _BITS[dtype.itemsize]
    base = _lazy_zeros(span(spec.shape, spec.strides) * dtype.itemsize).view(bits)
    base.as_strided(distinct, spec.strides).copy_(data.view(bits).view(distinct))
    return base.as_strided(spec.shape, spec.strides).view(dtype)


def _lazy_zeros(size: int) -> torch.Tensor:
    """``uint8[size]``, aligned; pages that nobody touches take no memory (a small view of a huge storage)."""
    try:
        memory = numpy.zeros(size + ALIGNMENT, dtype=numpy.uint8)
    except (MemoryError, ValueError) as error:
        raise SuiteError(f"expected a tensor that fits in memory, found a view that spans {size} bytes") from error
    start = -memory.ctypes.data % ALIGNMENT
    return torch.from_numpy(memory[start : start + size])
