"""Tensors to bytes and back, and the names of bytes that a device may keep."""

from __future__ import annotations

import math

import numpy
import pytest
import torch

from tapml.errors import DeviceError, UnsupportedError
from tapml.kernels.executable import PlanExecutable, contiguous, decode, encode, ordered
from tapml.kernels.plan import Buffer
from tapml.kernels.residence import key_of
from tests.lowering.running import build, opened, record

# what each dtype may be in a device's memory
STORED = {
    torch.float32: ("float32",),
    torch.float16: ("float16",),
    torch.bfloat16: ("bfloat16", "uint16", "uint32"),
    torch.float64: ("float64",),
    torch.bool: ("int8", "int32", "uint8"),
    torch.int8: ("int8", "int32"),
    torch.uint8: ("uint8", "uint32"),
    torch.int16: ("int16", "int32"),
    torch.int32: ("int32",),
    torch.int64: ("int64", "int32"),
}
PAIRS = [(dtype, memory) for dtype, memories in STORED.items() for memory in memories]


def values(dtype: torch.dtype) -> torch.Tensor:
    """The extreme ones, as far as 32 bits hold them."""
    if dtype == torch.bool:
        return torch.tensor([True, False, True])
    if dtype.is_floating_point:
        limits = torch.finfo(dtype)
        special = [0.0, -0.0, 1.5, -2.25, math.inf, -math.inf, math.nan, limits.max, limits.min, limits.tiny]
        return torch.tensor(special, dtype=torch.float64).to(dtype)
    whole = torch.iinfo(dtype if dtype != torch.int64 else torch.int32)
    return torch.tensor([0, 1, whole.max, whole.min], dtype=dtype)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(_bits(a), _bits(b))


def _bits(t: torch.Tensor) -> torch.Tensor:
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()]
    return t.to(torch.int8) if t.dtype == torch.bool else t.contiguous().view(whole)


@pytest.mark.parametrize(("dtype", "memory"), PAIRS, ids=lambda p: str(p).removeprefix("torch."))
@pytest.mark.parametrize("size", ["some", "one", "none"])
def test_there_and_back(dtype: torch.dtype, memory: str, size: str) -> None:
    given = {"some": values(dtype), "one": values(dtype)[2:3], "none": values(dtype)[:0]}[size]
    buffer = Buffer((given.numel(),), str(dtype).removeprefix("torch."), memory)
    data = encode(given, buffer, "argument 0")
    assert data.dtype == numpy.uint8 and data.ndim == 1 and data.size == buffer.nbytes
    assert same(decode(data, buffer, dtype), given)


def test_unwritten_memory_is_no_plausible_value() -> None:
    poison = numpy.full(8, 0xFF, numpy.uint8)
    assert math.isnan(decode(poison, Buffer((2,), "float32"), torch.float32)[0])
    assert math.isnan(decode(poison, Buffer((2,), "bfloat16", "uint32"), torch.bfloat16)[0])
    assert decode(poison, Buffer((2,), "int64", "int32"), torch.int64).tolist() == [-1, -1]


@pytest.mark.parametrize("value", [1 << 31, -(1 << 31) - 1, 1 << 62])
def test_an_integer_of_more_than_32_bits_is_an_error(value: int) -> None:
    flat = torch.tensor([5, value, 6])
    with pytest.raises((DeviceError, UnsupportedError), match=f"argument 3 .*found {value}"):
        encode(flat, Buffer((3,), "int64", "int32"), "argument 3")
    assert encode(flat, Buffer((3,), "int64"), "argument 3").size == 24


def test_through_a_device_it_names_the_argument() -> None:
    call = record("aten.add.Tensor", (torch.tensor([1, 2]), torch.tensor([3, 4])))
    loaded = opened("webgpu:native")[1].load(build(call, "webgpu:native"), call.signature)
    assert loaded.run(call.tensors).results[0].tolist() == [4, 6]
    with pytest.raises(
        (DeviceError, UnsupportedError), match=r"argument 1 between -2147483648 and 2147483647.*4294967296"
    ):
        loaded.run([call.tensors[0], torch.tensor([3, 1 << 32])])


def test_narrowing_is_noted() -> None:
    call = record("aten.add.Tensor", (torch.tensor([1, 2]), torch.tensor([3, 4])))
    assert any("int64 as int32" in note for note in build(call, "webgpu:native").notes)
    assert not any("int64" in note for note in build(call, "opencl:pocl").notes)


