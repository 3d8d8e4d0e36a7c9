"""OpenCL C to SPIR-V, and what is read from the module."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tvm import te

from tapml.errors import CompileError, UnsupportedError
from tapml.platforms.vulkan import clspv
from tapml.platforms.vulkan.spirv import PushConstant, reflect, strip_reflection, validate
from tests.platforms.opencl.kernels import Made, elementwise, matmul, row_sums

pytestmark = pytest.mark.skipif(clspv.find_clspv() is None, reason="no clspv (pyclspv, or a program on the PATH)")

KERNELS: dict[str, tuple[Callable[[], Made], tuple[str, ...]]] = {
    "elementwise": (lambda: elementwise("e", 100, "float32", te.tanh), ()),
    "reduction": (lambda: row_sums(10, 300), ()),
    "product": (lambda: matmul(64, 64, 64), ()),
    "float16": (lambda: elementwise("h", 100, "float16", te.exp), ("shaderFloat16", "storageBuffer16BitAccess")),
    "int8": (lambda: elementwise("b", 100, "int8", lambda v: v + v), ("shaderInt8", "storageBuffer8BitAccess")),
    "int16": (lambda: elementwise("s", 100, "int16", lambda v: v + v), ("shaderInt16", "storageBuffer16BitAccess")),
    "int64": (lambda: elementwise("l", 100, "int64", lambda v: v + v), ("shaderInt64",)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_modules_are_valid_and_say_what_they_need(name: str) -> None:
    make, features = KERNELS[name]
    made = make()
    spirv = clspv.compile_spirv(made.source.decode())
    reflection = reflect(spirv)
    entry = reflection.entry_points[made.kernel.name]
    assert entry.bindings == {i: i for i in range(len(made.kernel.pointers))} and entry.push_constants == ()
    assert reflection.workgroup_size == (0, 1, 2) and set(features) <= set(reflection.features)
    assert (reflection.shared > 0) == (b"__local" in made.source)
    stripped = strip_reflection(spirv)
    assert len(stripped) < len(spirv) and b"Reflection" not in stripped and made.kernel.name.encode() in stripped
    for module in (spirv, stripped):
        said = validate(module)
        if said.valid is None:
            pytest.skip(said.words)
        assert said.valid, said.words


def test_a_module_that_is_not_valid_is_seen() -> None:
    spirv = clspv.compile_spirv("__kernel void f(__global float* a) { a[0] = 1; }\n")
    said = validate(spirv[:-8])
    if said.valid is None:
        pytest.skip(said.words)
    assert not said.valid and said.words


def test_scalars_are_push_constants() -> None:
    spirv = clspv.compile_spirv("__kernel void f(__global float* a, int n, long q) { if (n < q) a[n] = q; }\n")
    assert reflect(spirv).entry_points["f"].push_constants == (PushConstant(1, 0, 4), PushConstant(2, 8, 8))


def test_shared_memory_is_counted() -> None:
    source = "__kernel void f(__global float* a) { __local float4 s[100]; __local int t[3]; s[get_local_id(0)] = a[0];"
    source += (
        " t[get_local_id(0) % 3] = a[1]; barrier(CLK_LOCAL_MEM_FENCE); a[2] = s[1].x + t[get_group_id(0) % 3]; }\n"
    )
    assert reflect(clspv.compile_spirv(source)).shared == 1600 + 12


def test_what_a_launch_does_not_provide_is_refused() -> None:
    spirv = clspv.compile_spirv("__kernel void f(__global float* a, __local float* s) { s[0] = 1; a[0] = s[0]; }\n")
    with pytest.raises(UnsupportedError, match="the kernel needs shared memory as an argument"):
        reflect(spirv)


@pytest.mark.parametrize("damage", [lambda s: b"", lambda s: s[:21], lambda s: b"x" + s[1:], lambda s: s + b"\0\0\0\0"])
def test_damaged_modules_are_refused(damage: Callable[[bytes], bytes]) -> None:
    spirv = clspv.compile_spirv("__kernel void f(__global float* a) { a[0] = 1; }\n")
    with pytest.raises(CompileError, match="expected a"):
        reflect(damage(spirv))


def test_clspvs_words_are_in_the_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CompileError, match=r"clspv: source:1:\d+: error: use of undeclared identifier 'nonsense'"):
        clspv.compile_spirv("__kernel void f(__global float* a) { a[0] = nonsense; }\n")
    assert capfd.readouterr().err == ""


@pytest.fixture
def on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program ``clspv`` that understands ``[options] in.cl -o out.spv``, and no pyclspv for the caller."""
    pytest.importorskip("pyclspv", reason="pyclspv is not installed")
    program = tmp_path / "clspv"
    program.write_text(
        f"#!{sys.executable}\nimport sys, pyclspv\nassert sys.argv[1] == '--an-option'\n"
        "open(sys.argv[4], 'wb').write(pyclspv.compile(open(sys.argv[2]).read()))\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(clspv.importlib.util, "find_spec", lambda name: None)
    return program


def test_the_program_serves_as_well(on_the_path: Path) -> None:
    assert clspv.find_clspv() == str(on_the_path) == shutil.which("clspv")
    source = "__kernel void f(__global float* a) { a[0] = 1; }\n"
    assert reflect(clspv.compile_spirv(source, options=["--an-option"])).entry_points["f"].bindings == {0: 0}
    with pytest.raises(CompileError, match="error: expected parameter declarator"):
        clspv.compile_spirv("__kernel void f( {\n", options=["--an-option"])


def test_pyclspv_takes_no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyclspv", reason="pyclspv is not installed")
    with pytest.raises(CompileError, match="expected no options for pyclspv"):
        clspv.compile_spirv("", options=["-O0"])


def test_without_clspv_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: Any) -> None:
        return None

    monkeypatch.setattr(clspv.importlib.util, "find_spec", nothing)
    monkeypatch.setattr(clspv.shutil, "which", nothing)
    with pytest.raises(CompileError, match="neither the package pyclspv nor a program clspv") as error:
        clspv.compile_spirv("")
    assert "pip install pyclspv" in error.value.hint
