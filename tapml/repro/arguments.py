"""Fewer and simpler arguments: defaults, no optional tensors, shorter lists, small numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from tapml.repro.extents import leaves, replaced
from tapml.repro.subject import Subject
from tapml.suite.call import Json, Signature, resolve_operator


def simpler_arguments(subject: Subject) -> Iterator[tuple[str, Subject]]:
    """(what was done, the call) for everything that is one step simpler."""
    template = Signature(subject.operator, subject.arguments, ()).template
    tensors = [memory.tensor() for memory in subject.tensors]
    declared = resolve_operator(subject.operator)._schema.arguments
    args, kwargs = template

    def made(changed: Json, what: str) -> tuple[str, Subject]:
        return what, Subject.made(subject.operator, changed, tensors)

    for name in kwargs:
        argument = next((a for a in declared if a.name == name), None)
        if argument is not None and argument.has_default_value():
            yield made([args, {k: v for k, v in kwargs.items() if k != name}], f"without {name}")
    if args and len(args) <= len(declared) and declared[len(args) - 1].has_default_value():
        yield made([args[:-1], kwargs], f"without {declared[len(args) - 1].name}")
    for i, (argument, value) in enumerate(zip(declared, args, strict=False)):
        if isinstance(argument.type, torch.OptionalType) and value is not None:
            yield made(replaced(template, (0, i), None), f"{argument.name} = None")
        if isinstance(value, list) and len(value) > 1:
            for j in range(len(value)):
                shorter = [v for k, v in enumerate(value) if k != j]
                yield made(replaced(template, (0, i), shorter), f"{argument.name} without entry {j}")
    for path, value in leaves(template):
        for other in _simpler_numbers(value):
            where = declared[int(str(path[1]))].name if path[0] == 0 else str(path[1])
            yield made(replaced(template, path, other), f"{where} {value} -> {other}")


def _simpler_numbers(value: Json) -> Iterator[Json]:
    if value is True:
        yield False
    elif type(value) in (int, float):
        yield from (type(value)(other) for other in simpler_values(float(value), whole=type(value) is int))


def simpler_values(value: float, *, whole: bool) -> list[float]:
    """Values to put in the place of one, the simplest first; each is simpler than it (see :func:`complexity`)."""
    if math.isnan(value) or math.isinf(value):
        candidates = [0.0, 1.0]
    else:
        sign = math.copysign(1.0, value)
        candidates = [0.0, 1.0, sign, 2.0 * sign, float(round(value))]
        candidates += [float(f"{value:.{digits}g}") for digits in (1, 2, 3)]
        candidates += [sign * 2.0 ** round(math.log2(abs(value)))] if value and abs(value) < 1e300 else []
        candidates += [value / 2] if whole else []
    found = dict.fromkeys(float(int(c)) if whole else c for c in candidates)
    return [c for c in found if complexity(c) < complexity(value)]


def complexity(value: float) -> tuple[int, float]:
    """0, 1, -1, small whole numbers, NaN and infinities, large whole numbers, others by their digits."""
    if math.isnan(value) or math.isinf(value):
        return 2, 0.0
    if value == 0:
        return 0, 0.0 if math.copysign(1.0, value) > 0 else 0.5
    if value == int(value) and abs(value) < 1e6:
        return (0 if abs(value) <= 1 else 1 if abs(value) < 100 else 3), 2 * abs(value) + (value < 0)
    return 4, float(len(f"{abs(value):.9g}"))
