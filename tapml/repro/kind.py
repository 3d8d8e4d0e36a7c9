"""What kind of failure a failure is: shrinking may not turn one into another."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from tapml.suite.call import Json, laid_out

STAGES = ("convert", "compile", "load", "run", "result")
"""Where it shows: no module for the operator; no code for the module; the device's own compiler; execution; the numbers."""

_WORDS = 160
_PREFIX = re.compile(
    r"^(?:LLVM|TVM|no TIR for this module|TVM's front end on \S+|\S+ refused \S+|\w+(?:Error|Exception)): "
)
_IMPRECISE = 0.01
"""Relative error up to which a wrong result is an imprecise one."""


@dataclass(frozen=True)
class Kind:
    """``stage``: of :data:`STAGES`.  ``code``: of a verdict, or what happened (``refused``, ``crashed``, ``timed out``).
    ``result``: which one is wrong.  ``words``: of an error, without numbers and names.  ``patterns``: what was expected
    and what was found, in classes (``nan -> finite``)."""

    stage: str
    code: str
    result: str = ""
    words: str = ""
    patterns: frozenset[str] = frozenset()

    def admits(self, other: Kind) -> bool:
        """Whether ``other`` is this failure again; it may show fewer of its patterns, but no new one."""
        same = (self.stage, self.code, self.result, self.words) == (other.stage, other.code, other.result, other.words)
        return same and other.patterns <= self.patterns and bool(other.patterns) == bool(self.patterns)

    def __str__(self) -> str:
        where = f" of {self.result}" if self.result else ""
        detail = self.words or ", ".join(sorted(self.patterns))
        return f"{self.code}{where}{f': {detail}' if detail else ''}"

    def to_json(self) -> Json:
        return {
            "stage": self.stage,
            "code": self.code,
            "result": self.result,
            "words": self.words,
            "patterns": sorted(self.patterns),
        }


def essence(message: str) -> str:
    """An error message without what prefixes it, numbers, names of variables and shapes."""
    text = " ".join(message.split())
    while (found := _PREFIX.match(text)) is not None:
        text = text[found.end() :]
    text = re.sub(r"[\[(][\d\s,.x-]+[\])]", "#", text)
    text = re.sub(r"0x[0-9a-fA-F]+|-?\d[\d.,]*(?:e[+-]?\d+)?", "#", text)
    return text[:_WORDS].strip()


def of_error(stage: str, message: str, code: str = "refused") -> Kind:
    """The kind of an error with its words."""
    return Kind(stage, code, words=essence(message))


def where_reference_is_off(expected: torch.Tensor, exact: torch.Tensor | None) -> torch.Tensor | None:
    """The float64 result in the dtype and memory of ``expected``, PyTorch's, if one is finite where the other is not."""
    if exact is None or not expected.dtype.is_floating_point or expected.shape != exact.shape or not expected.numel():
        return None
    rounded = exact.detach().to(expected.dtype)
    different = _classes(rounded.double()) != _classes(expected.double())
    return laid_out(rounded, expected.stride()) if bool(different.any()) else None


def yardstick(expected: torch.Tensor, exact: torch.Tensor | None, found: torch.Tensor) -> torch.Tensor:
    """What ``found`` is to be compared with: PyTorch's result, but the float64 one where a candidate is finite, or not, as
    float64 is and PyTorch is not (as in :func:`tapml.numerics.patterns.match_pattern`)."""
    if exact is None or found.shape != expected.shape or found.dtype != expected.dtype:
        return expected
    wanted, had, got = (_classes(t.double()) for t in (exact, expected, found))
    return torch.where((got == wanted) & (got != had), exact, expected)


def of_values(code: str, result: str, expected: torch.Tensor, found: torch.Tensor) -> Kind:
    """The kind of a wrong result: classes of the elements that differ, and how large the largest error is.

    ``expected``: the :func:`yardstick`.
    """
    if expected.shape != found.shape or expected.dtype != found.dtype or not expected.numel():
        return Kind("result", code, result)
    if expected.is_complex():
        expected, found = torch.view_as_real(expected.resolve_conj()), torch.view_as_real(found.resolve_conj())
    if not expected.dtype.is_floating_point:
        return Kind("result", code, result)
    a, b = expected.double().reshape(-1), found.double().reshape(-1)
    pairs = torch.unique(_classes(a) * len(_CLASSES) + _classes(b)).tolist()
    different = [divmod(pair, len(_CLASSES)) for pair in pairs if pair % (len(_CLASSES) + 1)]
    if code == "nonfinite-pattern" and different:
        return Kind("result", code, result, patterns=frozenset(f"{_CLASSES[x]} -> {_CLASSES[y]}" for x, y in different))
    finite = torch.isfinite(a) & torch.isfinite(b)
    error = torch.where(finite, (a - b).abs(), torch.zeros(()))
    worst = int(error.argmax())
    return Kind("result", code, result, patterns=frozenset([_magnitude(float(a[worst]), float(b[worst]))]))


_CLASSES = ("finite", "inf", "-inf", "nan")


def _classes(values: torch.Tensor) -> torch.Tensor:
    """For each element, an index into :data:`_CLASSES`."""
    kind = torch.zeros(values.shape, dtype=torch.int64)
    kind[values == float("inf")] = 1
    kind[values == -float("inf")] = 2
    kind[torch.isnan(values)] = 3
    return kind


def _magnitude(expected: float, found: float) -> str:
    if expected != 0 and found == -expected:
        return "sign"
    scale = max(abs(expected), abs(found))
    return "imprecise" if abs(expected - found) <= _IMPRECISE * scale else "wrong value"
