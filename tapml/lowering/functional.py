"""The functional operator that an in-place or ``out=`` operator stands for."""

from __future__ import annotations

from functools import lru_cache

import torch

from tapml.errors import UnsupportedError
from tapml.suite.call import Json, written_arguments


@lru_cache(maxsize=None)
def functional_overload(operator: torch._ops.OpOverload) -> torch._ops.OpOverload:
    """``aten.add_.Tensor`` or ``aten.add.out`` -> ``aten.add.Tensor``; an operator that writes nothing is its own.

    The rule is PyTorch's own naming: an in-place operator ends in an underscore, an ``out=`` overload is named ``out``
    or ``X_out``.  Raises :class:`UnsupportedError` where there is no such operator (``resize_``).
    """
    if not written_arguments(operator):
        return operator
    namespace, name = operator._schema.name.split("::")
    overload = operator._overloadname
    if name.endswith("_") and not name.endswith("__"):
        candidates = [(name[:-1], overload)]
    elif overload == "out":
        candidates = [(name, "default"), (name, "Tensor"), (name, "self")]
    elif overload.endswith("_out"):
        candidates = [(name, overload.removesuffix("_out"))]
    else:
        candidates = [(name + "_functional", overload)]
    for packet, overload_name in candidates:
        found = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload_name, None)
        if isinstance(found, torch._ops.OpOverload) and not written_arguments(found):
            return found
    raise UnsupportedError(f"{operator} changes its arguments and has no functional counterpart")


def functional_arguments(operator: torch._ops.OpOverload, template: Json) -> Json:
    """The template with what only the writing variant takes (``out=`` arguments) left out."""
    args, kwargs = template
    functional = functional_overload(operator)
    if functional is operator:
        return template
    accepted = {a.name for a in functional._schema.arguments}
    names = [a.name for a in operator._schema.arguments]
    positional = [a for n, a in zip(names, args, strict=False) if n in accepted]
    return [positional, {k: v for k, v in kwargs.items() if k in accepted}]
