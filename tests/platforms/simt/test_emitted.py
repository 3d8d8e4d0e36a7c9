"""What TVM emits, executed: right numbers, no faults, and accepted by the compilers' front ends."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import get_args

import pytest

from benchmarks.emulation_kernels import PROGRAMS, Program
from tapml.platforms.simt.check_cuda import check_cuda
from tapml.platforms.simt.check_msl import check_msl
from tapml.platforms.simt.runner import EmulatedRunner
from tapml.platforms.simt.translate import Dialect

compiler = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")


@compiler
@pytest.mark.parametrize("dialect", get_args(Dialect))
@pytest.mark.parametrize("make", PROGRAMS, ids=lambda p: p.__name__)
def test_the_numbers_are_right(make: Callable[[], Program], dialect: Dialect) -> None:
    program = make()
    plan, files = program.build(dialect)
    loaded = EmulatedRunner(dialect).load(plan, files)
    for variant in program.variants():
        ran = loaded.run(variant.inputs())
        assert not ran.faults and variant.right(ran.outputs)
        assert ran.launches == len(plan.steps) > 0
    if dialect == "metal":
        for source in files.values():
            checked = check_msl(source.decode())
            assert checked.status == "compiles" or (checked.status == "not checked" and not checked.by), checked


@compiler
@pytest.mark.parametrize("dialect", get_args(Dialect))
def test_every_order_of_threads_gives_the_same(dialect: Dialect) -> None:
    program = next(p for p in PROGRAMS if p.__name__ == "softmax")()
    loaded = EmulatedRunner(dialect).load(*program.build(dialect))
    results = [loaded.execute(program.inputs(), order=n).outputs[1].tobytes() for n in range(6)]
    assert len(set(results)) == 1


def test_nvidias_compiler_takes_it() -> None:
    _, files = next(p for p in PROGRAMS if p.__name__ == "softmax")().build("cuda")
    (source,) = (data.decode() for data in files.values())
    checked = check_cuda(source)
    if checked.status == "not checked":
        pytest.skip(checked.message)
    assert checked.status == "compiles" and checked.by, checked
    refused = check_cuda(source.replace("__syncthreads()", "__synchthreads()"))
    assert refused.status == "refused" and "__synchthreads" in refused.message
