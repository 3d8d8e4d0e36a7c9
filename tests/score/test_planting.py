"""Defects in modules and kernels: each is one change, in one place, of a copy."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
import tvm_ffi

from tapml.kernels.plan import Artifact, Buffer, Kernel, Plan, Step
from tapml.lowering.lower import Lowered, lower
from tapml.platform import find_platform
from tapml.score.defect import Defect, sample
from tapml.score.mutate_kernel import kernel_defects, plant_in_kernel
from tapml.score.mutate_module import in_tir, module_defects, plant_in_module, tvm_target
from tests.lowering.running import llvm, record

DEVICE = "llvm:cpu"


def lowered(operator: str, *args: Any, target: str = "llvm", **kwargs: Any) -> tuple[Lowered, Lowered]:
    """(the module as a migration has it, the same with every operator as a TVM function)."""
    plain = lower(record(f"aten.{operator}", args, kwargs).signature, target, "converter")
    return plain, in_tir(plain, tvm_target(find_platform(target), DEVICE))


CALLS = {
    "softmax": ("_softmax.default", torch.randn(2, 5), -1, False),
    "mm": ("mm.default", torch.randn(3, 4), torch.randn(4, 4)),
    "where": ("where.self", torch.tensor([True, False]), torch.ones(2), torch.zeros(2)),
    "argmax": ("argmax.default", torch.randn(3, 4), 1),
    "gather": ("gather.default", torch.randn(3, 4), 1, torch.tensor([[0], [3], [1]])),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_module_of_tvm_functions_compiles_to_the_same_code(name: str) -> None:
    plain, module = lowered(*CALLS[name])
    platform = find_platform("llvm")
    one, other = (platform.build(m, DEVICE) for m in (plain, module))
    assert one.files == other.files and one.plan == other.plan


@pytest.mark.parametrize("name", CALLS)
def test_every_defect_changes_one_function_and_leaves_the_module_alone(name: str) -> None:
    _, module = lowered(*CALLS[name])
    before = module.module.script()
    defects = module_defects(module)
    assert len({d.id for d in defects}) == len(defects) > 5
    for defect in defects:
        wrong, planted = plant_in_module(module, defect)
        changed = [
            symbol.name_hint
            for symbol, function in module.module.functions.items()
            if not tvm_ffi.structural_equal(function, wrong.module[symbol.name_hint])
        ]
        assert changed == [defect.function]
        assert planted.line and planted.before != planted.after
    assert module.module.script() == before


def test_the_kinds_of_defects_in_a_softmax() -> None:
    _, module = lowered(*CALLS["softmax"])
    kinds = Counter(d.kind for d in module_defects(module))
    assert {"constant", "operator", "index", "guard", "accumulator", "dtype", "extent"} >= set(kinds)
    assert {"operator", "index", "accumulator", "dtype", "extent"} <= set(kinds)


def test_a_sample_is_even_over_kinds_and_part_of_a_larger_one() -> None:
    sites = [Defect("module", kind, "f", n, "") for kind, many in (("index", 40), ("guard", 2)) for n in range(many)]
    four, eight = (sample(sites, limit, 0, "abc") for limit in (4, 8))
    assert Counter(d.kind for d in four) == {"index": 2, "guard": 2}
    assert eight[:4] == four and len(set(eight)) == 8
    assert sample(sites, 4, 1, "abc") != four
    assert len(sample(sites, 100, 0, "abc")) == 42


SOURCE = """fn tapml_exp(x: f32) -> f32 { return x * 2.500000e+00f; }
var<workgroup> shared0 : array<f32, 128>;
fn add_kernel(@builtin(local_invocation_id) threadIdx : vec3<u32>) {
  var local0 : array<f32, 1>;
  let unused_v1 : i32 = x[i32(threadIdx.x)];
  local0[0i] = 1.500000e+00f;
  for (var k : i32 = 0i; k < 3i; k++) {
    local0[0i] = local0[0i] + x[((k * 4i) + i32(threadIdx.x))];
  }
  workgroupBarrier();
  if (i32(threadIdx.x) < 64i) {
    y[i32(threadIdx.x)] = local0[0i];
  }
}
"""


def artifact() -> Artifact:
    kernel = Kernel("add_kernel", "add_kernel.wgsl", ("float32", "float32"), (False, True), (), (128, 1, 1))
    buffers = (Buffer((12,), "float32"), Buffer((4,), "float32"))
    plan = Plan(buffers, (0,), (Step("add_kernel", (0, 1), (), (3, 1, 1)),), (1,), ((0,),), {"add_kernel": kernel})
    return Artifact(plan, {"add_kernel.wgsl": SOURCE.encode()}, "converter")


def test_defects_in_the_source_of_a_kernel() -> None:
    healthy = artifact()
    planted = {d.id: plant_in_kernel(healthy, d) for d in kernel_defects(healthy)}
    text = {name: (p.line, p.before, p.after) for name, (_, p) in planted.items()}
    assert text == {
        "kernel:add_kernel:barrier:0": (10, "workgroupBarrier();", ""),
        "kernel:add_kernel:guard:0": (11, "if (i32(threadIdx.x) < 64i) {", "if (i32(threadIdx.x) < 63i) {"),
        "kernel:add_kernel:extent:0": (
            7, "for (var k : i32 = 0i; k < 3i; k++) {", "for (var k : i32 = 0i; k < 2i; k++) {"),
        "kernel:add_kernel:constant:0": (6, "local0[0i] = 1.500000e+00f;", "local0[0i] = 3.000000e+00f;"),
        "kernel:add_kernel:index:0": (
            8, "local0[0i] = local0[0i] + x[((k * 4i) + i32(threadIdx.x))];",
            "local0[0i] = local0[0i] + x[(((k * 4i) + i32(threadIdx.x))) + 1i];"),
        "kernel:add_kernel:index:1": (12, "y[i32(threadIdx.x)] = local0[0i];", "y[(i32(threadIdx.x)) + 1i] = local0[0i];"),
        "kernel:launch 0 of add_kernel:launch:0": (0, "", ""),
    }  # fmt: skip
    assert planted["kernel:launch 0 of add_kernel:launch:0"][0].plan.steps[0].grid == (2, 1, 1)
    assert healthy == artifact()


def test_machine_code_has_no_text_to_change() -> None:
    platform = find_platform("llvm")
    plain, _ = lowered(*CALLS["mm"])
    assert kernel_defects(platform.build(plain, DEVICE)) == []


def test_memory_that_a_kernel_takes_for_itself_does_not_hold_what_it_held_the_time_before() -> None:
    """One element of the workspace is not written; the healthy kernel that ran before left the right value there."""
    call = record(
        "aten.cat.default", ([torch.ones(1, 5000, dtype=torch.int64), torch.ones(1, 1, dtype=torch.int64)], -1)
    )
    platform, device = llvm()
    lowered = in_tir(lower(call.signature, "llvm", "converter"), tvm_target(platform, "llvm:cpu"))
    defect = next(d for d in module_defects(lowered) if d.kind == "extent" and "5000 -> 4999" in d.what)
    healthy, planted = (
        device.load(platform.build(m, "llvm:cpu"), call.signature)
        for m in (lowered, plant_in_module(lowered, defect)[0])
    )
    for _ in range(2):
        assert torch.equal(healthy.run(call.tensors).results[0], torch.ones(1, 5001, dtype=torch.int64))
        assert not torch.equal(planted.run(call.tensors).results[0], torch.ones(1, 5001, dtype=torch.int64)), defect
