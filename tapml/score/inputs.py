"""Inputs beside the carved ones: as many random ones, and others that tell a defect from an equivalent change."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from tapml.boundary import values
from tapml.lowering.lower import span
from tapml.suite.call import TensorSpec, clone_strided, execute, has_overlap
from tapml.suite.case import Case

CARVED, RANDOM, OTHER = "carved", "random", "other"
LARGE = 1 << 22
"""Elements of all arguments together from which on there are fewer inputs, and fewer defects: each costs seconds."""


@dataclass(frozen=True)
class Input:
    """A call to judge a candidate on.  ``group``: :data:`CARVED`, :data:`RANDOM` (N(0, 1), integers and masks as carved),
    or :data:`OTHER`."""

    group: str
    name: str
    case: Case


def is_large(case: Case) -> bool:
    """Whether to be sparing with it."""
    return sum(t.numel() for t in case.tensors) > LARGE


def random_inputs(cases: Sequence[Case], seed: int) -> Iterator[Input]:
    """For each case one whose floating arguments are drawn from N(0, 1), with the same shapes, dtypes and strides.

    One only where the arguments are large.
    """
    for number, case in enumerate(cases[: 1 if is_large(cases[0]) else None]):
        generator = _generator(seed, case.id, "random")
        made = _made(case, [_floats(t, _normal, generator) if t.is_floating_point() else t for t in case.tensors])
        if made is not None:
            yield Input(RANDOM, f"random {number}", made)


def other_inputs(cases: Sequence[Case], seed: int) -> Iterator[Input]:
    """Inputs of many kinds, as far as PyTorch executes them; a call without tensors has none.

    Floats of other magnitudes, exact ties, one NaN or infinity; integers permuted, shifted, in a wider range, and as
    large as indices can be; bools at random, all alike, and all but one.
    """
    case = cases[0]
    large = is_large(case)
    for name, floats, integers in _DRAWS[: 1 if large else None]:
        generator = _generator(seed, case.id, name)
        drawn = [
            _floats(t, floats, generator) if t.is_floating_point() else _integers(t, integers, generator)
            for t in case.tensors
        ]
        made = _made(case, drawn)
        if made is not None and case.tensors:
            yield Input(OTHER, name, made)
    for index, tensor in enumerate(case.tensors if not large else ()):
        for what, change in _special(case, tensor):
            changed = list(case.tensors)
            changed[index] = change(tensor)
            made = _made(case, changed)
            if made is not None:
                yield Input(OTHER, f"argument {index}: {what}", made)
    for extent in _extents(case):
        generator = _generator(seed, case.id, "below")
        below = [_integers(t, _below(extent), generator) for t in case.tensors]
        made = _made(case, [t if t.is_floating_point() else b for t, b in zip(case.tensors, below, strict=True)])
        if made is None:
            continue
        yield Input(OTHER, f"integers from 0 to {extent - 1}", made)
        largest = [_integers(t, partial(_same, value=extent - 1), generator) for t in made.tensors]
        last = _made(case, [n if _is_integer(t) else t for t, n in zip(made.tensors, largest, strict=True)])
        if last is not None:
            yield Input(OTHER, f"integers all {extent - 1}", last)
        break


def _extents(case: Case) -> list[int]:
    """What indices into the arguments are below, if there are integers that can be any; the largest first."""
    if not any(_is_integer(t) and t.numel() for t in case.tensors):
        return []
    return sorted({extent for t in case.tensors for extent in t.shape if extent > 1}, reverse=True)


def _is_integer(tensor: torch.Tensor) -> bool:
    return tensor.dtype != torch.bool and not tensor.is_floating_point() and not tensor.is_complex()


def _special(case: Case, tensor: torch.Tensor) -> Sequence[tuple[str, Callable[[torch.Tensor], torch.Tensor]]]:
    """Values of one argument that tell things apart which others do not."""
    if not tensor.numel() or has_overlap(tensor.shape, tensor.stride()):
        return []
    if tensor.is_floating_point():
        found = [(what, partial(values.change, what=what)) for what in _FLOATS if tensor.shape or "row" not in what]
        if tensor.shape:
            found += [(f"the {which} of a row largest", partial(_largest, place=p)) for which, p in _ENDS]
        return found
    if tensor.dtype == torch.bool:
        return [
            (f"{first} but for the {which}", partial(_odd, value=first, place=place))
            for first in (False, True)
            for which, place in _ENDS
        ] + [(f"all {value}", partial(_all, value=value)) for value in (False, True)]
    return []


def _largest(tensor: torch.Tensor, place: int) -> torch.Tensor:
    """The same, but for one element of each row along the last dimension."""
    found = clone_strided(tensor)
    found[..., place] = 2 * tensor.where(tensor.isfinite(), 0).abs().max() + 1
    return found


def _all(tensor: torch.Tensor, value: bool) -> torch.Tensor:
    return clone_strided(tensor).fill_(value)


def _odd(tensor: torch.Tensor, value: bool, place: int) -> torch.Tensor:
    """All of one value, but for one element."""
    flat = torch.full((tensor.numel(),), value)
    flat[place] = not value
    return clone_strided(tensor).copy_(flat.reshape(tensor.shape))


def _generator(seed: int, case: str, name: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(f"{seed} {case} {name}".encode()))


def _made(case: Case, tensors: Sequence[torch.Tensor]) -> Case | None:
    """The call with other arguments and PyTorch's results for them; ``None`` where PyTorch refuses it."""
    try:
        with torch.no_grad():
            results = tuple((n, t.detach().clone()) for n, t in execute(case.signature, tensors))
    except Exception:  # PyTorch raises whatever it likes: what it refuses is no call
        return None
    if [(n, r.dtype, r.shape) for n, r in results] != [(n, r.dtype, r.shape) for n, r in case.results]:
        return None
    return Case(case.id, case.signature, case.origin, tuple(tensors), results)


