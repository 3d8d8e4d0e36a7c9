"""An FX graph to Relax expressions: our registry first, TVM's PyTorch front end for the rest."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from tapml.errors import TapmlError, UnsupportedError
from tapml.lowering.context import Context
from tapml.lowering.registry import find
from tapml.suite.call import dtype_name


class GraphImporter(ExportedProgramImporter):  # type: ignore[misc]
    """TVM's importer, driven node by node so that our converters and its own can share one graph.

    ``use_registry`` = False leaves every node to TVM's converters.
    """

    def __init__(
        self, builder: relax.BlockBuilder, target: str, *, use_registry: bool, rounded_to: str | None = None
    ) -> None:
        super().__init__()
        self.block_builder = builder
        self.target = target
        self.use_registry = use_registry
        self.rounded_to = rounded_to
        self.used: list[str] = []

    def translate(self, graph: fx.Graph, inputs: list[Any]) -> list[Any]:
        """The graph's outputs as a flat list of expressions, given one expression for each placeholder."""
        feed = iter(inputs)
        for node in graph.nodes:
            if node.op == "placeholder":
                self.env[node] = next(feed)
            elif node.op == "output":
                return _flatten(self._lookup(node.args[0]))
            elif node.op == "get_attr":
                raise UnsupportedError(f"decomposition holds a constant tensor ({node.target})")
            else:
                self.env[node] = self._convert(node)
        raise UnsupportedError("graph without output")

    def _lookup(self, value: Any) -> Any:
        return fx.node.map_arg(value, lambda n: self.env[n])

    def _convert(self, node: fx.Node) -> Any:
        if not isinstance(node.target, torch._ops.OpOverload):
            if getattr(node.target, "__name__", "") == "getitem":
                source: Any = node.args[0]
                index: Any = node.args[1]
                value = self.env[source]
                if isinstance(value, list | tuple):
                    return value[index]
                return self.block_builder.emit(relax.TupleGetItem(value, index))
            raise UnsupportedError(f"cannot lower a call of {node.target}")
        name = str(node.target)
        entry = find(name, self.target) if self.use_registry else None
        if entry is not None:
            results = [(tuple(v.shape), dtype_name(v.dtype)) for v in _flatten(node.meta["val"])]
            context = Context(self.block_builder, name, results, self.target, self.rounded_to)
            self.used.append(entry.full_name)
            return entry.function(context, *self._lookup(node.args), **self._lookup(node.kwargs))
        short = node.target.__name__
        function = self.convert_map.get(short)
        if function is None:
            raise UnsupportedError(f"neither tapml nor TVM's front end converts {name}") from self._refusal(node)
        self.used.append(f"tvm:{short}")
        try:
            return self._members(function(node))
        except TapmlError:
            raise
        except Exception as error:  # the front end fails in many ways: assertions, KeyError, IndexError, TVM errors
            first = (str(error).strip().splitlines() or [""])[0]
            raise UnsupportedError(f"TVM's front end on {name}: {type(error).__name__}: {first}"[:400]) from error

    def _refusal(self, node: fx.Node) -> Exception | None:
        """What TVM's front end says of an operator that it does not have."""
        try:
            self._check_unsupported_func_type([node])
        except AssertionError as error:
            return error
        return None

    def _members(self, value: Any) -> Any:
        """An expression of tuple type as the list of its members."""
        fields = getattr(getattr(value, "ty", None), "fields", None)
        if fields is None:
            return value
        value = self.block_builder.normalize(value)
        return [self.block_builder.emit(relax.TupleGetItem(value, i)) for i in range(len(fields))]


def _flatten(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _flatten(item)]
    return [] if value is None else [value]
