"""One operator call as a small FX graph: a single node, or PyTorch's decomposition of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from tapml.errors import UnsupportedError
from tapml.suite.call import Json, TensorSpec, decode_arguments, torch_dtype


def meta_tensor(spec: TensorSpec) -> torch.Tensor:
    """A tensor without data; contiguous, since lowered operators see logical elements only."""
    return torch.empty(spec.shape, dtype=torch_dtype(spec.dtype), device="meta")


def single_node(
    operator: torch._ops.OpOverload, template: Json, specs: list[TensorSpec], results: list[TensorSpec]
) -> fx.Graph:
    """A graph whose one node calls ``operator``; no tracing, no export, so that nothing needs a meta function."""
    graph = fx.Graph()
    inputs = []
    for i, spec in enumerate(specs):
        node = graph.placeholder(f"x{i}")
        node.meta["val"] = meta_tensor(spec)
        inputs.append(node)
    args, kwargs = decode_arguments(template, inputs)
    call = graph.call_function(operator, tuple(args), kwargs)
    values = [meta_tensor(spec) for spec in results]
    many = len(operator._schema.returns) > 1 or "[]" in str(operator._schema.returns[0].type)
    call.meta["val"] = tuple(values) if many or len(values) > 1 else values[0]
    graph.output(call)
    return graph


def decomposed(
    operator: torch._ops.OpOverload,
    template: Json,
    specs: list[TensorSpec],
    convertible: Callable[[torch._ops.OpOverload], bool],
) -> fx.Graph:
    """The call after PyTorch's decomposition into operators that are core ATen, or ``convertible``.

    Raises :class:`UnsupportedError` when PyTorch has none, or cannot trace it (an operator without meta function).
    """
    from torch._decomp import core_aten_decompositions, decomposition_table

    def run(*tensors: torch.Tensor) -> Any:
        args, kwargs = decode_arguments(template, tensors)
        return operator(*args, **kwargs)

    table = {**decomposition_table, **core_aten_decompositions()}
    table = {op: f for op, f in table.items() if op is operator or not convertible(op)}
    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = [torch.empty(s.shape, dtype=torch_dtype(s.dtype)) for s in specs]
    try:
        with torch.no_grad():
            traced = make_fx(run, decomposition_table=table, tracing_mode="real")(*inputs)
    except Exception as error:  # PyTorch raises anything here, its message is what matters
        raise UnsupportedError(f"{operator}: PyTorch cannot decompose it: {_first_line(error)}") from error
    calls = [n for n in traced.graph.nodes if n.op == "call_function"]
    if any(n.target is operator for n in calls):
        raise UnsupportedError(f"{operator} has no decomposition into other operators")
    return traced.graph


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
