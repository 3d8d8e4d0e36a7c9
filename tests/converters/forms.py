"""The forms that code of one's own has: for the operators of the program ``forms``."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule, dlight
from tvm.script import tirx as T

import tapml

GPUS = ("webgpu", "vulkan", "opencl", "metal", "cuda")
TILE = 16


@tapml.converter("aten.sin.default")
def tensor_expression(ctx: Any, x: Any) -> Any:
    return ctx.te(lambda t: te.compute(t.shape, lambda i, j: tirx.sin(t[i, j]), name="own_sin"), x)


@T.prim_func(private=True, s_tir=True)
def row_sums(a: T.handle, c: T.handle) -> None:
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    C = T.match_buffer(c, (n,), "float32")
    for i, j in T.grid(n, m):
        with T.sblock("rows"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vj]


@tapml.converter("aten.sum.dim_IntList")
def loops_for_any_shape(ctx: Any, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return ctx.call_tir(row_sums, [x], [(ctx.shape(x)[:1], "float32")])


def on_gpus(operator: str) -> Any:
    def register(function: Any) -> Any:
        for target in GPUS:
            tapml.kernel(operator, target=target)(function)
        return function

    return register


@on_gpus("aten.mm.default")
def tiles_in_shared_memory(ctx: Any, a: Any, b: Any) -> Any:
    (n, k), (_, m) = ctx.shape(a), ctx.shape(b)

    @T.prim_func(private=True, s_tir=True)
    def tiled(A: T.Buffer((n, k), "float32"), B: T.Buffer((k, m), "float32"), C: T.Buffer((n, m), "float32")):  # type: ignore[no-untyped-def]
        for by in T.thread_binding(n // TILE, "blockIdx.y"):
            for bx in T.thread_binding(m // TILE, "blockIdx.x"):
                for ty in T.thread_binding(TILE, "threadIdx.y"):
                    for tx in T.thread_binding(TILE, "threadIdx.x"):
                        with T.sblock("tiles"):
                            left = T.sblock_alloc_buffer((TILE, TILE), "float32", scope="shared")
                            right = T.sblock_alloc_buffer((TILE, TILE), "float32", scope="shared")
                            total = T.sblock_alloc_buffer((1,), "float32", scope="local")
                            total[0] = T.float32(0)
                            for r in range(k // TILE):
                                T.tvm_storage_sync("shared")
                                left[ty, tx] = A[by * TILE + ty, r * TILE + tx]
                                right[ty, tx] = B[r * TILE + ty, bx * TILE + tx]
                                T.tvm_storage_sync("shared")
                                for q in range(TILE):
                                    total[0] = total[0] + left[ty, q] * right[q, tx]
                            C[by * TILE + ty, bx * TILE + tx] = total[0]

    return ctx.call_tir(tiled, [a, b], [((n, m), "float32")])


@on_gpus("aten.exp.default")
def threads_without_blocks(ctx: Any, x: Any) -> Any:
    n, m = ctx.shape(x)

    @T.prim_func(private=True)
    def flat(A: T.Buffer((n, m), "float32"), C: T.Buffer((n, m), "float32")):  # type: ignore[no-untyped-def]
        row = T.launch_thread("blockIdx.x", n)
        column = T.launch_thread("threadIdx.x", m)
        C[row, column] = T.exp(A[row, column])

    return ctx.call_tir(flat, [x], [((n, m), "float32")])


for gpu in GPUS:
    tapml.schedule("aten.addmm.default", target=gpu)(dlight.gpu.Matmul())
    tapml.schedule("aten._softmax.default", target=gpu)(dlight.gpu.GeneralReduction)


@tapml.schedule("aten.addmm.default", target="llvm")
def in_parallel(function: Any, target: Any) -> Any:
    sch = Schedule(function)
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        sch.parallel(sch.get_loops(block)[0])
    return sch


@tapml.schedule("aten._softmax.default", target="llvm")
def does_not_apply(function: Any, target: Any) -> Any:
    return None
