"""Schedules that lose the last turn of each reduction's outermost loop, as a wrong split would; on processors and on GPUs."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tapml.kernels import device_code
from tapml.platforms.llvm import platform


def losing(schedule: Any) -> Any:
    def planted(function: Any, *more: Any) -> Any:
        scheduled = schedule(function, *more)
        if any(getattr(m, "plain", False) for m in more):
            return scheduled
        reduced: list[Any] = []

        def visit(realize: Any) -> None:
            for value, axis in zip(realize.iter_values, realize.block.iter_vars, strict=True):
                if axis.iter_type == tirx.IterVar.CommReduce:
                    tvm_ffi.structural_walk(value, (tvm.ir.Var, reduced.append))

        def shorter(loop: Any) -> Any:
            if loop.kind != tirx.ForKind.SERIAL or not any(loop.loop_var.same_as(v) for v in reduced):
                return loop
            return tirx.For(loop.loop_var, loop.min, loop.extent - 1, loop.kind, loop.body)

        tvm_ffi.structural_walk(scheduled.body, (tvm.s_tir.SBlockRealize, visit))
        return scheduled.with_body(tvm_ffi.structural_map(scheduled.body, (tirx.For, shorter)))

    return planted


device_code.schedule = losing(device_code.schedule)
platform.schedule = losing(platform.schedule)
