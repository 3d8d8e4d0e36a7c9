"""Defects planted in the TVM functions of a lowered signature, before they are merged, scheduled and compiled.

A function that is used in several places of a signature has its defect in all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx

from tapml.errors import CompileError
from tapml.kernels.blocks import with_regions, with_variables
from tapml.lowering.lower import Lowered
from tapml.migration.blame import described
from tapml.platform import Platform
from tapml.score.defect import Defect, difference, numbered
from tapml.score.expressions import Change, changes, forgetting, narrowed, of_beginning

_REGIONS = re.compile(r"T\.(reads|writes)\(.*\)$", re.M)
Rewrite = Callable[[tirx.PrimFunc], tirx.PrimFunc]


def in_tir(lowered: Lowered, target: tvm.target.Target) -> Lowered:
    """The signature with every Relax operator as a TVM function, as a platform's first step would make it."""
    try:
        with target:
            module = relax.transform.LegalizeOps()(relax.backend.DispatchSortScan()(lowered.module))
    except Exception as error:
        raise CompileError(f"no TIR for this module: {described(error)}") from error
    return replace(lowered, module=module)


def module_defects(lowered: Lowered) -> list[Defect]:
    """Every defect that can be planted in a module of :func:`in_tir`, by function, in a fixed order."""
    found = []
    for name, function in _functions(lowered.module):
        sites = [(change.kind, change.what) for change, _ in _sites(function)]
        found += numbered(sites, "module", name)
    return found


def plant_in_module(lowered: Lowered, defect: Defect) -> tuple[Lowered, Defect]:
    """The module with the defect in it, and the defect with its line.  ``lowered`` stays as it is."""
    function = dict(_functions(lowered.module))[defect.function]
    of_kind = [rewrite for change, rewrite in _sites(function) if change.kind == defect.kind]
    wrong = of_kind[defect.number](function)
    functions = {
        symbol: wrong if symbol.name_hint == defect.function else other
        for symbol, other in lowered.module.functions.items()
    }
    line, before, after = difference(_script(function), _script(wrong))
    planted = replace(defect, line=line, before=before, after=after)
    return replace(lowered, module=tvm.IRModule(functions)), planted


def _functions(module: tvm.IRModule) -> list[tuple[str, tirx.PrimFunc]]:
    named = {s.name_hint: f for s, f in module.functions.items() if isinstance(f, tirx.PrimFunc)}
    return sorted(named.items())


def _script(function: tirx.PrimFunc) -> str:
    """What regions a block says it touches follows from its body: left blank, so that lines can be compared."""
    return _REGIONS.sub("", str(function.script()))


# -- sites --------------------------------------------------------------------------------------------------------------


def _sites(function: tirx.PrimFunc) -> Iterator[tuple[Change, Rewrite]]:
    """Each change with the function that plants it, in the order of the statements."""
    beginnings: list[Any] = []
    tvm_ffi.structural_walk(
        function.body, (s_tir.SBlock, lambda b: beginnings.append(b.init) if b.init is not None else None)
    )
    for position, store in enumerate(_all(function, tirx.BufferStore)):
        if any(store.same_as(beginning) for beginning in beginnings):
            change = of_beginning(store.value)
            found = iter([change] if change is not None else [])
        else:
            found = _of_store(store)
        for change in found:
            yield change, _storing(position, change)
    for position, loop in enumerate(_all(function, tirx.For)):
        extent = loop.extent
        if isinstance(extent, tirx.IntImm) and int(extent.value) > 1:
            what = f"loop {loop.loop_var.name}: {int(extent.value)} -> {int(extent.value) - 1} iterations"
            yield Change("extent", what, lambda: None), _shortening(position)
    for position, branch in enumerate(_all(function, tirx.IfThenElse)):
        yield Change("guard", "the condition left out", lambda: None), _unguarding(position)
        for change in changes(branch.condition, "condition"):
            yield change, _deciding(position, change)


def _of_store(store: Any) -> Iterator[Change]:
    yield from forgetting(store.value, store.buffer, store.indices)
    cut = narrowed(store.value)
    if cut is not None:
        yield cut
    for change in changes(store.value):
        # what a reduction carries along is its accumulator, not an operand to be read elsewhere
        if change.kind == "index" and f"reads {store.buffer.name} " in change.what:
            continue
        yield change


def _all(function: tirx.PrimFunc, kind: type) -> list[Any]:
    """The nodes of one kind, in the order in which :func:`_at` counts them."""
    found: list[Any] = []

    def visit(node: Any) -> Any:
        found.append(node)
        return node

    tvm_ffi.structural_map(function.body, (kind, visit))
    return found


def _at(function: tirx.PrimFunc, kind: type, position: int, change: Callable[[Any], Any]) -> tirx.PrimFunc:
    """The function with one node changed."""
    count = -1

    def visit(node: Any) -> Any:
        nonlocal count
        count += 1
        return change(node) if count == position else node

    return function.with_body(tvm_ffi.structural_map(function.body, (kind, visit)))


def _reading_anywhere(block: Any) -> Any:
    """The block that says of itself that it reads any part of what it reads: schedules trust it."""
    whole = [tirx.BufferRegion(r.source, [tvm.ir.Range(0, e) for e in r.source.ty.shape]) for r in block.reads]
    return with_regions(block, whole, block.writes)


def _storing(position: int, change: Change) -> Rewrite:
    def stored(node: Any) -> Any:
        return tirx.BufferStore(node.buffer, change.make(), node.indices)

    def rewritten(function: tirx.PrimFunc) -> tirx.PrimFunc:
        found = _at(function, tirx.BufferStore, position, stored)
        if change.kind != "index":  # it reads what it did, or less
            return found
        return found.with_body(tvm_ffi.structural_map(found.body, (s_tir.SBlock, _reading_anywhere)))

    return rewritten


def _deciding(position: int, change: Change) -> Rewrite:
    def decided(node: Any) -> Any:
        return tirx.IfThenElse(change.make(), node.then_case, node.else_case)

    return lambda function: _at(function, tirx.IfThenElse, position, decided)


def _unguarding(position: int) -> Rewrite:
    return lambda function: _at(function, tirx.IfThenElse, position, lambda node: node.then_case)


def _shortening(position: int) -> Rewrite:
    """One iteration less, in the loop and in the domain of the block's variable that it runs through."""

    def shortened(loop: Any) -> Any:
        extent = tirx.IntImm(str(loop.extent.ty.dtype), int(loop.extent.value) - 1)

        def domain(realize: Any) -> Any:
            block = realize.block
            variables = [
                tirx.IterVar(tvm.ir.Range.from_min_extent(v.dom.min, extent), v.var, v.iter_type, v.thread_tag)
                if value.same_as(loop.loop_var)
                else v
                for v, value in zip(block.iter_vars, realize.iter_values, strict=True)
            ]
            return s_tir.SBlockRealize(realize.iter_values, realize.predicate, with_variables(block, variables))

        body = tvm_ffi.structural_map(loop.body, (s_tir.SBlockRealize, domain))
        return tirx.For(
            loop.loop_var, loop.min, extent, loop.kind, body, loop.thread_binding, loop.annotations, loop.step
        )

    return lambda function: _at(function, tirx.For, position, shortened)


def tvm_target(platform: Platform, device: str) -> tvm.target.Target:
    """TVM's target of a platform, which one that compiles for other machines has for each."""
    describe = platform.target  # type: ignore[attr-defined]
    found: tvm.target.Target = describe(device) if getattr(platform, "elsewhere", False) else describe()
    return found
