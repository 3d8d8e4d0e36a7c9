"""A recorded call as Python text."""

from __future__ import annotations

import keyword
import math

import torch

from tapml.errors import UnsupportedError
from tapml.suite.call import Json, Signature, resolve_operator, written_arguments

_ATTRIBUTES = ("dtype", "layout", "memory_format")


def call_text(signature: Signature) -> str:
    """A module with a function ``call`` of the tensors, that calls the operator as it was called."""
    args, kwargs = signature.template
    written = [literal(a) for a in args]
    written += [f"{name}={literal(value)}" if _plain(name) else f"**{{{name!r}: {literal(value)}}}" for name, value in
                kwargs.items()]  # fmt: skip
    names = ", ".join(f"x{i}" for i in range(len(signature.tensors)))
    return (
        f'"""{signature.operator} as it was called."""\n\n'
        "import torch\n\n\n"
        f"def call({names}):\n"
        f"    return torch.ops.{signature.operator}({', '.join(written)})\n"
    )


def _plain(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def literal(value: Json) -> str:
    """An argument of a template as a Python expression.  Raises :class:`UnsupportedError` for what is none."""
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if not isinstance(value, dict):
        return repr(value)
    ((kind, data),) = value.items()
    if kind == "tensor":
        return f"x{data}"
    if kind == "float":
        return f"float({data!r})"
    if kind == "complex":
        return f"complex(float({data[0]!r}), float({data[1]!r}))"
    if kind in _ATTRIBUTES:
        return f"torch.{data}"
    if kind == "device":
        return f"torch.device({data!r})"
    if kind == "generator":
        return "None"
    raise UnsupportedError(f"an argument that has no text: {str(value)[:80]}")


def returns(operator: str) -> Json:
    """How results are found in what the operator returns: ``many`` values or one, and which are arguments written to."""
    overload = resolve_operator(operator)
    declared = overload._schema.returns
    aliases = [i for i, r in enumerate(declared) if r.alias_info is not None and r.alias_info.is_write]
    assert len(aliases) == 0 or written_arguments(overload)
    return {"many": len(declared) != 1 or isinstance(declared[0].type, torch.ListType), "aliases": aliases}
