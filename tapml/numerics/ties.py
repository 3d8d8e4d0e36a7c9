"""Whether differing indices are both right because they point at equal values.

What an integer result means is established by what it does, never by the operator's name:

* it is an index if gathering the input at the recorded indices gives another, floating result of the same call
  (``max``, ``topk``, ``sort``, ``kthvalue``, pooling with indices); or
* being the call's only result, with a ``dim`` argument in the schema, it follows the elements when the input is flipped
  along that dimension (``argmax``, ``argsort``; a count does not, nor does a cast).

The candidate's indices are then right if they are in range, gather equal values (NaN equals NaN) at every position, and
repeat no index in a row where the reference repeats none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from tapml.errors import TapmlError
from tapml.suite.call import Signature, decode_arguments, execute, resolve_operator

Named = Sequence[tuple[str, torch.Tensor]]


def is_tie(
    signature: Signature,
    tensors: Sequence[torch.Tensor],
    name: str,
    results: Named,
    candidate: torch.Tensor,
) -> bool:
    """Whether ``candidate`` (integer, the shape of result ``name``) is as right as the recorded one.

    ``results`` are the recorded results by name.  False whenever that cannot be shown.
    """
    recorded = dict(results)[name]
    if recorded.dtype == torch.bool or recorded.dtype.is_floating_point or recorded.dtype.is_complex:
        return False
    arguments = _arguments(signature, tensors)
    source = next(iter(arguments.values()), None)
    if not isinstance(source, torch.Tensor) or source.numel() == 0 or arguments.get("stable") is True:
        return False
    values = [t for other, t in results if other != name and t.shape == recorded.shape and t.dtype == source.dtype]
    for rows, axis in _layouts(signature, arguments, source, recorded):
        index, other = (_along(i, rows, axis, source) for i in (recorded, candidate))
        if index is None or other is None or not _in_range(index, rows.shape[axis]):
            continue
        gathered = torch.gather(rows, axis, index)
        paired = any(_equal(gathered, _along(v, rows, axis, source)) for v in values)
        if not paired and not (len(results) == 1 and _follows_elements(signature, tensors, axis, arguments)):
            continue
        return (
            _in_range(other, rows.shape[axis])
            and _equal(torch.gather(rows, axis, other), gathered)
            and _no_new_repeats(index, other, axis)
        )
    return False


def _arguments(signature: Signature, tensors: Sequence[torch.Tensor]) -> dict[str, object]:
    """Arguments of the call by the schema's names, defaults included."""
    args, kwargs = decode_arguments(signature.template, tensors)
    schema = resolve_operator(signature.operator)._schema.arguments
    found: dict[str, object] = {a.name: a.default_value for a in schema if a.has_default_value()}
    positional = {a.name: value for a, value in zip(schema, args, strict=False)}
    return {**positional, **{k: v for k, v in found.items() if k not in positional}, **kwargs}


def _layouts(
    signature: Signature, arguments: dict[str, object], source: torch.Tensor, recorded: torch.Tensor
) -> Iterator[tuple[torch.Tensor, int]]:
    """(source, axis) pairs in which the result may be an index along the axis."""
    if any(a.name == "dim" for a in resolve_operator(signature.operator)._schema.arguments):
        dim = arguments.get("dim")
        if isinstance(dim, int) and source.dim() > 0:
            yield source, dim % source.dim()
        elif dim is None or source.dim() == 0:
            yield source.reshape(-1), 0
        return
    if recorded.numel() == 1:
        yield source.reshape(-1), 0
    for trailing in range(1, min(source.dim(), recorded.dim()) + 1):
        yield source.flatten(-trailing), source.dim() - trailing


def _along(result: torch.Tensor, rows: torch.Tensor, axis: int, source: torch.Tensor) -> torch.Tensor | None:
    """``result`` with the number of dimensions of ``rows``, so that it gathers along ``axis``; None if it cannot."""
    if rows.dim() == 1 and source.dim() != 1 and result.numel() == 1:
        return result.reshape(1)
    if rows.dim() < source.dim():
        result = result.flatten(rows.dim() - 1) if result.dim() == source.dim() else result
    elif result.dim() == rows.dim() - 1:
        result = result.unsqueeze(axis)
    if result.dim() != rows.dim():
        return None
    matching = all(a == b for d, (a, b) in enumerate(zip(result.shape, rows.shape, strict=True)) if d != axis)
    if not matching:
        return None
    return result if result.dtype.is_floating_point else result.to(torch.int64)


def _in_range(index: torch.Tensor, extent: int) -> bool:
    return bool(((index >= 0) & (index < extent)).all())


def _equal(a: torch.Tensor, b: torch.Tensor | None) -> bool:
    if b is None or a.shape != b.shape:
        return False
    same = a == b
    if a.dtype.is_floating_point or a.dtype.is_complex:
        same = same | (torch.isnan(a) & torch.isnan(b))
    return bool(same.all())


def _no_new_repeats(recorded: torch.Tensor, candidate: torch.Tensor, axis: int) -> bool:
    def repeats(index: torch.Tensor) -> torch.Tensor:
        ordered = index.sort(dim=axis).values
        count = index.shape[axis] - 1
        return (ordered.narrow(axis, 1, count) == ordered.narrow(axis, 0, count)).any(dim=axis)

    if recorded.shape[axis] < 2:
        return True
    return not bool((repeats(candidate) & ~repeats(recorded)).any())


def _follows_elements(
    signature: Signature, tensors: Sequence[torch.Tensor], axis: int, arguments: dict[str, object]
) -> bool:
    """Run the operator on distinct values, then on the same flipped: an index i must become n - 1 - i."""
    (first, *_) = tensors
    if first.dtype == torch.bool or first.dtype.is_complex:
        return False
    if "dim" not in arguments:
        return False
    flat = not isinstance(arguments["dim"], int)
    extent = first.numel() if flat else first.shape[axis]
    order = torch.randperm(extent, generator=torch.Generator().manual_seed(0))
    order = order.to(torch.float64) if first.dtype.is_floating_point else order
    shape = [1] * first.dim() if not flat else list(first.shape)
    if not flat:
        shape[axis] = extent
        distinct = order.reshape(shape).expand(first.shape).contiguous()
        flipped = distinct.flip(axis)
    else:
        distinct = order.reshape(shape)
        flipped = order.flip(0).reshape(shape)
    try:
        ((_, forward),) = execute(signature, [distinct, *tensors[1:]])
        ((_, backward),) = execute(signature, [flipped, *tensors[1:]])
    except (RuntimeError, ValueError, TypeError, IndexError, TapmlError):
        return False
    return extent == 1 or (math.prod(forward.shape) > 0 and torch.equal(forward, extent - 1 - backward))
