"""Tensor expressions through code generation and onto devices, without PyTorch or lowering."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy
from numpy.typing import NDArray
from tvm import te

from tapml.kernels.device_code import generate
from tapml.kernels.dialect import Dialect
from tapml.kernels.gpu_schedule import Threads
from tapml.kernels.packing import pack_parameters
from tapml.kernels.plan import Buffer, Plan, Step
from tapml.kernels.runner import Input
from tapml.platform import find_platform
from tests.lowering.running import opened

Array = NDArray[Any]
MODULES = {
    "webgpu": "tapml.platforms.webgpu.dialect",
    "metal": "tapml.platforms.metal.dialect",
    "cuda": "tapml.platforms.cuda.dialect",
    "opencl": "tapml.kernels.opencl_c",
    "vulkan": "tapml.kernels.opencl_c",
}


def dialect_of(target: str) -> Dialect:
    """The shading language of a target."""
    dialect: Dialect = importlib.import_module(MODULES[target]).DIALECT
    return dialect


def written(
    target: str, inputs: Sequence[Any], outputs: Sequence[Any], *, name: str = "kernel", buffers: int | None = None
) -> tuple[Plan, dict[str, bytes]]:
    """The plan and sources of a function from TE's placeholders to its tensors, for a target's language."""
    return generated(target, te.create_prim_func([*inputs, *outputs]), len(inputs), name=name, buffers=buffers)


def generated(
    target: str, function: Any, inputs: int, *, name: str = "kernel", buffers: int | None = None
) -> tuple[Plan, dict[str, bytes]]:
    """The same of a TIR function whose first parameters are inputs, and the others results."""
    shapes = [tuple(int(d) for d in p.ty.shape) for p in function.params]
    places = tuple(range(len(shapes)))
    plan = Plan(
        tuple(Buffer(shape, str(p.ty.dtype)) for shape, p in zip(shapes, function.params, strict=True)),
        places[:inputs],
        (Step(name, places),),
        places[inputs:],
        tuple(tuple(range(len(shape))) for shape in shapes[inputs:]),
    )
    functions = {name: function}
    if buffers is not None:
        functions, plan = pack_parameters(functions, plan, buffers)
    return generate(functions, plan, dialect_of(target), find_platform(target).target(), Threads())


def execute(device: str, made: tuple[Plan, dict[str, bytes]], *arrays: Array) -> list[Array]:
    """The results, in the dtypes that they have in the device's memory."""
    plan, files = made
    given = {
        place: Input(numpy.ascontiguousarray(array.astype(plan.buffers[place].memory)).view(numpy.uint8).reshape(-1))
        for place, array in zip(plan.parameters, arrays, strict=True)
    }
    runner: Any = opened(device)[1]
    ran = runner.runner.load(plan, files).run(given)
    assert ran.launches == len(plan.steps) > 0 and not ran.faults
    found = []
    for place in plan.results:
        assert place is not None
        buffer = plan.buffers[place]
        found.append(ran.outputs[place].view(buffer.memory).reshape(buffer.shape))
    return found


def text(made: tuple[Plan, dict[str, bytes]]) -> str:
    """All sources."""
    return "\n".join(data.decode() for data in made[1].values())
