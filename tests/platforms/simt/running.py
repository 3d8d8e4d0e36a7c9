"""Kernels written by hand, executed by the emulator."""

from __future__ import annotations

import numpy
from numpy.typing import NDArray

from tapml.kernels.plan import Buffer, Kernel, Plan, Step
from tapml.kernels.runner import Input, Ran
from tapml.platforms.simt.runner import EmulatedPlan, EmulatedRunner
from tapml.platforms.simt.translate import Dialect

Array = NDArray[numpy.generic]

METAL = """#include <metal_stdlib>
using namespace metal;
kernel void f({arguments}
  uint blockIdx [[threadgroup_position_in_grid]], uint threadIdx [[thread_position_in_threadgroup]]) {{
{body}
}}
"""
CUDA = """#include <cuda.h>
extern "C" __global__ void __launch_bounds__(1024) f({arguments});
extern "C" __global__ void __launch_bounds__(1024) f({arguments}) {{
{body}
}}
"""
TYPES = {
    "float32": "float",
    "float16": "half",
    "int32": "int",
    "int64": "long",
    "int8": "signed char",
    "uint8": "uchar",
}


def source(dialect: Dialect, body: str, dtypes: list[str]) -> str:
    """A kernel ``f`` with arguments a, b, c... of these types; ``body`` says x for the thread and g for the block."""
    names = [f"{TYPES[d]}*{' __restrict__' if dialect == 'cuda' else ''} {'abcdef'[n]}" for n, d in enumerate(dtypes)]
    if dialect == "metal":
        arguments = "".join(f"device {name} [[ buffer({n}) ]],\n" for n, name in enumerate(names))
        start = "  const int x = threadIdx, g = blockIdx;\n"
    else:
        names = [name.replace("uchar", "unsigned char") for name in names]
        arguments, start = ", ".join(names), "  const int x = threadIdx.x, g = blockIdx.x;\n"
    return (METAL if dialect == "metal" else CUDA).format(arguments=arguments, body=start + body)


def load(
    dialect: Dialect,
    body: str,
    inputs: list[Array],
    results: list[Array],
    *,
    threads: int = 32,
    blocks: int = 1,
    shared: int = 0,
    fast_math: bool = False,
    scalars: tuple[str, ...] = (),
    values: tuple[int | float, ...] = (),
) -> EmulatedPlan:
    """A plan of one launch: inputs are read, results written. ``results`` give shapes and dtypes."""
    arrays = [*inputs, *results]
    buffers = tuple(Buffer(a.shape, str(a.dtype)) for a in arrays)
    writes = (False,) * len(inputs) + (True,) * len(results)
    kernel = Kernel("f", "f.src", tuple(b.dtype for b in buffers), writes, scalars, (threads, 1, 1), shared)
    places = tuple(range(len(arrays)))
    plan = Plan(
        buffers,
        places[: len(inputs)],
        (Step("f", places, values, (blocks, 1, 1)),),
        places[len(inputs) :],
        (None,) * len(results),
        {"f": kernel},
    )
    text = body if "kernel void" in body or "__global__" in body else source(dialect, body, [b.dtype for b in buffers])
    return EmulatedRunner(dialect, fast_math=fast_math).load(plan, {"f.src": text.encode()})


def run(
    dialect: Dialect, body: str, inputs: list[Array], results: list[Array], **options: object
) -> tuple[list[Array], Ran]:
    """The results, and what else the run gave."""
    ran = load(dialect, body, inputs, results, **options).run(as_inputs(inputs))  # type: ignore[arg-type]
    first = len(inputs)
    return [ran.outputs[first + n].view(r.dtype).reshape(r.shape) for n, r in enumerate(results)], ran


def as_inputs(arrays: list[Array]) -> dict[int, Input]:
    return {n: Input(numpy.ascontiguousarray(a).view(numpy.uint8).reshape(-1)) for n, a in enumerate(arrays)}


def floats(count: int, seed: int = 0) -> Array:
    return numpy.random.default_rng(seed).standard_normal(count, dtype=numpy.float32)
