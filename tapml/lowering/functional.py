"""The functional operator that an in-place or ``out=`` operator stands for."""

from __future__ import annotations

from functools import lru_cache

import torch

from tapml.errors import UnsupportedError
from tapml.suite.call import Json, written_arguments


@lru_cache(maxsize=None)
def functional_overload(operator: torch._ops.OpOverload) -> torch._ops.OpOverload:
    """``aten.add_.Tensor`` or ``aten.add.out`` -> ``aten.add.Tensor``; an operator that writes nothing is its own.

    The rule is PyTorch's own naming (an in-place operator ends in an underscore) and the schema: the overload that takes
    the same arguments, but for those that are only written to, and writes nothing.  Raises :class:`UnsupportedError`
    where there is none (``resize_``).
    """
    if not written_arguments(operator):
        return operator
    namespace, name = operator._schema.name.split("::")
    in_place = name.endswith("_") and not name.endswith("__")
    python = "__" + name.removeprefix("__i") if name.startswith("__i") else name  # `a |= b` is __ior__
    for base in (name.removesuffix("_") if in_place else python, name.removesuffix("_") + "_functional"):
        packet = getattr(getattr(torch.ops, namespace), base, None)
        if packet is None:
            continue
        overloads: list[torch._ops.OpOverload] = [getattr(packet, o) for o in packet.overloads()]
        found = [overload for overload in overloads if _takes_the_same(overload, operator)]
        if found:
            same_name = [overload for overload in found if overload._overloadname == operator._overloadname]
            return (same_name or found)[0]
    raise UnsupportedError(f"{operator} changes its arguments and has no functional counterpart")


def _takes_the_same(functional: torch._ops.OpOverload, operator: torch._ops.OpOverload) -> bool:
    """Whether ``functional`` writes nothing and takes what ``operator`` does; what it takes besides has defaults."""
    given = {a.name: str(a.type) for a in operator._schema.arguments if not a.is_out}
    wanted = {a.name: str(a.type) for a in functional._schema.arguments}
    optional = {a.name for a in functional._schema.arguments if a.has_default_value()}
    return (
        not written_arguments(functional)
        and all(wanted.get(name) == type_ for name, type_ in given.items())
        and set(wanted) - set(given) <= optional
    )


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
