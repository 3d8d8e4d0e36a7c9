"""What a call is, found from its schema and from what it was seen to do; there is no list of operator names."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tapml.suite.call import clone_strided, written_arguments

Operator = torch._ops.OpOverload
Results = Sequence[tuple[str, torch.Tensor]]


class Observation:
    """What has to be noted before a call so that :func:`classify` can judge it afterwards.

    Made for the first call of its kind only: it copies the arguments that the operator writes to, and the state of the
    random generators when the operator is declared to draw from them.
    """

    def __init__(self, func: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.func = func
        self.args, self.kwargs = copy_written(func, args, kwargs)
        self._sizes = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors_in((args, kwargs))}
        self._generators = _generators((args, kwargs)) if torch.Tag.nondeterministic_seeded in func.tags else []
        self._states = [g.get_state() for g in self._generators]

    def drew_random_numbers(self) -> bool:
        return any(not torch.equal(s, g.get_state()) for s, g in zip(self._states, self._generators, strict=True))

    def shares_storage(self, tensor: torch.Tensor) -> bool:
        """Whether ``tensor`` lies in the storage of an argument, which has not grown since."""
        storage = tensor.untyped_storage()
        return storage.nbytes() <= self._sizes.get(storage._cdata, -1)


def classify(portable: Operator, seen: Observation, results: Results) -> str:
    """One of :data:`tapml.suite.case.CLASSES` for a call that was just executed.

    ``portable`` is the operator it is recorded as, ``results`` are its results.  In this order:

    * ``host``: it returns something that is no tensor, or nothing while writing nothing, or the values of its inputs
      decide the shape of what it returns;
    * ``random``: it advanced a random generator (dropout with probability 0 does not);
    * ``view``: it has no results with elements; or it wrote nothing and its results share storage with its arguments;
      or it only changed the metadata of its argument;
    * ``undefined``: its results are whatever was in memory before (``empty_like``, a growing ``resize_``);
    * ``compute``: the rest.
    """
    func = seen.func
    returns = portable._schema.returns
    if any("Tensor" not in str(r.type) for r in returns) or (not returns and not written_arguments(func)):
        return "host"
    if _shape_depends_on_values(seen):
        return "host"
    if seen.drew_random_numbers():
        return "random"
    filled = [t for _, t in results if t.numel()]
    if not filled:
        return "view"
    if torch.Tag.inplace_view in func.tags:
        return "view" if all(map(seen.shares_storage, filled)) else "undefined"
    if not written_arguments(func) and all(map(seen.shares_storage, filled)):
        return "view"
    return "compute"


def is_undefined(seen: Observation, outputs: Sequence[torch.Tensor]) -> bool:
    """Whether all that a call returned depends on what was in memory before it.

    The call is executed again with PyTorch filling fresh memory (NaN, or the largest integer).  An output that then
    differs from the first, and is nothing but the filling, was never written.  An output that is nothing but the
    filling both times is looked at again, with freed memory zeroed: ``full`` of NaN is well defined.

    ``outputs`` are the tensors that the first execution returned.  Operators from outside PyTorch are taken to be
    defined, because executing one twice may have effects.
    """
    if seen.func.namespace != "aten" or not outputs:
        return False
    with _filled_memory():
        again = _run(seen)
    if len(again) != len(outputs) or not all(map(_is_filling, again)):
        return False
    if not all(map(same_bits, outputs, again)):
        return True
    blocks = [torch.zeros(t.untyped_storage().nbytes(), dtype=torch.uint8) for t in outputs for _ in range(4)]
    del blocks
    return not all(map(same_bits, _run(seen), again))


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether shape, dtype and every bit agree (NaN payloads and the sign of zero included)."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(as_bytes(a), as_bytes(b))


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in row-major order as one flat uint8 tensor on the CPU."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().cpu()
    # a single element may have any stride and still call itself contiguous
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of a nested structure of lists, tuples and dictionaries, in order."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def copy_written(func: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments, with copies in place of those that ``func`` writes to."""
    written = written_arguments(func)
    if not written:
        return list(args), dict(kwargs)

    def copy(name: str, value: Any) -> Any:
        if name not in written:
            return value
        return pytree.tree_map_only(torch.Tensor, clone_strided, value)

    names = [a.name for a in func._schema.arguments]
    return [copy(n, v) for n, v in zip(names, args, strict=False)], {n: copy(n, v) for n, v in kwargs.items()}


def _run(seen: Observation) -> list[torch.Tensor]:
    args, kwargs = copy_written(seen.func, seen.args, seen.kwargs)
    return tensors_in(seen.func(*args, **kwargs))


def _is_filling(tensor: torch.Tensor) -> bool:
    if tensor.is_floating_point() or tensor.is_complex():
        return bool(torch.isnan(tensor).all())
    largest = 1 if tensor.dtype == torch.bool else torch.iinfo(tensor.dtype).max
    return bool((tensor == largest).all())


@contextmanager
def _filled_memory() -> Iterator[None]:
    """PyTorch fills fresh memory.  By way of ``torch._C``: the public function imports the compiler, which is slow."""
    deterministic = torch._C._get_deterministic_algorithms()
    warn_only = torch._C._get_deterministic_algorithms_warn_only()
    filling = torch._C._get_deterministic_fill_uninitialized_memory()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch._C._set_deterministic_algorithms(True, warn_only=True)
            torch._C._set_deterministic_fill_uninitialized_memory(True)
            yield
    finally:
        torch._C._set_deterministic_algorithms(deterministic, warn_only=warn_only)
        torch._C._set_deterministic_fill_uninitialized_memory(filling)


def _shape_depends_on_values(seen: Observation) -> bool:
    """Whether the call cannot be executed on meta tensors, which have no values.

    Only asked of operators that are declared to depend on values.  The declaration alone says too much: the shape of
    ``index`` depends on values with a boolean index and not with an integer one.
    """
    declared = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
    if not declared.intersection(seen.func.tags):
        return False
    args, kwargs = pytree.tree_map_only(torch.Tensor, _without_values, (seen.args, seen.kwargs))
    try:
        seen.func(*args, **kwargs)
    except Exception:  # whatever an operator's rule for meta tensors raises when it wants values
        return True
    return False


def _without_values(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


@lru_cache(maxsize=None)
def _cuda_present() -> bool:
    return torch.cuda.is_available()


def _generators(arguments: Any) -> list[torch.Generator]:
    """The generators that a call with these arguments may draw from."""
    given = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Generator)]
    if given:
        return given
    found = [torch.default_generator]
    if _cuda_present():
        found.extend(torch.cuda.default_generators)
    return found
