"""The functions that tapml writes itself: accurate to a few units in the last place, and source in every language."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy
import pytest
import torch
from numpy.typing import NDArray

from tapml.kernels.mathlib.functions import FUNCTIONS, arity, called
from tapml.kernels.mathlib.text import CUDA, METAL, OPENCL, WGSL, Library, Syntax
from tapml.platforms.simt.check_msl import check_msl
from tests.lowering.running import opened

Floats = NDArray[numpy.float32]
SHIM = """#include <math.h>
#include <string.h>
#define __device__
static inline int __float_as_int(float x) { int i; memcpy(&i, &x, 4); return i; }
static inline unsigned __float_as_uint(float x) { unsigned i; memcpy(&i, &x, 4); return i; }
static inline float __int_as_float(int x) { float i; memcpy(&i, &x, 4); return i; }
static inline float __uint_as_float(unsigned x) { float i; memcpy(&i, &x, 4); return i; }
"""
LARGEST = 3.4028234663852886e38
SPECIAL = numpy.array(
    [0, -0.0, numpy.inf, -numpy.inf, numpy.nan, 1, -1, 1e-40, -1e-40, LARGEST, -LARGEST, 0.5, 2, 3, -3, 1e-45, 2**-126],
    numpy.float32,
)
POINTS = 20_000


def library(syntax: Syntax) -> str:
    made = Library(syntax)
    for name, function in FUNCTIONS.items():
        made.require(called(name), function, arity(name))
    return made.source()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder: Path = tmp_path_factory.mktemp("mathlib")
    entries = [
        f'extern "C" void run_{called(name)}(int n, float* x, float* y, float* o) '
        f"{{ for (int i = 0; i < n; i++) o[i] = {called(name)}({'x[i]' if arity(name) == 1 else 'x[i], y[i]'}); }}\n"
        for name in FUNCTIONS
    ]
    (folder / "lib.cc").write_text(SHIM + library(CUDA) + "".join(entries))
    made = folder / "lib.so"
    subprocess.run(
        [compiler, "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-o", str(made), str(folder / "lib.cc")], check=True
    )
    return ctypes.CDLL(str(made))


def computed(compiled: ctypes.CDLL, name: str, x: Floats, y: Floats) -> Floats:
    out = numpy.empty_like(x)
    pointers = [numpy.ascontiguousarray(a).ctypes.data_as(ctypes.POINTER(ctypes.c_float)) for a in (x, y, out)]
    getattr(compiled, f"run_tapml_{name}")(len(x), *pointers)
    return out


def uniform(low: float, high: float, seed: int = 0) -> Floats:
    values = numpy.random.default_rng(seed).uniform(low, high, POINTS).astype(numpy.float32)
    return numpy.concatenate([values, SPECIAL])


def magnitudes(seed: int = 0) -> Floats:
    """Of both signs and all exponents."""
    random = numpy.random.default_rng(seed)
    values = 2.0 ** random.uniform(-126, 127, POINTS) * random.choice([-1, 1], POINTS)
    return numpy.concatenate([values.astype(numpy.float32), SPECIAL])


@dataclass(frozen=True)
class Case:
    """Where a function of one argument is tried, and how far from the exact value it may be, in units in the last place."""

    ulp: float
    points: Callable[[], Floats]
    exact: Callable[[torch.Tensor], torch.Tensor] | None = None


def both(*parts: Floats) -> Floats:
    return numpy.concatenate(parts)


CASES = {
    "exp": Case(1.2, lambda: uniform(-104, 89)),
    "exp2": Case(1.2, lambda: uniform(-150, 128)),
    "exp10": Case(1.3, lambda: uniform(-46, 39), lambda x: 10**x),
    "log": Case(1.0, lambda: both(magnitudes(), uniform(0.5, 2))),
    "log2": Case(2.0, lambda: both(magnitudes(), uniform(0.5, 2))),
    "log10": Case(2.0, lambda: both(magnitudes(), uniform(0.5, 2))),
    "log1p": Case(2.5, lambda: both(uniform(-1, 3), magnitudes())),
    "tanh": Case(1.5, lambda: both(uniform(-3, 3), magnitudes())),
    "erf": Case(3.0, lambda: both(uniform(-4, 4), magnitudes())),
    "sinh": Case(2.0, lambda: both(uniform(-90, 90), uniform(-2, 2), magnitudes())),
    "cosh": Case(2.0, lambda: both(uniform(-90, 90), magnitudes())),
    "sin": Case(8.0, lambda: both(uniform(-10, 10), uniform(-2000, 2000), uniform(-2e5, 2e5))),
    "cos": Case(8.0, lambda: both(uniform(-10, 10), uniform(-2000, 2000), uniform(-2e5, 2e5))),
    "tan": Case(8.0, lambda: both(uniform(-10, 10), uniform(-2000, 2000))),
    "atan": Case(3.0, lambda: both(uniform(-10, 10), magnitudes())),
    "asin": Case(4.0, lambda: uniform(-1, 1)),
    "acos": Case(2.5, lambda: uniform(-1, 1)),
    "asinh": Case(3.0, lambda: both(uniform(-10, 10), magnitudes())),
    "acosh": Case(3.0, lambda: both(uniform(1, 10), magnitudes())),
    "rsqrt": Case(2.0, magnitudes),
}
# the places where the argument is nearest to a multiple of pi / 2, relative to it
NEAR_MULTIPLES = numpy.array([1.5707964, 3.1415927, 4.712389, 355, 710, 52174, 33 * 3.1415927, 103993], numpy.float32)


def require(found: Floats, exact: NDArray[numpy.float64], ulp: float, arguments: str) -> None:
    with numpy.errstate(over="ignore", invalid="ignore"):
        rounded = exact.astype(numpy.float32)
    wrong = (numpy.isnan(found) != numpy.isnan(rounded)) | (numpy.isinf(found) != numpy.isinf(rounded))
    wrong |= numpy.isinf(rounded) & (numpy.sign(found) != numpy.sign(rounded))
    wrong |= (rounded == 0) & (found == 0) & (numpy.signbit(found) != numpy.signbit(rounded))
    assert not wrong.any(), (
        f"{arguments}: {found[wrong][:5]} where {rounded[wrong][:5]} is right, at {wrong.nonzero()[0][:5]}"
    )
    finite = numpy.isfinite(rounded) & (abs(rounded) < LARGEST)
    unit = numpy.maximum(numpy.spacing(abs(rounded[finite])).astype(float), 2.0**-149)
    errors = abs(found[finite] - exact[finite]) / unit
    worst = int(errors.argmax())
    assert errors[worst] <= ulp, f"{arguments}: {errors[worst]:.2f} ulp at {found[finite][worst]}"


def test_every_function_is_tried() -> None:
    assert {f"tirx.{name}" for name in (*CASES, "pow", "atan2", "fmod")} == set(FUNCTIONS)


@pytest.mark.parametrize("name", CASES)
def test_of_one_argument(compiled: ctypes.CDLL, name: str) -> None:
    case = CASES[name]
    x = case.points()
    if name in ("sin", "cos"):
        x = both(x, NEAR_MULTIPLES, -NEAR_MULTIPLES)
    exact = (case.exact or getattr(torch, name))(torch.from_numpy(x).double()).numpy()
    require(computed(compiled, name, x, x), exact, case.ulp, name)


def pairs(*parts: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """The pairs given, and every pair of special values."""
    x = both(*(p[0] for p in parts), numpy.repeat(SPECIAL, len(SPECIAL)))
    y = both(*(p[1] for p in parts), numpy.tile(SPECIAL, len(SPECIAL)))
    return x, y


def test_power(compiled: ctypes.CDLL) -> None:
    whole = numpy.round(uniform(-5, 5, 2))
    x, y = pairs((abs(magnitudes()), uniform(-2, 2, 1)), (uniform(0, 10), uniform(-30, 30, 1)), (uniform(-5, 5), whole))
    require(computed(compiled, "pow", x, y), torch.pow(*map(_double, (x, y))).numpy(), 1.5, "pow")


def test_angle(compiled: ctypes.CDLL) -> None:
    x, y = pairs((magnitudes(1), magnitudes(2)), (uniform(-10, 10), uniform(-10, 10, 1)))
    require(computed(compiled, "atan2", x, y), torch.atan2(*map(_double, (x, y))).numpy(), 4.0, "atan2")


def test_remainders_are_exact(compiled: ctypes.CDLL) -> None:
    x, y = pairs(
        (magnitudes(1), magnitudes(2)), (uniform(-100, 100), uniform(-3, 3, 1)), (uniform(0, 1e6), uniform(0, 1))
    )
    with numpy.errstate(all="ignore"):
        near = ~(abs(x / y) > 2.0**60)  # beyond, it is documented to be wrong
    x, y = x[near], y[near]
    require(computed(compiled, "fmod", x, y), torch.fmod(*map(_double, (x, y))).numpy(), 0.0, "fmod")


def _double(values: Floats) -> torch.Tensor:
    return torch.from_numpy(values).double()


def test_wgsl_is_taken() -> None:
    runner = opened("webgpu:native")[1].runner  # type: ignore[attr-defined]
    calls = "".join(
        f"  a[{i}] = {called(name)}(a[0]{', a[1]' if arity(name) == 2 else ''});\n" for i, name in enumerate(FUNCTIONS)
    )
    source = (
        f"{library(WGSL)}\n@group(0) @binding(0) var<storage, read_write> a: array<f32>;\n"
        f"@compute @workgroup_size(1) fn main() {{\n{calls}}}\n"
    )
    runner._device.create_shader_module(code=source)
    with pytest.raises(Exception, match="tapml_missing"):
        runner._device.create_shader_module(code=source.replace("= tapml_exp(", "= tapml_missing(", 1))


def test_opencl_c_is_taken() -> None:
    runner = opened("opencl:pocl")[1].runner  # type: ignore[attr-defined]
    import pyopencl

    pyopencl.Program(runner._context, library(OPENCL)).build(["-cl-std=CL1.2", "-Werror"])


def test_metal_is_taken() -> None:
    checked = check_msl(f"#include <metal_stdlib>\nusing namespace metal;\n{library(METAL)}")
    if checked.status == "not checked":
        pytest.skip(checked.message)
    assert checked.status == "compiles", checked.message