# -- drawing ------------------------------------------------------------------------------------------------------------

Floats = Callable[[int, torch.Generator], torch.Tensor]
Integers = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def _floats(tensor: torch.Tensor, draw: Floats, generator: torch.Generator) -> torch.Tensor:
    """In memory as ``tensor`` is: what it repeats stays one value."""
    flat = draw(span(TensorSpec.of(tensor)), generator).to(tensor.dtype)
    return torch.as_strided(flat, tensor.shape, tensor.stride()) if tensor.numel() else tensor


def _integers(tensor: torch.Tensor, draw: Integers, generator: torch.Generator) -> torch.Tensor:
    if tensor.is_complex() or not tensor.numel() or has_overlap(tensor.shape, tensor.stride()):
        return tensor
    is_bool = tensor.dtype == torch.bool
    drawn = torch.rand(tensor.shape, generator=generator) < 0.5 if is_bool else draw(tensor, generator)
    return clone_strided(tensor).copy_(drawn)


def _normal(count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(count, generator=generator)


def _scaled(factor: float) -> Floats:
    return lambda count, generator: _normal(count, generator) * factor


def _positive(count: int, generator: torch.Generator) -> torch.Tensor:
    return _normal(count, generator).abs() + 0.1


def _magnitudes(count: int, generator: torch.Generator) -> torch.Tensor:
    return _normal(count, generator) * 10 ** (torch.rand(count, generator=generator) * 8 - 4)


def _rounded(count: int, generator: torch.Generator) -> torch.Tensor:
    return (2 * _normal(count, generator)).round()


def _permuted(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return tensor.flatten()[torch.randperm(tensor.numel(), generator=generator)].reshape(tensor.shape)


def _next(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return tensor + 1


def _before(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return tensor - 1


def _below(extent: int) -> Integers:
    return lambda tensor, generator: torch.randint(0, extent, tensor.shape, generator=generator)


def _same(tensor: torch.Tensor, generator: torch.Generator, value: int) -> torch.Tensor:
    return torch.full(tensor.shape, value)


def _wide(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Of magnitudes from 200 to 1000, as far as the dtype has them: more than 8 bits."""
    info = torch.iinfo(tensor.dtype)
    drawn = torch.randint(200, 1001, tensor.shape, generator=generator)
    signs = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
    return (drawn * signs).clamp(max(info.min, -1000), min(info.max, 1000))


def _small(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """What integers are compared with."""
    return torch.randint(-1, 3, tensor.shape, generator=generator)


_DRAWS: tuple[tuple[str, Floats, Integers], ...] = (
    ("N(0, 1), integers permuted", _normal, _permuted),
    ("N(0, 100^2), integers plus 1", _scaled(100.0), _next),
    ("N(0, 0.001^2), integers minus 1", _scaled(0.001), _before),
    ("positive, integers of magnitudes from 200 to 1000", _positive, _wide),
    ("magnitudes from 1e-4 to 1e4", _magnitudes, _permuted),
    ("whole numbers, integers from -1 to 2", _rounded, _small),
)
_ENDS = (("first", 0), ("last", -1))
_FLOATS = ("one NaN", "one Inf", "one -Inf", "a row of -Inf", "ties")