@pytest.mark.parametrize("device", ["webgpu:native", "opencl:pocl"])
def test_any_view_of_memory_is_an_argument(device: str) -> None:
    memory = torch.arange(96.0).reshape(8, 12)
    views = (memory[1:7:2, 3::4], memory.t(), memory[:, 5:6].expand(8, 4), memory[3], memory[2, 3], memory[:, ::3].t())
    for view in views:
        call = record("aten.neg.default", (view,))
        execution = opened(device)[1].load(build(call, device), call.signature).run(call.tensors)
        assert torch.equal(execution.results[0], -view)
        assert execution.results[0].stride() == call.results[0][1].stride()


def test_an_argument_that_the_signature_does_not_promise() -> None:
    call = record("aten.neg.default", (torch.ones(8),))
    loaded = opened("webgpu:native")[1].load(build(call, "webgpu:native"), call.signature)
    assert isinstance(loaded, PlanExecutable)
    with pytest.raises(DeviceError, match=r"expected a tensor of torch\.float32"):
        loaded.run([torch.ones(8, dtype=torch.float64)])
    with pytest.raises(DeviceError, match="expected 32 bytes of storage, found 16"):
        loaded.run([torch.ones(4)])


def test_strides() -> None:
    assert contiguous((2, 3, 4)) == (12, 4, 1) and contiguous(()) == ()
    assert ordered((2, 3, 4), (2, 0, 1)) == (3, 1, 6)
    assert contiguous((2, 0, 4)) == torch.empty(2, 0, 4).stride()


# -- what may be kept -------------------------------------------------------------------------------------------------


def key(tensor: torch.Tensor) -> str:
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return key_of(tensor, tensor.detach().as_strided((last + 1,), (1,), tensor.storage_offset()))


def test_a_parameter_has_a_name_until_it_changes() -> None:
    weight = torch.nn.Parameter(torch.randn(100, 100))
    first = key(weight)
    assert first and key(weight) == first
    with torch.no_grad():
        assert key(weight.t()) == first  # the same bytes
        assert key(weight[50:]) != first
        weight.add_(1)
    assert key(weight) not in ("", first)


def test_memory_that_is_used_again_has_another_name() -> None:
    seen = set()
    for _ in range(50):
        weight = torch.nn.Parameter(torch.empty(100, 100))
        assert key(weight) not in seen
        seen.add(key(weight))
        del weight


def test_another_dtype_of_the_same_memory_has_another_name() -> None:
    """They are sent as different bytes: signed ones are extended by their sign."""
    weight = torch.nn.Parameter(torch.full((200, 100), 200, dtype=torch.uint8), requires_grad=False)
    assert key(weight) != key(weight.view(torch.int8)) and key(weight)
    call = record("aten.to.dtype", (weight.detach(), torch.int32))
    signed = record("aten.to.dtype", (weight.detach().view(torch.int8), torch.int32))
    device = opened("webgpu:native")[1]
    executables = [device.load(build(c, "webgpu:native"), c.signature) for c in (call, signed)]
    with torch.no_grad():
        found = [
            e.run([t]).results[0][0, 0] for e, t in zip(executables, (weight, weight.view(torch.int8)), strict=True)
        ]
    assert found == [200, -56]


def test_what_changes_without_notice_has_no_name() -> None:
    array = numpy.ones(8192, numpy.float32)
    call = record("aten.neg.default", (torch.from_numpy(array),))
    loaded = opened("webgpu:native")[1].load(build(call, "webgpu:native"), call.signature)
    shared = torch.from_numpy(array)
    assert loaded.run([shared]).results[0][0] == -1
    array[:] = 5
    assert loaded.run([shared]).results[0][0] == -5


def test_small_tensors_and_results_have_no_name() -> None:
    assert key(torch.nn.Parameter(torch.ones(10))) == "" and key(torch.ones(100, 100)) == ""
    with torch.inference_mode():
        assert key(torch.ones(100, 100)) == ""


def test_a_changed_parameter_is_sent_anew() -> None:
    weight = torch.nn.Parameter(torch.ones(128, 64))
    call = record("aten.neg.default", (weight.detach(),))
    for name in ("webgpu:native", "opencl:pocl", "metal:emulated"):
        loaded = opened(name)[1].load(build(call, name), call.signature)
        before = weight.detach()[0, 0].item()
        assert loaded.run([weight]).results[0][0, 0] == -before == loaded.run([weight]).results[0][0, 0]
        with torch.no_grad():
            weight.mul_(3)
        assert loaded.run([weight]).results[0][0, 0] == -3 * before
