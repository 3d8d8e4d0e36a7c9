"""A reference that can be run any number of times: the PyTorch program, its inputs, its seed."""

from __future__ import annotations

import dataclasses
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

import tapml
from tapml.errors import TapmlError, UsageError

Outputs = dict[str, torch.Tensor]

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}
"""Names that ``--dtype`` takes."""


class Reference:
    """What :func:`tapml.carving.sources.load_source` returns.

    ``call`` is given a fresh copy of ``inputs`` (any nested structure) and returns any nested structure with tensors in
    it; ``select`` picks from that what is compared.  ``checkpoint`` maps names of parameters to the safetensors files
    that they were loaded from.
    """

    def __init__(
        self,
        *,
        description: str,
        call: Callable[[Any], Any],
        inputs: Any = None,
        select: Callable[[Any], Any] | None = None,
        model: torch.nn.Module | None = None,
        seed: int = 0,
        to_text: Callable[[Outputs], str] | None = None,
        checkpoint: Mapping[str, Path] | None = None,
    ) -> None:
        self.description = description
        self.model = model
        self._call = call
        self._inputs = inputs
        self._select = select
        self._seed = seed
        self._to_text = to_text
        self._checkpoint = _by_storage(model, checkpoint or {})

    @property
    def has_checkpoint(self) -> bool:
        """Whether any parameter may lie in a safetensors file."""
        return bool(self._checkpoint)

    def run(self, mode: AbstractContextManager[Any] | None = None) -> Outputs:
        """Run once, without gradients, from the seed; returns copies of the tensors that came out, by name.

        ``mode`` (a recorder) is active for the program alone, not for the copying of inputs and outputs.
        Raises :class:`UsageError` when the program raises, or nothing that came out is a tensor.
        """
        with torch.no_grad():
            inputs = pytree.tree_map_only(torch.Tensor, torch.clone, self._inputs)
            torch.manual_seed(self._seed)
            with user_code("the reference"), mode if mode is not None else nullcontext():
                output = self._call(inputs)
            return name_outputs(self._select(output) if self._select is not None else output)

    def text(self, outputs: Outputs) -> str:
        """What the outputs say, decoded, to be shown; empty when they are no text."""
        return self._to_text(outputs) if self._to_text is not None else ""

    def external(self, tensor: torch.Tensor) -> tuple[str | os.PathLike[str], str] | None:
        """(safetensors file, name) of the checkpoint tensor that ``tensor``'s storage was loaded from, if any.

        Whether the bits are still the checkpoint's is for the caller to compare.
        """
        return self._checkpoint.get(tensor.untyped_storage()._cdata)


_OURS, _PYTORCH = (os.path.dirname(os.path.abspath(str(m.__file__))) + os.sep for m in (tapml, torch))


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """An exception of the user's code becomes a :class:`UsageError` which says where it was raised.

    Those that tapml itself raises, by intent or by a defect, pass.
    """
    try:
        yield
    except (TapmlError, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit too: a script that parses arguments when it is imported
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [f for f in frames if not f.filename.startswith((_OURS, _PYTORCH))]
        if isinstance(error, SyntaxError) and error.filename:
            where = f"{error.filename}:{error.lineno}"
        elif not frames[-1].filename.startswith(_OURS):
            shown = theirs[-1] if theirs else frames[-1]
            where = f"{shown.filename}:{shown.lineno}"
        elif isinstance(error, ImportError | TypeError):  # raised by the call itself: a missing module, other arguments
            where = "no line of its own"
        else:
            raise
        raise UsageError(
            f"{what} raised {type(error).__name__}: {error} ({where})",
            hint="it has to work in plain Python first: call it there",
        ) from error


def name_outputs(output: Any) -> Outputs:
    """Flatten what a program returned into named tensors: ``output``, ``output.0``, ``output.logits.1``; copies.

    Dictionaries (with all their string keys, as those of model outputs) give plain names at the top level: ``logits``.
    Raises :class:`UsageError` when there is no tensor.
    """
    found: Outputs = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found[name or "output"] = value.detach().clone()
        elif isinstance(value, Mapping):
            for key, item in value.items():
                walk(f"{name}.{key}" if name else str(key), item)
        elif isinstance(value, list | tuple):
            fields = getattr(value, "_fields", range(len(value)))
            for key, item in zip(fields, value, strict=True):
                walk(f"{name or 'output'}.{key}", item)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            for field in dataclasses.fields(value):
                walk(f"{name or 'output'}.{field.name}", getattr(value, field.name))

    walk("", output)
    if not found:
        raise UsageError(
            f"expected the reference to return tensors, found {type(output).__name__}",
            hint="return what should be compared: a tensor, or a list, tuple or dictionary of them",
        )
    return found


def cast_floats(value: Any, dtype: torch.dtype | None) -> Any:
    """``value`` with its floating-point tensors in ``dtype`` (``None``: as they are)."""
    if dtype is None:
        return value
    return pytree.tree_map_only(torch.Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, value)


def require_evaluation_mode(model: torch.nn.Module) -> None:
    """Raise :class:`UsageError` when ``model`` or one of its modules is in training mode."""
    for name, module in model.named_modules():
        if module.training:
            raise UsageError(
                f"expected a model in evaluation mode, found {name or type(module).__name__} in training mode",
                hint="call .eval() on the model before it is carved",
            )


def _by_storage(
    model: torch.nn.Module | None, checkpoint: Mapping[str, Path]
) -> dict[int, tuple[str | os.PathLike[str], str]]:
    """Storage pointer -> (file, name), for the parameters and buffers that the checkpoint has.

    A model with a head on top names its parameters with a prefix which the checkpoint may lack, or the reverse.
    """
    if model is None or not checkpoint:
        return {}
    prefix = str(getattr(model, "base_model_prefix", ""))
    found: dict[int, tuple[str | os.PathLike[str], str]] = {}
    named: Iterable[tuple[str, torch.Tensor]] = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    for name, tensor in named:
        for candidate in _candidates(name, prefix):
            if candidate in checkpoint:
                found.setdefault(tensor.untyped_storage()._cdata, (checkpoint[candidate], candidate))
                break
    return found


def _candidates(name: str, prefix: str) -> Sequence[str]:
    return (name, f"{prefix}.{name}", name.removeprefix(f"{prefix}.")) if prefix else (name,)
