"""Parameters put together in one buffer, for devices that let a kernel have few."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tapml.kernels.plan import Buffer, Plan


def pack_parameters(
    functions: dict[str, tirx.PrimFunc], plan: Plan, most: int
) -> tuple[dict[str, tirx.PrimFunc], Plan]:
    """Functions and plan in which no function has more than ``most`` buffers, as far as sharing parameters goes.

    Parameters of one dtype become slices of one buffer.  They are one-dimensional and only read, so that a load of one
    is a load of the other, further on.
    """
    if len(plan.steps) != 1 or len(plan.steps[0].buffers) <= most:
        return functions, plan
    (step,) = plan.steps
    function = functions[step.kernel]
    groups: dict[str, list[int]] = defaultdict(list)
    for position, index in enumerate(step.buffers):
        if index in plan.parameters:
            groups[plan.buffers[index].dtype].append(position)
    shared = {dtype: positions for dtype, positions in groups.items() if len(positions) > 1}
    if not shared:
        return functions, plan
    parameters = list(function.params)
    buffers = list(plan.buffers)
    replaced: list[tuple[Any, Any, int]] = []
    moved: dict[int, tuple[int, int]] = {}
    added: list[tuple[Any, int]] = []
    for dtype, positions in shared.items():
        begin = 0
        sizes = [math.prod(buffers[step.buffers[p]].shape) for p in positions]
        whole = tirx.decl_buffer((sum(sizes),), dtype, f"packed_{dtype}")
        buffers.append(Buffer((sum(sizes),), dtype))
        added.append((whole, len(buffers) - 1))
        for position, size in zip(positions, sizes, strict=True):
            replaced.append((parameters[position], whole, begin))
            moved[step.buffers[position]] = (len(buffers) - 1, begin)
            begin += size
    gone = {p for positions in shared.values() for p in positions}
    kept = [i for i in range(len(parameters)) if i not in gone]
    changed = tirx.PrimFunc(
        [*(w for w, _ in added), *(parameters[i] for i in kept)],
        _redirected(function.body, replaced),
        function.ret_type,
        function.attrs,
    )
    return {**functions, step.kernel: changed}, replace(
        plan,
        buffers=tuple(buffers),
        steps=(replace(step, buffers=(*(i for _, i in added), *(step.buffers[i] for i in kept))),),
        parameters=tuple(moved[i][0] if i in moved else i for i in plan.parameters),
        offsets=tuple(moved[i][1] if i in moved else 0 for i in plan.parameters),
    )


def _redirected(body: Any, replaced: list[tuple[Any, Any, int]]) -> Any:
    def load(node: Any, mutator: Any) -> Any:
        for parameter, whole, begin in replaced:
            if node.source.same_as(parameter):
                (index,) = node.indices
                place = mutator.mutate(index)
                return tirx.BufferLoad(whole, [place + tirx.const(begin, str(place.ty.dtype))])
        return mutator.default_mutate(node)

    def region(node: Any, mutator: Any) -> Any:
        for parameter, whole, begin in replaced:
            if node.source.same_as(parameter):
                (span,) = node.region
                low = mutator.mutate(span.min)
                moved = tvm.ir.Range.from_min_extent(low + tirx.const(begin, str(low.ty.dtype)), span.extent)
                return tirx.BufferRegion(whole, [moved])
        return mutator.default_mutate(node)

    return tvm_ffi.structural_mutate(body, ((tvm.ir.TensorLoad, load), (tvm.ir.TensorRegion, region)))
