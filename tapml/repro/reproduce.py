#!/usr/bin/env python3
"""Reproduce the failure that this directory is about.  README.md says what is wrong.

    python reproduce.py [--how HOW] [--verbose]

It needs PyTorch and TVM alone, or what README.md says.  PyTorch executes the operator (call.py) on the recorded tensors
(tensors.npz); then the candidate does, in a process of its own, and the results are compared; where PyTorch's own are not
finite and the recorded float64 ones are, or the other way round, the candidate may follow either.  HOW is one of

    import   TVM's own PyTorch front end on the operator, then tvm.compile
    module   module.py, the operator in TVM's terms, by tvm.compile
    kernels  kernels.py, the functions as they are handed to the code generator, by tvm.compile
    library  kernels.so, those functions as they were compiled
    replay   the kernels' sources on the device, by replay.py
    tapml    the same by way of tapml, which has to be installed

Exit codes: 0 the candidate is right; 1 it fails as recorded; 2 it cannot run here; 3 it fails in another way.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
HOWS = ("import", "module", "kernels", "library", "replay", "tapml")
RIGHT, REPRODUCED, CANNOT, OTHERWISE = 0, 1, 2, 3


class Cannot(Exception):
    """Something that is needed is not here."""


class Stage:
    """What is being done, so that a failure can be told from another one."""

    now = "convert"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--how", choices=HOWS, help="default: how it was seen to fail")
    parser.add_argument("--verbose", action="store_true", help="with the traceback of an error")
    parser.add_argument("--here", action="store_true", help="in this process, which a crash would end")
    options = parser.parse_args()
    bundle = json.loads((HERE / "bundle.json").read_text())
    how = options.how or bundle["how"]
    if options.here:
        return attempt(bundle, how, options.verbose)
    command = [sys.executable, *(["-I"] if sys.flags.isolated else []), __file__, "--here", "--how", how]
    try:
        code = subprocess.run(command + ["--verbose"] * options.verbose, timeout=bundle["seconds"]).returncode
    except subprocess.TimeoutExpired:
        return conclude(bundle, "timed out", f"no answer within {bundle['seconds']:g} s")
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return conclude(bundle, "crashed", f"killed by {name}")
    return code


def conclude(bundle: Any, code: str, text: str) -> int:
    """Say what happened, and whether that is what was recorded."""
    if code == bundle["failure"]["code"]:
        print(f"REPRODUCED: {text}")
        return REPRODUCED
    print(f"FAILS IN ANOTHER WAY: {text}; recorded was: {bundle['explanation']}")
    return OTHERWISE


def attempt(bundle: Any, how: str, verbose: bool) -> int:
    try:
        import numpy
        import torch
    except ImportError as error:
        print(f"CANNOT RUN HERE: {error}")
        return CANNOT
    sys.dont_write_bytecode = True
    torch.manual_seed(0)
    stored = numpy.load(HERE / "tensors.npz")
    tensors = [tensor_of(stored[f"x{i}"], spec) for i, spec in enumerate(bundle["tensors"])]
    try:
        expected = execute(bundle, tensors)
    except Exception as error:
        print(f"CANNOT RUN HERE: PyTorch {torch.__version__} refuses the call: {error}")
        return CANNOT
    try:
        found = globals()[f"by_{how}"](bundle, tensors)
    except Cannot as error:
        print(f"CANNOT RUN HERE: {error}")
        return CANNOT
    except Exception as error:
        if verbose:
            import traceback

            traceback.print_exc()
        return conclude_error(bundle, error)
    return compare(bundle, expected, found, stored)


# -- PyTorch ----------------------------------------------------------------------------------------------------------


def tensor_of(data: Any, spec: Any) -> Any:
    """The bytes of a tensor's memory as that tensor."""
    import torch

    dtype = getattr(torch, spec["dtype"])
    if not data.size:
        return torch.empty_strided(spec["shape"], spec["strides"], dtype=dtype)
    return torch.frombuffer(bytearray(data.tobytes()), dtype=dtype).as_strided(spec["shape"], spec["strides"])


