"""What the emulator computes, and what it finds wrong, on kernels written by hand."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from typing import get_args

import numpy
import pytest

from tapml.errors import CompileError, UnsupportedError
from tapml.platforms.simt.compile import compile_kernels, library_name
from tapml.platforms.simt.runner import EmulatedRunner
from tapml.platforms.simt.translate import Dialect
from tests.platforms.simt.running import as_inputs, floats, load, run, source

pytestmark = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")
both = pytest.mark.parametrize("dialect", get_args(Dialect))
BARRIER = {"metal": "threadgroup_barrier(mem_flags::mem_threadgroup);", "cuda": "__syncthreads();"}
SHARED = {"metal": "  threadgroup float s[32];\n", "cuda": "  __shared__ alignas(64) float s[32];\n"}


@both
def test_threads_of_several_blocks_each_do_their_part(dialect: Dialect) -> None:
    a = floats(96)
    (got,), ran = run(dialect, "b[g * 32 + x] = a[g * 32 + x] * 2.0f;", [a], [a], blocks=3)
    assert numpy.array_equal(got, a * 2) and ran.launches == 1 and not ran.faults


@both
def test_shared_memory_with_its_barrier(dialect: Dialect) -> None:
    a = floats(64)
    body = SHARED[dialect] + f"  s[x] = a[g * 32 + x];\n  {BARRIER[dialect]}\n  b[g * 32 + x] = s[31 - x];"
    (got,), ran = run(dialect, body, [a], [a], blocks=2)
    assert numpy.array_equal(got, a.reshape(2, 32)[:, ::-1].reshape(-1)) and not ran.faults


@both
def test_without_the_barrier_it_is_a_fault(dialect: Dialect) -> None:
    a = floats(32)
    (got,), ran = run(dialect, SHARED[dialect] + "  s[x] = a[x];\n  b[x] = s[31 - x];", [a], [a])
    (fault,) = ran.faults
    assert fault.code == "order-dependent" and "read what others write only later" in fault.explanation
    assert numpy.isnan(got).any()


@both
@pytest.mark.parametrize(
    "result",
    ["max(max(s[0], s[31]), a[x])", "exp(a[x] - max(s[0], s[31]))", "s[0] + s[31]", "(s[0] > s[31] ? 1.0f : 2.0f)"],
)
def test_without_the_barrier_whatever_is_made_of_it(dialect: Dialect, result: str) -> None:
    a = floats(32)
    _, ran = run(dialect, SHARED[dialect] + f"  s[x] = a[x];\n  b[x] = {result};", [a], [a])
    assert [f.code for f in ran.faults] == ["order-dependent"]


@both
def test_a_race_over_memory_that_was_written(dialect: Dialect) -> None:
    a = floats(32)
    body = SHARED[dialect] + f"  s[x] = a[x];\n  {BARRIER[dialect]}\n  s[x] = s[31 - x];\n  b[x] = s[x];"
    _, ran = run(dialect, body, [a], [a])
    (fault,) = ran.faults
    assert fault.code == "order-dependent" and "result 0: 32 of 32 elements differ, first [0]" in fault.explanation


@both
def test_a_maximum_does_not_hide_what_was_never_written(dialect: Dialect) -> None:
    a = floats(32)
    _, ran = run(dialect, SHARED[dialect] + "  if (x < 31) s[x] = a[x];\n  b[x] = max(a[x], s[31]);", [a], [a])
    assert [f.code for f in ran.faults] == ["uninitialised"]


@both
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("b[x] = a[x + 1];", r"thread \(31, 0, 0\) reads 0 bytes after the end of buffer argument 0 \(128 bytes\)"),
        ("b[x] = a[x - 1];", r"reads 4 bytes before buffer argument 0"),
        ("b[x + 1] = a[x];", r"writes 0 bytes after the end of buffer argument 1"),
        ("b[x - 1] = a[x];", r"writes 4 bytes before buffer argument 1"),
        ("b[x] = a[x + 100000];", r"reads 399872 bytes after the end of buffer argument 0"),
    ],
)
def test_out_of_bounds(dialect: Dialect, body: str, words: str) -> None:
    a = floats(32)
    (got,), ran = run(dialect, body, [a], [a])
    (fault,) = ran.faults
    assert fault.code == "out-of-bounds" and re.search(words, fault.explanation), fault
    assert (got.view(numpy.uint8) == 0xFF).all()


@both
def test_buffers_of_odd_length_are_watched_to_the_byte(dialect: Dialect) -> None:
    a = numpy.arange(7, dtype=numpy.int8)
    (got,), ran = run(dialect, "if (x < 7) b[x] = a[x];", [a], [a])
    assert numpy.array_equal(got, a) and not ran.faults
    _, ran = run(dialect, "if (x < 8) b[x % 7] = a[x];", [a], [a])
    assert "reads 0 bytes after" in ran.faults[0].explanation


@both
def test_beyond_an_array_in_shared_memory(dialect: Dialect) -> None:
    a = floats(32)
    body = SHARED[dialect] + f"  s[x + 1] = a[x];\n  {BARRIER[dialect]}\n  b[x] = s[x];"
    _, ran = run(dialect, body, [a], [a])
    assert "writes 0 bytes after the end of s in shared memory" in ran.faults[0].explanation


@both
def test_inputs_are_not_written(dialect: Dialect) -> None:
    a = floats(32)
    _, ran = run(dialect, "a[x] = 0.0f; b[x] = 1.0f;", [a], [a])
    assert ran.faults[0].code == "writes-input"


@both
def test_what_no_thread_writes(dialect: Dialect) -> None:
    a = floats(32)
    _, ran = run(dialect, "if (x != 5) b[x] = a[x];", [a], [a])
    assert ran.faults[0].code == "uninitialised" and "first [5]" in ran.faults[0].explanation


@both
def test_a_barrier_that_some_do_not_reach(dialect: Dialect) -> None:
    a = floats(32)
    body = SHARED[dialect] + f"  s[x] = a[x];\n  if (x < 20) {{ {BARRIER[dialect]} }}\n  b[x] = s[x];"
    _, ran = run(dialect, body, [a], [a])
    (fault,) = ran.faults
    assert fault.code == "divergent-barrier" and "12 of the block's 32 threads had ended" in fault.explanation


@both
def test_two_barriers_at_once(dialect: Dialect) -> None:
    a = floats(32)
    barrier = BARRIER[dialect]
    _, ran = run(dialect, f"if (x < 20) {{\n{barrier}\n}} else {{\n{barrier}\n}}\n b[x] = a[x];", [a], [a])
    assert "waits at another barrier, line" in ran.faults[0].explanation


@both
def test_division_by_zero_is_a_fault_on_this_processor(dialect: Dialect) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("a processor that traps (x86-64)")
    a = numpy.arange(32, dtype=numpy.int32)
    _, ran = run(dialect, "b[x] = 7 / a[x];", [a], [a])
    assert [f.code for f in ran.faults] == ["division-by-zero"]


@both
def test_more_variables_than_a_thread_has_room_for(dialect: Dialect) -> None:
    a = floats(32)
    fill = "float t[300000]; for (int i = 0; i < 300000; ++i) t[i] = a[i % 32];"
    body = f"{fill}\n{BARRIER[dialect]}\nb[x] = t[a[x] > 9 ? 0 : x];"
    _, ran = run(dialect, body, [a], [a])
    assert ran.faults[0].code == "out-of-memory"


def test_shuffles_of_metal() -> None:
    a = floats(64)
    body = "float v = a[x]; b[x] = simd_shuffle_down(v, 1) + simd_shuffle_up(v, 2) + simd_shuffle(v, 3);"
    (got,), ran = run("metal", body, [a], [a], threads=64)
    lane = numpy.arange(64) % 32
    base = numpy.arange(64) - lane
    down, up = numpy.where(lane < 31, lane + 1, lane), numpy.where(lane >= 2, lane - 2, lane)
    assert numpy.array_equal(got, a[base + down] + a[base + up] + a[base + 3]) and not ran.faults


def test_shuffles_of_cuda() -> None:
    a = floats(64)
    body = (
        "unsigned m = __activemask(); float v = a[x];\n"
        "b[x] = __shfl_down_sync(m, v, 4, 8) + __shfl_xor_sync(0xffffffff, v, 1, 32) + __shfl_sync(m, v, 9, 16);"
    )
    (got,), ran = run("cuda", body, [a], [a], threads=64)
    lane = numpy.arange(64) % 32
    base = numpy.arange(64) - lane
    down = numpy.where(lane % 8 < 4, lane + 4, lane)
    assert numpy.array_equal(got, a[base + down] + a[base + (lane ^ 1)] + a[base + lane // 16 * 16 + 9])
    assert not ran.faults


def test_a_lane_that_does_not_come() -> None:
    a = floats(32)
    body = "float v = a[x];\nif (x < 16) v += __shfl_down_sync(0xffffffff, v, 1, 32);\n__syncthreads();\nb[x] = v;"
    _, ran = run("cuda", body, [a], [a])
    (fault,) = ran.faults
    assert fault.code == "divergent-barrier" and "16 lanes of its mask (lane 16 first) never came" in fault.explanation


def test_dynamic_shared_memory() -> None:
    a = floats(32)
    body = (
        "  extern __shared__ __align__(64) uchar buf[];\n"
        "  ((float*)buf)[x] = a[x];\n  __syncthreads();\n  b[x] = ((float*)buf)[31 - x];"
    )
    text = source("cuda", body, ["float32", "float32"]).replace("#include <cuda.h>", "#define uchar unsigned char")
    (got,), ran = run("cuda", text, [a], [a], shared=128)
    assert numpy.array_equal(got, a[::-1]) and not ran.faults
    _, ran = run("cuda", text, [a], [a], shared=124)
    assert "after the end of buf in shared memory (124 bytes)" in ran.faults[0].explanation


def test_scalars_arrive_in_eight_byte_slots_on_metal() -> None:
    text = (
        "using namespace metal;\nstruct f_args_t { int n[2]; float s[2]; };\n"
        "kernel void f(device float* b [[ buffer(0) ]], constant f_args_t& arg [[ buffer(1) ]],\n"
        "uint blockIdx [[threadgroup_position_in_grid]], uint threadIdx [[thread_position_in_threadgroup]]) {\n"
        "  b[threadIdx] = arg.n[0] + arg.s[0]; }"
    )
    (got,), _ = run("metal", text, [], [floats(32)], scalars=("int32", "float32"), values=(3, 0.5))
    assert (got == 3.5).all()


def test_scalars_of_cuda() -> None:
    text = 'extern "C" __global__ void f(float* __restrict__ b, int n, float s) { b[threadIdx.x] = n + s; }'
    (got,), _ = run("cuda", text, [], [floats(32)], scalars=("int32", "float32"), values=(3, 0.5))
    assert (got == 3.5).all()


@both
@pytest.mark.parametrize("portable", [False, True], ids=["this processor", "portable"])
def test_conversions_of_half(dialect: Dialect, portable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if portable:
        monkeypatch.setattr("tapml.platforms.simt.compile._processor", lambda: ())
    bits = numpy.arange(1 << 16, dtype=numpy.uint16).view(numpy.float16)
    wide = numpy.concatenate([bits.astype(numpy.float32), floats(1 << 15) * 1e-7, floats(1 << 15) * 65500])
    body = "for (int i = x; i < 131072; i += 32) c[i] = (half)b[i];\nfor (int i = x; i < 65536; i += 32) d[i] = (float)a[i];"
    with numpy.errstate(over="ignore"):
        narrow = wide.astype(numpy.float16)
    (c, d), ran = run(dialect, body, [bits, wide], [narrow, bits.astype(numpy.float32)])
    assert numpy.array_equal(c, narrow, equal_nan=True) and not ran.faults
    assert numpy.array_equal(d, bits.astype(numpy.float32), equal_nan=True)


def test_half_arithmetic_rounds_every_operation() -> None:
    a, b = floats(32).astype(numpy.float16), floats(32, 1).astype(numpy.float16)
    (got,), _ = run("metal", "c[x] = a[x] * b[x] + 1.000000e+00h / (a[x] - b[x]);", [a, b], [a])
    assert numpy.array_equal(got, a * b + numpy.float16(1) / (a - b))


def test_vectors_of_metal() -> None:
    a = floats(128)
    body = (
        "float4 v = *(device float4*)(a + x * 4);\nint4 i = int4(x, x + 1, x + 2, x + 3);\n"
        "*(device float4*)(b + x * 4) = select(v * float4(2.0f), max(v, float4(0.0f)) + v[0], v < float4(0.0f)) + float4(i);"
    )
    (got,), ran = run("metal", body, [a], [a])
    v = a.reshape(32, 4)
    steps = (numpy.arange(32)[:, None] + numpy.arange(4)).astype(numpy.float32)
    assert numpy.array_equal(got.reshape(32, 4), numpy.where(v < 0, numpy.maximum(v, 0) + v[:, :1], v * 2) + steps)
    assert not ran.faults


def test_atomics_of_cuda() -> None:
    a = numpy.arange(32, dtype=numpy.int32)
    (got,), ran = run("cuda", "if (x == 0) b[0] = 0;\n__syncthreads();\natomicAdd(&b[0], a[x]);", [a], [a[:1]])
    assert got[0] == a.sum() and not ran.faults


def test_fast_math_has_metals_tanh() -> None:
    a = numpy.resize(numpy.array([0.5, 50, -100], numpy.float32), 32)
    (precise,), _ = run("metal", "b[x] = tanh(a[x]);", [a], [a])
    (fast,), ran = run("metal", "b[x] = tanh(a[x]);", [a], [a], fast_math=True)
    assert numpy.allclose(precise, numpy.tanh(a), rtol=1e-6) and not ran.faults
    assert numpy.array_equal(numpy.isnan(fast), a == 50)


@both
def test_fast_math_does_not_know_nan(dialect: Dialect) -> None:
    a = numpy.resize(numpy.array([numpy.nan, 1], numpy.float32), 32)
    (precise,), _ = run(dialect, "b[x] = a[x] != a[x] ? 1.0f : 0.0f;", [a], [a])
    (fast,), _ = run(dialect, "b[x] = a[x] != a[x] ? 1.0f : 0.0f;", [a], [a], fast_math=True)
    assert numpy.array_equal(precise, numpy.isnan(a)) and not fast.any()


@both
def test_a_source_that_is_none(dialect: Dialect) -> None:
    with pytest.raises(CompileError, match=r"f\.src:\d+:\d+: error: .*nonsense"):
        run(dialect, "b[x] = nonsense(a[x]);", [floats(32)], [floats(32)])


@pytest.mark.parametrize("name", ["nearbyint", "log1p", "erf", "atan2f"])
def test_what_metal_lacks_is_refused(name: str) -> None:
    with pytest.raises(CompileError, match=name):
        run("metal", f"b[x] = {name}(a[x]);", [floats(32)], [floats(32)])


def test_assembly_cannot_be_emulated() -> None:
    with pytest.raises(UnsupportedError, match="assembly"):
        run("cuda", '__asm__ __volatile__("bar.sync 0;"); b[x] = a[x];', [floats(32)], [floats(32)])


def test_a_stored_library_is_used_if_it_is_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    a = floats(32)
    plan, files = (
        load("metal", "b[x] = a[x];", [a], [a])._plan,
        {"f.src": source("metal", "b[x] = a[x];", ["float32"] * 2).encode()},
    )
    files[library_name(False)] = compile_kernels(plan, files, "metal")
    with monkeypatch.context() as patched:
        patched.setattr("tapml.platforms.simt.runner.compile_translation", None)
        ran = EmulatedRunner("metal").load(plan, files).run(as_inputs([a]))
        assert numpy.array_equal(ran.outputs[1].view(numpy.float32), a)
        changed = {**files, "f.src": files["f.src"].replace(b"= a[x]", b"= -a[x]")}
        with pytest.raises(TypeError):
            EmulatedRunner("metal").load(plan, changed)


def test_signal_handlers_are_as_they_were_before() -> None:
    script = """if True:
        import ctypes, faulthandler
        from tests.platforms.simt.running import floats, run
        faulthandler.enable()
        print(run("cuda", "b[x] = a[x + 1];", [floats(32)], [floats(32)])[1])
        ctypes.string_at(0)
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "out-of-bounds" in done.stdout and "Segmentation fault" in done.stderr
