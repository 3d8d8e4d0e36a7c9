"""A plan on a device, as an operator on PyTorch tensors: values to bytes and back, results put together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy
import torch
from numpy.typing import NDArray

from tapml.errors import DeviceError, UnsupportedError
from tapml.kernels.plan import Buffer, Plan
from tapml.kernels.residence import key_of
from tapml.kernels.runner import Fault, Input, LoadedPlan
from tapml.lowering.lower import span
from tapml.platform import Execution
from tapml.suite.call import Signature, torch_dtype


class PlanExecutable:
    """See :class:`tapml.platform.Executable`."""

    def __init__(self, loaded: LoadedPlan, plan: Plan, signature: Signature) -> None:
        self._loaded = loaded
        self._arguments = [
            (i, plan.buffers[i], offset, torch_dtype(s.dtype), span(s))
            for i, offset, s in zip(plan.parameters, plan.parameter_offsets, signature.tensors, strict=True)
        ]
        self._buffers = plan.buffers
        self._results = [
            (place, order, spec, torch_dtype(spec.dtype), name.startswith("arg"))
            for place, order, (name, spec) in zip(plan.results, plan.orders, signature.results, strict=True)
        ]

    def run(self, tensors: Sequence[torch.Tensor]) -> Execution:
        """See :class:`tapml.platform.Executable`."""
        parts: dict[int, list[tuple[int, Input]]] = {}
        for position, ((index, buffer, offset, dtype, length), tensor) in enumerate(
            zip(self._arguments, tensors, strict=True)
        ):
            require_memory(tensor, dtype, length)
            flat = tensor.as_strided((length,), (1,), tensor.storage_offset())
            part = Input(encode(flat, buffer, f"argument {position}"), key_of(tensor, flat))
            parts.setdefault(index, []).append((offset, part))
        inputs = {index: _joined(found, self._buffers[index].nbytes) for index, found in parts.items()}
        ran = self._loaded.run(inputs)
        results, faults = [], list(ran.faults)
        for number, (place, order, spec, dtype, mutated) in enumerate(self._results):
            strides = contiguous(spec.shape) if mutated or order is None else ordered(spec.shape, order)
            result = torch.empty_strided(spec.shape, strides, dtype=dtype)
            if place is not None:
                if dtype == torch.bool:
                    faults += unwritten(ran.outputs[place].view(self._buffers[place].memory), number)
                values = decode(ran.outputs[place], self._buffers[place], dtype)
                result.as_strided((spec.numel,), (1,)).copy_(values[: spec.numel])
            results.append(result)
        return Execution(tuple(results), ran.launches, ran.seconds, faults=tuple(faults))


def unwritten(values: NDArray[numpy.generic], number: int) -> tuple[Fault, ...]:
    """Elements of a result of bools that are neither 0 nor 1: what the memory held before, which would pass for true."""
    count = int(((values != 0) & (values != 1)).sum())
    if not count:
        return ()
    text = f"{count} of {values.size} elements of result {number} are neither false nor true: no kernel wrote them"
    return (Fault("unwritten", text),)


def _joined(parts: list[tuple[int, Input]], nbytes: int) -> Input:
    """Parameters that share a buffer, each at its offset in bytes."""
    if len(parts) == 1 and parts[0][0] == 0:
        return parts[0][1]
    whole = numpy.zeros(nbytes, numpy.uint8)
    for offset, part in parts:
        whole[offset : offset + part.data.size] = part.data
    keys = [part.key for _, part in parts]
    return Input(whole, " ".join(keys) if all(keys) else "")


def encode(flat: torch.Tensor, buffer: Buffer, what: str) -> NDArray[numpy.uint8]:
    """The bytes of a one-dimensional tensor in a buffer's memory dtype.

    Raises :class:`UnsupportedError` for a 64-bit integer that the device's 32 bits do not hold; ``what`` names the argument.
    """
    flat = flat.detach()
    if flat.dtype == torch.bfloat16:
        flat = flat.view(torch.int16)
    memory = buffer.memory
    values: NDArray[numpy.generic] = flat.numpy()
    if buffer.dtype == "bfloat16":
        values = values.view(numpy.uint16)
    wanted = numpy.dtype("uint16" if memory == "bfloat16" else memory)
    if values.dtype != wanted:
        if values.dtype.itemsize == 8 and values.size:
            _require_range(values, wanted, what)
        values = values.astype(wanted)
    return numpy.ascontiguousarray(values).view(numpy.uint8).reshape(-1)


def _require_range(values: NDArray[numpy.generic], wanted: numpy.dtype[Any], what: str) -> None:
    limits = numpy.iinfo(wanted)
    low, high = int(values.min()), int(values.max())
    if low < limits.min or high > limits.max:
        raise UnsupportedError(
            f"expected values of {what} between {limits.min} and {limits.max}, as this device has no 64-bit integers; "
            f"found {low if low < limits.min else high}"
        )


def require_representable(plan: Plan, results: Sequence[tuple[str, torch.Tensor]]) -> None:
    """Raises :class:`UnsupportedError` for a 64-bit integer among an operator's right results that the plan's dtypes do not
    hold: no kernel could give it."""
    for place, (name, tensor) in zip(plan.results, results, strict=True):
        if place is not None and not tensor.dtype.is_floating_point and tensor.dtype.itemsize == 8 and tensor.numel():
            memory = numpy.dtype(plan.buffers[place].memory)
            if memory.itemsize < 8:
                _require_range(tensor.detach().numpy(), memory, f"result {name}")


def decode(data: NDArray[numpy.uint8], buffer: Buffer, dtype: torch.dtype) -> torch.Tensor:
    """The values in a buffer's bytes, as a one-dimensional tensor of ``dtype``."""
    memory = buffer.memory
    if dtype == torch.bfloat16:
        bits = data.view("uint16" if memory == "bfloat16" else memory).astype(numpy.uint16)
        return torch.from_numpy(bits.view(numpy.int16)).view(torch.bfloat16)
    values = torch.from_numpy(data.view(memory).copy())
    if dtype == torch.bool:
        return values != 0
    return values.to(dtype)


def require_memory(tensor: torch.Tensor, dtype: torch.dtype, length: int) -> None:
    """What a signature promises of an argument must be there: kernels trust it."""
    if tensor.dtype != dtype or tensor.device.type != "cpu":
        raise DeviceError(f"expected a tensor of {dtype} on the CPU, found {tensor.dtype} on {tensor.device}")
    end = (tensor.storage_offset() + length) * tensor.element_size()
    if end > tensor.untyped_storage().nbytes():
        raise DeviceError(f"expected {end} bytes of storage, found {tensor.untyped_storage().nbytes()}")


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor."""
    return ordered(shape, range(len(shape)))


def ordered(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense tensor whose axes lie in memory in ``order``, the outermost first."""
    return _ordered(tuple(shape), tuple(order))


@lru_cache(maxsize=4096)
def _ordered(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)
