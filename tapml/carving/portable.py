"""The portable call that a call seen by PyTorch's dispatcher stands for.

The dispatcher's last word depends on the machine: attention becomes a flash, efficient or cuDNN overload, a reshape
becomes ``_unsafe_view``, a cast becomes ``_to_copy`` with a device.  A suite has to mean the same everywhere, so each
of these is recorded under the public operator that says the same thing.  The rewriting concerns the record alone: what
executes in the reference run is the call as it was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any

import torch

aten = torch.ops.aten
Operator = torch._ops.OpOverload
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


@dataclass(frozen=True)
class PortableCall:
    """Operator and arguments of the portable call, and where its output stands in the output of the original.

    ``output`` is None when both return the same, else the index of the portable output in the original's tuple.
    """

    operator: Operator
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: int | None = None

    def select(self, raw: Any) -> Any:
        """Output of the original call -> output of the portable call."""
        return raw if self.output is None else raw[self.output]


Rule = Callable[[Operator, dict[str, Any]], "PortableCall | None"]
"""Operator and its arguments by schema name -> the portable call, or None when the rule has nothing to say."""


def portable(func: Operator, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> PortableCall:
    """The portable call for ``func(*args, **kwargs)``; the tensors in it are those of the original, uncopied.

    Devices are replaced by ``cpu``: where a tensor lives is no property of the numbers.
    """
    kwargs = dict(kwargs or {})
    rules = _rules(func)
    if rules:
        names = [a.name for a in func._schema.arguments]
        bound = {**dict(zip(names, args, strict=False)), **kwargs}
        for rule in rules:
            found = rule(func, bound)
            if found is not None:
                return found
    return PortableCall(func, tuple(_off_device(a) for a in args), {k: _off_device(v) for k, v in kwargs.items()})


@lru_cache(maxsize=None)
def is_composite(func: Operator) -> bool:
    """Whether ``func`` is made of other operators, and should be seen as those.

    Attention is the exception: its parts depend on the machine, so the whole is what can be ported.
    """
    if func is aten.scaled_dot_product_attention.default:
        return False
    return _COMPOSITE in func.py_kernels or torch._C._dispatch_has_kernel_for_dispatch_key(func._name, _COMPOSITE)


def take_apart(func: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Execute a composite operator by way of the operators that it is made of.

    PyTorch has second, Python versions of some for its compiler (in them, dropout that does nothing copies); what
    counts is the one that runs outside inference mode.
    """
    if torch._C._dispatch_has_kernel_for_dispatch_key(func._name, _COMPOSITE):
        return func._op_dk(_COMPOSITE, *args, **kwargs)
    return func.decompose(*args, **kwargs)


def _off_device(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) else value


@lru_cache(maxsize=None)
def _rules(func: Operator) -> tuple[Rule, ...]:
    """The rules that may apply to an operator, found from its name and schema once."""
    namespace, _, name = func._schema.name.partition("::")
    if namespace != "aten":
        return ()
    arguments = {a.name for a in func._schema.arguments}
    if name.startswith("_scaled_dot_product_") and arguments >= {"query", "key", "value", "dropout_p", "is_causal"}:
        return (_attention,)
    if name.startswith("_unsafe_"):
        return (_without_unsafe,)
    return _BY_OPERATOR.get(func, ())


_ATTENTION_ARGUMENTS = ("attn_mask", "attn_bias", "dropout_p", "is_causal", "scale", "enable_gqa")
_NEUTRAL_ARGUMENTS = ("compute_log_sumexp", "return_debug_mask")


def _attention(func: Operator, bound: dict[str, Any]) -> PortableCall | None:
    """Any backend's attention (its first output) -> ``aten.scaled_dot_product_attention``."""
    query, key, value = bound["query"], bound["key"], bound["value"]
    unknown = set(bound) - {"query", "key", "value", *_ATTENTION_ARGUMENTS, *_NEUTRAL_ARGUMENTS}
    if any(bound[name] is not None for name in unknown):
        return None  # descales of the quantized overload, a dropout mask: nothing portable says that
    target = aten.scaled_dot_product_attention.default
    given = {name: bound[name] for name in _ATTENTION_ARGUMENTS if name in bound}
    if "attn_bias" in given:
        given["attn_mask"] = given.pop("attn_bias")
    if query.dim() == key.dim() == 4 and query.shape[1] != key.shape[1]:
        given["enable_gqa"] = True
    defaults = {a.name: a.default_value for a in target._schema.arguments if a.has_default_value()}
    kwargs = {k: v for k, v in given.items() if not (v is defaults[k] or _same_plain(v, defaults[k]))}
    return PortableCall(target, (query, key, value), kwargs, output=0 if len(func._schema.returns) > 1 else None)


def _same_plain(value: Any, other: Any) -> bool:
    return type(value) is type(other) and isinstance(value, bool | int | float | str) and value == other


def _without_unsafe(func: Operator, bound: dict[str, Any]) -> PortableCall | None:
    """``_unsafe_X`` -> ``X`` where there is one with the same arguments."""
    name = func._schema.name.partition("::")[2].removeprefix("_unsafe_")
    safe = getattr(getattr(aten, name, None), func._overloadname, None)
    if safe is None or _argument_types(safe) != _argument_types(func):
        return None
    names = [a.name for a in safe._schema.arguments]
    positional = list(takewhile(bound.__contains__, names))
    return PortableCall(
        safe, tuple(bound[n] for n in positional), {n: v for n, v in bound.items() if n not in positional}
    )


def _argument_types(func: Operator) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in func._schema.arguments]


def _cast(func: Operator, bound: dict[str, Any]) -> PortableCall | None:
    """``_to_copy`` -> ``to.dtype``; ``clone`` when the dtype stays and at most the device changes."""
    tensor, dtype = bound["self"], bound.get("dtype")
    if bound.get("layout") not in (None, torch.strided):
        return None
    memory_format = bound.get("memory_format")
    kwargs = {} if memory_format in (None, torch.preserve_format) else {"memory_format": memory_format}
    if dtype is None or dtype == tensor.dtype:
        return PortableCall(aten.clone.default, (tensor,), kwargs)
    return PortableCall(aten.to.dtype, (tensor, dtype), kwargs)


def _reshape_alias(func: Operator, bound: dict[str, Any]) -> PortableCall | None:
    """``_reshape_alias(x, size, stride)`` -> ``view(x, size)``: the strides follow from the size."""
    return PortableCall(aten.view.default, (bound["self"], bound["size"]), {})


_BY_OPERATOR: dict[Operator, tuple[Rule, ...]] = {
    aten._to_copy.default: (_cast,),
    aten._reshape_alias.default: (_reshape_alias,),
}
