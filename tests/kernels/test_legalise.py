"""What a language lacks, put into what it has: dtypes, NaN and infinity, names, loads, selections."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest
import torch
from tvm import te, tirx

from tapml.errors import UnsupportedError
from tapml.kernels.legalise.reductions import LARGEST
from tests.kernels.making import MODULES, dialect_of, execute, text, written
from tests.lowering.running import build, record, run_any

GPU = ("webgpu:native", "vulkan:lavapipe", "opencl:pocl", "metal:emulated", "cuda:emulated")
nan, inf = math.nan, math.inf


def elementwise(device: str, function: Any, *arrays: Any, dtype: str | None = None) -> Any:
    """``function`` of the elements of arrays, on a device; ``dtype``: of the result."""
    given = [numpy.asarray(a) for a in arrays]
    inputs = [te.placeholder(a.shape, str(a.dtype), name=f"x{i}") for i, a in enumerate(given)]
    out = te.compute(given[0].shape, lambda *at: function(*(x[at] for x in inputs)), name="out")
    (found,) = execute(device, written(device.split(":")[0], inputs, [out]), *given)
    return found.astype(dtype or str(out.dtype))


# -- integers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("device", ["webgpu:native", "opencl:pocl"])
def test_narrow_integers_wrap_around(device: str, dtype: str) -> None:
    limits = numpy.iinfo(dtype)
    a = numpy.array([limits.max, limits.min, limits.max, 5, limits.min], dtype)
    b = numpy.array([1, 1, limits.max, 7, limits.max], dtype)
    with numpy.errstate(over="ignore"):
        for function in (lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y):
            assert numpy.array_equal(elementwise(device, function, a, b), function(a, b))


def test_what_wraps_in_the_middle_is_seen_by_what_follows() -> None:
    a = numpy.array([127, 100, -128, 3], "int8")
    with numpy.errstate(over="ignore"):
        expected = (a + numpy.int8(1) > numpy.int8(0)).astype("int32")
    one, zero = tirx.const(1, "int8"), tirx.const(0, "int8")
    found = elementwise("webgpu:native", lambda x: tirx.Cast("int32", x + one > zero), a)
    assert numpy.array_equal(found, expected)
    found = elementwise("webgpu:native", lambda x: tirx.Cast("int32", zero - x < zero), a)
    assert numpy.array_equal(found, [1, 1, 1, 1])


@pytest.mark.parametrize("device", GPU)
def test_selections_between_a_narrow_integer_and_a_sum(device: str) -> None:
    a, b = numpy.array([5, -7, -128], "int8"), numpy.array([1, 2, 3], "int8")
    found = elementwise(device, lambda x, y: tirx.Select(x > y, x + y, y), a, b)
    assert found.tolist() == [6, 2, 3]


@pytest.mark.parametrize("target", MODULES)
def test_a_bool_in_memory_is_an_integer(target: str) -> None:
    x, y = (te.placeholder((4,), "float32", name=n) for n in "xy")
    plan, _ = written(target, [x, y], [te.compute((4,), lambda i: x[i] > y[i], name="out")])
    (kernel,) = plan.kernels.values()
    stored = {b.dtype: b.memory for b in plan.buffers}["bool"]
    assert stored == ("int32" if target == "webgpu" else "int8") and stored in kernel.pointers


@pytest.mark.parametrize("device", GPU)
def test_truth_is_one_and_zero(device: str) -> None:
    a = numpy.array([2.0, 0.0, nan, -0.0], "float32")
    assert elementwise(device, lambda x: x != tirx.const(0, "float32"), a).tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("value", [1 << 31, 1 << 40])
def test_a_constant_of_more_than_32_bits_is_refused_by_name(value: int) -> None:
    x = te.placeholder((4,), "int64", name="x")
    out = te.compute((4,), lambda i: x[i] + tirx.const(value, "int64"), name="out")
    with pytest.raises(
        UnsupportedError, match=f"the constant {value} does not fit into 32 bits, and webgpu has no int64"
    ):
        written("webgpu", [x], [out])
    assert f"{value}" in text(written("opencl", [x], [out]))


@pytest.mark.parametrize("value", [(1 << 63) - 1, -(1 << 63)])
def test_the_limits_of_64_bits_are_constants_too(value: int) -> None:
    x = te.placeholder((4,), "int64", name="x")
    limit, zero = tirx.const(value, "int64"), tirx.const(0, "int64")
    out = te.compute((4,), lambda i: tirx.Select(x[i] > zero, limit, x[i]), name="out")
    with pytest.raises(UnsupportedError, match=f"the constant {value} does not fit into 32 bits"):
        written("webgpu", [x], [out])


@pytest.mark.parametrize("begin", [te.max, te.min])
def test_a_reduction_may_begin_at_the_limits_of_64_bits(begin: Any) -> None:
    k = te.reduce_axis((0, 5), name="k")
    a = numpy.array([[7, -3, 9, -(1 << 31), 0], [1, 1, 1, 1, 1]], "int64")
    x = te.placeholder((2, 5), "int64", name="x")
    out = te.compute((2,), lambda i: begin(x[i, k], axis=k), name="out")
    (found,) = execute("webgpu:native", written("webgpu", [x], [out]), a)
    assert found.tolist() == (a.max(1) if begin is te.max else a.min(1)).tolist()


def test_the_least_of_32_bits_can_be_added() -> None:
    """TVM makes a subtraction of 2**31 of it, which is no constant of 32 bits."""
    a = numpy.array([0, (1 << 31) - 1], "int64")
    assert elementwise("webgpu:native", lambda x: x + tirx.const(-(1 << 31), "int64"), a).tolist() == [-(1 << 31), -1]


def test_quotients_of_narrow_integers_stay_narrow() -> None:
    a = numpy.array([-128, -127, 8], "int8")
    found = elementwise("webgpu:native", lambda x: tirx.Div(x, tirx.const(-1, "int8")) < tirx.const(0, "int8"), a)
    assert found.tolist() == [1, 0, 1]  # the first is -128 again


@pytest.mark.parametrize("value", [(1 << 31) - 1, -(1 << 31)])
def test_the_last_constants_of_32_bits_are_taken(value: int) -> None:
    zero, constant = tirx.const(0, "int64"), tirx.const(value, "int64")
    found = elementwise("webgpu:native", lambda x: tirx.Select(x > zero, constant, x), numpy.array([0, 1], "int64"))
    assert found.tolist() == [0, value]


@pytest.mark.parametrize("target", ["webgpu", "metal"])
def test_float64_is_refused_where_there_is_none(target: str) -> None:
    x = te.placeholder((4,), "float64", name="x")
    with pytest.raises(UnsupportedError, match=f"{target} has no float64"):
        written(target, [x], [te.compute((4,), lambda i: x[i] + x[i], name="out")])
    assert "double" in text(written("cuda", [x], [te.compute((4,), lambda i: x[i] + x[i], name="out")]))


def test_float64_through_the_platform_is_refused_too() -> None:
    with pytest.raises(UnsupportedError, match="webgpu has no float64"):
        build(record("aten.neg.default", (torch.ones(3, dtype=torch.float64),)), "webgpu:native")


# -- NaN and infinity -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", [*GPU, "metal:emulated-fast"])
def test_extremes_and_tests_for_nan(device: str) -> None:
    a = numpy.array([1, nan, nan, 2, -inf, inf], "float32")
    b = numpy.array([nan, 1, nan, 3, inf, inf], "float32")
    with numpy.errstate(invalid="ignore"):
        assert numpy.array_equal(elementwise(device, tirx.Max, a, b), numpy.maximum(a, b), equal_nan=True)
        assert numpy.array_equal(elementwise(device, tirx.Min, a, b), numpy.minimum(a, b), equal_nan=True)
    assert numpy.array_equal(elementwise(device, lambda x, y: x != y, a, b), a != b)
    assert numpy.array_equal(elementwise(device, tirx.isnan, a), numpy.isnan(a))
    assert numpy.array_equal(
        elementwise(device, lambda x: tirx.abs(x).equal(tirx.const(inf, "float32")), a), numpy.isinf(a)
    )


@pytest.mark.parametrize("device", GPU)
def test_constants_have_all_their_digits(device: str) -> None:
    a = numpy.array([1, 0, -3], "float32")
    for value in (0.123456789, -0.1, 16777215.0, 123456789.0, 1.17549435e-38, -LARGEST, math.pi, 1 / 3, 1e-20):
        constant = numpy.float32(value)
        found = elementwise(device, lambda x: x * tirx.const(value, "float32"), a)  # noqa: B023
        with numpy.errstate(over="ignore"):
            assert numpy.array_equal(found, a * constant), value


@pytest.mark.parametrize("device", ["opencl:pocl", "cuda:emulated"])
def test_float64_has_its_digits_and_its_nan(device: str) -> None:
    a = numpy.array([1, nan, 3], "float64")
    assert numpy.array_equal(elementwise(device, lambda x: x * tirx.const(1 / 3, "float64"), a), a / 3, equal_nan=True)
    assert elementwise(device, tirx.isnan, a).tolist() == [False, True, False]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_infinity_and_nan_as_constants(dtype: str) -> None:
    a = numpy.array([1, -1, 0], dtype)

    def function(x: Any) -> Any:
        zero = tirx.const(0, dtype)
        below = tirx.Select(x < zero, tirx.const(-inf, dtype), tirx.const(nan, dtype))
        return tirx.Select(x > zero, tirx.const(inf, dtype), below)

    for device in ("webgpu:native", "vulkan:lavapipe", "metal:emulated"):
        assert numpy.array_equal(elementwise(device, function, a), numpy.array([inf, -inf, nan], dtype), equal_nan=True)


def reduced(device: str, rows: Any, function: Any, identity: float) -> Any:
    """Rows reduced by a combiner as converters write it, which begins at ``identity``."""
    x = te.placeholder(rows.shape, "float32", name="x")
    along = te.reduce_axis((0, rows.shape[1]), name="k")
    reducer = te.comm_reducer(function, lambda dtype: tirx.const(identity, dtype), name="extreme")
    out = te.compute((rows.shape[0],), lambda i: reducer(x[i, along], axis=along), name="out")
    made = written(device.split(":")[0], [x], [out])
    return execute(device, made, rows)[0], made


def largest(a: Any, b: Any) -> Any:
    return tirx.Select(tirx.Or(a > b, tirx.isnan(a)), a, b)


@pytest.mark.parametrize("device", ["webgpu:native", "opencl:pocl", "metal:emulated"])
@pytest.mark.parametrize("shape", [(3, 300), (700, 70), (2, 5)])
def test_a_row_of_minus_infinity_has_that_maximum(device: str, shape: tuple[int, int]) -> None:
    rows = numpy.full(shape, -inf, numpy.float32)
    rows[1] = -LARGEST
    rows[-1, -1] = nan
    found, made = reduced(device, rows, largest, -inf)
    assert found[0] == -inf and numpy.isnan(found[-1])
    assert shape[0] == 2 or found[1] == numpy.float32(-LARGEST)
    if shape[1] == 300:
        assert made[0].kernels["kernel_kernel"].block[0] > 1, "not shared between threads"


def test_the_largest_float_as_a_constant_stays_itself() -> None:
    x = te.placeholder((3, 300), "float32", name="x")
    along = te.reduce_axis((0, 300), name="k")
    reducer = te.comm_reducer(largest, lambda dtype: tirx.const(-inf, dtype), name="extreme")
    best = te.compute((3,), lambda i: reducer(x[i, along], axis=along), name="best")
    clipped = te.compute((3,), lambda i: tirx.Max(best[i], tirx.const(-LARGEST, "float32")), name="out")
    rows = numpy.full((3, 300), -inf, numpy.float32)
    rows[2, 7] = 5
    (found,) = execute("webgpu:native", written("webgpu", [x], [clipped]), rows)
    assert found.tolist() == [numpy.float32(-LARGEST), numpy.float32(-LARGEST), 5]


# -- names ------------------------------------------------------------------------------------------------------------

NAMES = ("storage", "override", "fn", "var", "kernel", "half", "global", "device", "let", "float", "f32", "select", "max",
         "abs", "floor", "exp", "tanh", "tapml_tanh", "threadIdx", "blockIdx", "x", "t0", "ptr", "main")  # fmt: skip


@pytest.mark.parametrize("device", GPU)
def test_words_of_the_language_as_names(device: str) -> None:
    """As parameters, as an intermediate array, as the result, and as the variable of a loop, beside what they stand for."""
    target = device.split(":")[0]
    a = numpy.array([[-1.5, 0.25], [2, 100]], "float32")
    for first in range(0, len(NAMES), 4):
        one, two, three, four = NAMES[first : first + 4]
        x, y = te.placeholder((2, 2), "float32", name=one), te.placeholder((2, 2), "float32", name=two)
        along = te.reduce_axis((0, 2), name=four)
        total = te.compute((2,), lambda i: te.sum(x[i, along], axis=along), name=four)  # noqa: B023
        half = te.compute((2, 2), lambda i, j: tirx.tanh(tirx.Max(x[i, j], tirx.abs(y[i, j]))) + tirx.exp(-x[i, j])  # noqa: B023
                          + tirx.floor(tirx.Cast("float32", tirx.Cast("float16", y[i, j]))), name=four)  # noqa: B023 # fmt: skip
        out = te.compute((2, 2), lambda i, j: half[i, j] + total[i], name=three)  # noqa: B023
        if device == "opencl:pocl":  # which has no half precision
            out = te.compute((2, 2), lambda i, j: tirx.tanh(tirx.Max(x[i, j], tirx.abs(y[i, j]))) + tirx.exp(-x[i, j])  # noqa: B023
                             + tirx.floor(y[i, j]) + total[i], name=three)  # noqa: B023 # fmt: skip
        (found,) = execute(device, written(target, [x, y], [out]), a, a)
        exact = numpy.tanh(abs(a)) + numpy.exp(-a) + numpy.floor(a) + a.sum(1, keepdims=True)
        assert numpy.allclose(found, exact, rtol=1e-6), NAMES[first : first + 4]


def test_reserved_words_are_renamed_in_the_source() -> None:
    x = te.placeholder((4,), "float32", name="storage")
    source = text(written("webgpu", [x], [te.compute((4,), lambda i: x[i] * 2.0, name="override")]))
    assert "storage_" in source and "override_" in source


# -- loads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["vulkan:lavapipe", "opencl:pocl"])
def test_one_of_two_buffers_under_a_condition(device: str) -> None:
    """clspv crashes on it; and neither buffer has the elements that belong to the other."""
    x, y = te.placeholder((3,), "float32", name="x"), te.placeholder((5,), "float32", name="y")
    out = te.compute((8,), lambda i: tirx.if_then_else(i < 3, x[i], y[i - 3]), name="out")
    a, b = numpy.arange(3, dtype="float32"), numpy.arange(10, 15, dtype="float32")
    (found,) = execute(device, _vulkan(device, [x, y], [out]), a, b)
    assert found.tolist() == [0, 1, 2, 10, 11, 12, 13, 14]


def _vulkan(device: str, inputs: list[Any], outputs: list[Any]) -> Any:
    """With the dialect of the vulkan platform, which is OpenCL C without conditional loads."""
    if not device.startswith("vulkan"):
        return written(device.split(":")[0], inputs, outputs)
    from tapml.kernels.device_code import generate
    from tapml.kernels.gpu_schedule import Threads
    from tapml.kernels.plan import Buffer, Plan, Step
    from tapml.platform import find_platform
    from tapml.platforms.vulkan.platform import _DIALECT

    function = te.create_prim_func([*inputs, *outputs])
    buffers = tuple(Buffer(tuple(int(d) for d in t.shape), str(t.dtype)) for t in (*inputs, *outputs))
    places = tuple(range(len(buffers)))
    n = len(inputs)
    plan = Plan(buffers, places[:n], (Step("kernel", places),), places[n:], (None,) * len(outputs))
    return generate({"kernel": function}, plan, _DIALECT, find_platform("vulkan").target(), Threads())


def test_cat_of_many_on_vulkan() -> None:
    parts = [torch.arange(float(n * 2)).reshape(n, 2) for n in range(1, 6)]
    ran = run_any(record("aten.cat.default", (parts,)), "vulkan:lavapipe")
    assert ran.right, ran.verdict.explanation


def test_dialects_say_what_they_are() -> None:
    for target in MODULES:
        dialect = dialect_of(target)
        assert dialect.memory <= dialect.values and "bool" not in dialect.memory
        assert {"float32", "int32", "bool"} <= dialect.values


def test_the_largest_float_is_not_rounded_up() -> None:
    """3.4028235e+38 is what it reads as, and no float32: Chromium's compiler refuses that."""
    x = te.placeholder((4,), "float32", name="x")
    source = text(
        written("webgpu", [x], [te.compute((4,), lambda i: x[i] * tirx.const(LARGEST, "float32"), name="out")])
    )
    assert "3.4028234663852886e+38f" in source