def copy_of(tensor: Any) -> Any:
    """With memory of its own, laid out in the same way."""
    if not tensor.numel():
        return tensor.clone()
    return flat(tensor).clone().as_strided(tensor.shape, tensor.stride())


def flat(tensor: Any) -> Any:
    """The memory from a tensor's first element to its last, one-dimensional."""
    if not tensor.numel():
        return tensor.reshape(0)
    length = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((length,), (1,), tensor.storage_offset())


def execute(bundle: Any, tensors: Any) -> dict[str, Any]:
    """The results of the operator in PyTorch by name; ``tensors`` stay as they are."""
    import torch

    own = [copy_of(t) for t in tensors]
    with torch.no_grad():
        return results(bundle, own, operator().call(*own))


def operator() -> Any:
    """call.py"""
    spec = importlib.util.spec_from_file_location("bundle_call", HERE / "call.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def results(bundle: Any, tensors: Any, output: Any) -> dict[str, Any]:
    """Everything that the operator computed: outputs, then arguments that it wrote to."""
    values = output if isinstance(output, (tuple, list)) and bundle["returns"]["many"] else [output]
    kept = [v for i, v in enumerate(values) if i not in bundle["returns"]["aliases"]]
    leaves = [v for value in kept for v in (value if isinstance(value, (tuple, list)) else [value])]
    named = {f"out{i}": v for i, v in enumerate(v for v in leaves if v is not None)}
    return {**named, **{f"arg{i}": tensors[i] for i in bundle["mutated"]}}


# -- the candidate ----------------------------------------------------------------------------------------------------


def tvm() -> Any:
    try:
        import tvm
    except ImportError as error:
        raise Cannot(f"{error}: pip install apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post1") from error
    return tvm


def cpu_target() -> Any:
    kind = {"kind": "llvm", "mcpu": str(tvm().get_global_func("target.llvm_get_system_cpu")())}
    return tvm().target.Target(kind)


def from_tvm(value: Any) -> list[Any]:
    import torch.utils.dlpack

    many = not hasattr(value, "shape")
    return [torch.utils.dlpack.from_dlpack(v) for v in (value if many else [value])]


def to_tvm(tensor: Any) -> Any:
    import torch

    return tvm().runtime.from_dlpack(tensor.clone(memory_format=torch.contiguous_format))  # aligned, as TVM expects


def by_import(bundle: Any, tensors: Any) -> list[Any]:
    """TVM's front end on the operator."""
    import torch

    tvm()
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    class Operator(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            own = [t.clone() for t in tensors] if bundle["mutated"] else tensors
            return tuple(results(bundle, own, operator().call(*own)).values())

    program = torch.export.export(Operator(), tuple(tensors))
    module = from_exported_program(program, run_ep_decomposition=bundle["decompose"])
    Stage.now = "compile"
    compiled = tvm().compile(module, target=cpu_target())
    Stage.now = "run"
    found = relax.VirtualMachine(compiled, tvm().cpu())["main"](*[to_tvm(t) for t in tensors])
    Stage.now = "result"
    return from_tvm(found)


def by_module(bundle: Any, tensors: Any) -> list[Any]:
    """module.py by tvm.compile: functions of the memory of tensors."""
    tvm()
    from tvm import relax

    Stage.now = "compile"
    module = script("module.py")
    compiled = tvm().compile(module, target=cpu_target())
    Stage.now = "run"
    found = from_tvm(relax.VirtualMachine(compiled, tvm().cpu())["kernel"](*[to_tvm(flat(t)) for t in tensors]))
    Stage.now = "result"
    return arranged(bundle, found)


def by_kernels(bundle: Any, tensors: Any) -> list[Any]:
    """kernels.py by tvm.compile."""
    Stage.now = "compile"
    library = tvm().compile(script("kernels.py"), target=cpu_target())
    Stage.now = "run"
    return stepped(bundle, tensors, library, tvm().runtime.from_dlpack)  # which shares memory


def by_library(bundle: Any, tensors: Any) -> list[Any]:
    """kernels.so: functions of pointers."""
    if not (HERE / "kernels.so").exists():
        raise Cannot("there is no kernels.so here")
    Stage.now = "load"
    library = tvm().runtime.load_module(str(HERE / "kernels.so"))
    Stage.now = "run"
    return stepped(bundle, tensors, library, lambda t: ctypes.c_void_p(t.data_ptr()))


def stepped(bundle: Any, tensors: Any, library: Any, passed: Any) -> list[Any]:
    """Call the functions of a plan."""
    import torch

    plan = bundle["plan"]
    buffers = [torch.empty(shape, dtype=getattr(torch, dtype)) for shape, dtype, _ in plan["buffers"]]
    given = [copy_of(t) for t in tensors]
    for index, tensor in zip(plan["parameters"], given, strict=True):
        buffers[index] = flat(tensor)
    for name, operands, _, _ in plan["steps"]:
        library[name](*[passed(buffers[i]) for i in operands])
    Stage.now = "result"
    require_untouched(tensors, given)
    return arranged(bundle, [buffers[i] for i in plan["results"] if i is not None])


def by_replay(bundle: Any, tensors: Any) -> list[Any]:
    """The kernels' sources on the device."""
    import numpy

    if not (HERE / "replay.py").exists():
        raise Cannot(f"there is no way to launch kernels of {bundle['target']} without tapml here")
    spec = importlib.util.spec_from_file_location("bundle_replay", HERE / "replay.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise Cannot(f"{error}: README.md says what is needed") from error
    plan = bundle["plan"]
    inputs: dict[int, Any] = {}
    offsets = plan["offsets"] or [0] * len(tensors)
    for index, offset, tensor in zip(plan["parameters"], offsets, tensors, strict=True):
        data = encoded(tensor, plan["buffers"][index])
        shape, _, _ = plan["buffers"][index]
        if index not in inputs:
            inputs[index] = numpy.zeros(shape, data.dtype)
        inputs[index][offset : offset + data.size] = data
    sources = {path.name: path.read_text() for path in sorted((HERE / "kernels").iterdir())}
    Stage.now = "load"
    try:
        device = module.Device()
    except module.Missing as error:
        raise Cannot(str(error)) from error
    print(f"device     {device.description}")
    try:
        loaded = device.load(plan, sources)
    except module.Missing as error:
        raise Cannot(str(error)) from error
    Stage.now = "run"
    outputs = loaded({i: numpy.ascontiguousarray(v).view(numpy.uint8).reshape(-1) for i, v in inputs.items()})
    Stage.now = "result"
    found = []
    for index, result in zip(plan["results"], bundle["results"], strict=True):
        if index is not None:
            found.append(decoded(outputs[index], plan["buffers"][index], result["dtype"]))
    return arranged(bundle, found)


def encoded(tensor: Any, buffer: Any) -> Any:
    """The memory of a tensor in the dtype that a buffer of the device has."""
    import numpy
    import torch

    _, dtype, stored = buffer
    values = flat(tensor)
    if values.dtype == torch.bfloat16:
        values = values.view(torch.int16)
    data = values.numpy()
    if dtype == "bfloat16":
        data = data.view(numpy.uint16)
    memory = stored or dtype
    return data.astype("uint16" if memory == "bfloat16" else memory)


def decoded(data: Any, buffer: Any, dtype: str) -> Any:
    """The bytes of a result's buffer as a tensor of the buffer's shape."""
    import numpy
    import torch

    shape, own, stored = buffer
    memory = stored or own
    if dtype == "bfloat16":
        bits = data.view("uint16" if memory == "bfloat16" else memory).astype(numpy.uint16)
        return torch.from_numpy(bits.view(numpy.int16)).view(torch.bfloat16).reshape(shape)
    values = torch.from_numpy(data.view(memory).copy()).reshape(shape)
    return values != 0 if dtype == "bool" else values.to(getattr(torch, dtype))


def by_tapml(bundle: Any, tensors: Any) -> list[Any]:
    """By way of tapml."""
    try:
        from tapml.repro.through import replay
    except ImportError as error:
        raise Cannot(
            f"kernels of {bundle['target']} run on {bundle['device']} by way of tapml only: {error}"
        ) from error
    Stage.now = "load"
    found: list[Any] = replay(HERE, bundle, [copy_of(t) for t in tensors])
    Stage.now = "result"
    return found


def arranged(bundle: Any, values: list[Any]) -> list[Any]:
    """Results in the order of their axes, out of the order in which they were written."""
    import torch

    feed, found = iter(values), []
    for order, result in zip(bundle["orders"], bundle["results"], strict=True):
        if order is None:
            found.append(torch.empty(result["shape"], dtype=getattr(torch, result["dtype"])))
            continue
        inverse = sorted(range(len(order)), key=order.__getitem__)
        written = next(feed)
        found.append(written.reshape([result["shape"][a] for a in order]).permute(inverse))
    return found


class Wrong(Exception):
    """The candidate did something that it must not."""

    code = ""


def require_untouched(before: Any, after: Any) -> None:
    import torch

    for i, (a, b) in enumerate(zip(before, after, strict=True)):
        if not torch.equal(flat(a).contiguous().view(torch.uint8), flat(b).contiguous().view(torch.uint8)):
            error = Wrong(f"the kernel wrote to its input: argument {i} is not what it was before")
            error.code = "wrote-input"
            raise error


def script(name: str) -> Any:
    """A file of TVMScript as a module; its imports are for editors."""
    if not (HERE / name).exists():
        raise Cannot(f"there is no {name} here")
    lines = (HERE / name).read_text().splitlines(keepends=True)
    return tvm().script.from_source("".join(line for line in lines if not line.startswith("from ")))


# -- the verdict ------------------------------------------------------------------------------------------------------


def conclude_error(bundle: Any, error: Exception) -> int:
    """An exception: the recorded one?"""
    failure = bundle["failure"]
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[-1].strip() if lines else ''}"[:400]
    print(f"raised     {text} (stage: {Stage.now})")
    if getattr(error, "code", "") == failure["code"]:
        return conclude(bundle, failure["code"], text)
    raised = failure["stage"] != "result" and failure["code"] in ("refused", "raised", "device")
    if raised and failure["words"] and essence(failure["words"])[:60] in essence(str(error)):
        print(f"REPRODUCED: {text}")
        return REPRODUCED
    print(f"FAILS IN ANOTHER WAY: {text}; recorded was: {bundle['explanation']}")
    return OTHERWISE


def essence(message: str) -> str:
    """A message without numbers, shapes and spaces."""
    text = " ".join(message.split())
    text = re.sub(r"[\[(][\d\s,.x-]+[\])]", "#", text)
    return re.sub(r"0x[0-9a-fA-F]+|-?\d[\d.,]*(?:e[+-]?\d+)?", "#", text)


def compare(bundle: Any, expected: dict[str, Any], found: list[Any], stored: Any) -> int:
    import torch

    print(f"operator   {bundle['operator']} by PyTorch {torch.__version__}{versions()}")
    failure = bundle["failure"]
    if len(found) != len(expected):
        print(f"expected   {len(expected)} results\nfound      {len(found)}")
        return conclude(bundle, "interface", f"expected {len(expected)} results, found {len(found)}")
    wrong: list[tuple[str, str, set[str], str]] = []
    for (name, right), value, spec in zip(expected.items(), found, bundle["results"], strict=True):
        print(f"expected   {name} = {shown(right)}\nfound      {name} = {shown(value)}")
        recorded = tensor_of(stored[f"expected-{name}"], {**spec, "strides": spec["strides"]})
        if tuple(right.shape) == tuple(spec["shape"]) and difference(recorded, right, spec["limit"]) is not None:
            print(f"note       PyTorch gives another {name} here than where this was recorded: {shown(recorded)}")
        if tuple(value.shape) != tuple(right.shape) or value.dtype != right.dtype:
            text = f"{name}: expected {right.dtype} {list(right.shape)}, found {value.dtype} {list(value.shape)}"
            wrong.append((name, "interface", set(), text))
            continue
        if f"exact-{name}" in stored:
            exact = tensor_of(stored[f"exact-{name}"], spec)
            print(f"float64    {name} = {shown(exact)}")
            right = right.where((classes(value) != classes(exact)) | (classes(value) == classes(right)), exact)
        problem = difference(right, value, spec["limit"])
        if problem is not None:
            wrong.append((name, "values", *problem))
    if not wrong:
        print("RIGHT: the candidate gives what PyTorch gives")
        return RIGHT
    for name, code, patterns, text in wrong:
        recorded_patterns = {p for p in failure["patterns"] if "->" in p}
        if code == "interface" and failure["code"] in ("interface", "shape", "dtype"):
            return conclude(bundle, failure["code"], text)
        values = failure["stage"] == "result" and code == "values" and name == failure["result"]
        if values and (
            bundle["changing"] or (patterns <= recorded_patterns and bool(patterns) == bool(recorded_patterns))
        ):
            return conclude(bundle, failure["code"], f"{name}: {text}")
    text = "; ".join(f"{name}: {text}" for name, _, _, text in wrong)
    print(f"FAILS IN ANOTHER WAY: {text}; recorded was: {bundle['explanation']}")
    return OTHERWISE


def versions() -> str:
    module = sys.modules.get("tvm")
    return f", TVM {module.__version__}" if module is not None else ""


def difference(right: Any, value: Any, limit: float) -> tuple[set[str], str] | None:
    """How a result differs from the right one: classes of elements (``nan -> finite``), words; None where it does not.

    ``limit``: error that is still rounding (half of the largest error when this was recorded).
    """
    import torch

    if not right.numel():
        return None
    if not (right.is_floating_point() or right.is_complex()):
        different = right != value
        if not bool(different.any()):
            return None
        index = tuple(different.nonzero()[0].tolist())
        count = int(different.sum())
        return set(), (
            f"expected {right[index].item()} at {list(index)}, found {value[index].item()} ({count} elements differ)"
        )
    if right.is_complex():
        right, value = torch.view_as_real(right.resolve_conj()), torch.view_as_real(value.resolve_conj())
    a, b = right.double(), value.double()
    names = ("finite", "inf", "-inf", "nan")
    kinds = [classes(t) for t in (a, b)]
    different = kinds[0] != kinds[1]
    if bool(different.any()):
        pairs = set(zip(*(k[different].tolist() for k in kinds), strict=True))
        index = tuple(different.nonzero()[0].tolist())
        text = f"expected {a[index].item():g} at {list(index)}, found {b[index].item():g}"
        return {f"{names[x]} -> {names[y]}" for x, y in pairs}, text
    error = torch.where(torch.isfinite(a), (a - b).abs(), torch.zeros((), dtype=torch.float64))
    if float(error.max()) <= limit:
        return None
    index = tuple((error == error.max()).nonzero()[0].tolist())
    return set(), f"expected {a[index].item():.8g} at {list(index)}, found {b[index].item():.8g}"


def classes(tensor: Any) -> Any:
    """For each element 0 where it is finite, 1 for infinity, 2 for minus infinity, 3 for NaN."""
    import torch

    return torch.isnan(tensor) * 3 + (tensor == float("inf")) * 1 + (tensor == -float("inf")) * 2


def shown(tensor: Any) -> str:
    """The first elements of a tensor."""
    values = [f"{v:.8g}" if isinstance(v, float) else str(v) for v in tensor.detach().reshape(-1)[:8].tolist()]
    more = ", ..." if tensor.numel() > 8 else ""
    return f"{tensor.dtype}{list(tensor.shape)} {', '.join(values)}{more}"


if __name__ == "__main__":
    sys.exit(main())
