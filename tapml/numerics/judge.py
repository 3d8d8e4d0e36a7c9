"""The judgement of a candidate on a call: the rules of ``docs/numerics.md``, in the order in which they decide.

For floating results: shape and dtype; unwritten elements are left out; the pattern of NaN and infinities; equality
with the recorded result; absorbed overflow; errors that stand out (:mod:`tapml.numerics.screens`) and exceed what
rounding can do (:mod:`tapml.numerics.sensitivity`); one-sided rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tapml.numerics.metrics import figures, histogram, residuals, rms
from tapml.numerics.oracle import Oracle, float64_results
from tapml.numerics.overflow import absorbed_overflow, headroom_warning
from tapml.numerics.patterns import match_pattern
from tapml.numerics.rounding import judge_errors
from tapml.numerics.sensitivity import Sensitivity, TypicalScale
from tapml.numerics.ties import is_tie
from tapml.numerics.tolerance import REFERENCE_OFF, limits_of
from tapml.numerics.verdict import ResultVerdict, Verdict
from tapml.suite.call import Signature, TensorSpec

Named = Sequence[tuple[str, torch.Tensor]]


def judge(
    signature: Signature,
    tensors: Sequence[torch.Tensor],
    reference: Named,
    candidate: Named,
    *,
    oracle: Oracle | None = None,
) -> Verdict:
    """Whether ``candidate`` is a right answer to the call.

    ``tensors``: the arguments as recorded.  ``reference`` and ``candidate``: results by name in the order of
    ``signature.results``, CPU tensors, the reference's as PyTorch gave them.  ``oracle``: float64 results if the
    caller has them already (they depend on the call alone).  Nothing is mutated and nothing is raised for a wrong
    candidate, whatever its shape or dtype.
    """
    names = [name for name, _ in reference]
    if [name for name, _ in candidate] != names:
        found = ", ".join(name for name, _ in candidate) or "none"
        text = f"expected the results {', '.join(names)}, found {found}"
        return Verdict.of([ResultVerdict(name, False, "results", text) for name in names[:1]])
    truth = float64_results(signature, tensors) if oracle is None else oracle
    with torch.no_grad():
        results = [
            _judge_result(signature, tensors, reference, name, expected, found, truth)
            for (name, expected), (_, found) in zip(reference, candidate, strict=True)
        ]
    return Verdict.of(results)


def determinism(first: Named, second: Named) -> str | None:
    """A warning if two runs on the same input gave different bits, else None.  NaNs are equal whatever their
    payload.
    """
    for (name, a), (_, b) in zip(first, second, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"nondeterministic: {name} was {TensorSpec.of(a)}, then {TensorSpec.of(b)}"
        a, b = (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in (a, b))
        different = a != b
        if a.dtype.is_floating_point:
            different = (different | (torch.signbit(a) != torch.signbit(b))) & ~(torch.isnan(a) & torch.isnan(b))
        if (count := int(different.sum())) > 0:
            return f"nondeterministic: {name} differs in {count} of {a.numel()} elements between two runs on one input"
    return None


def _judge_result(
    signature: Signature,
    tensors: Sequence[torch.Tensor],
    reference: Named,
    name: str,
    expected: torch.Tensor,
    found: torch.Tensor,
    truth: Oracle,
) -> ResultVerdict:
    if expected.shape != found.shape:
        text = f"expected shape {list(expected.shape)}, found {list(found.shape)}"
        return ResultVerdict(name, False, "shape", text)
    if expected.dtype != found.dtype:
        want, got = TensorSpec.of(expected).dtype, TensorSpec.of(found).dtype
        return ResultVerdict(name, False, "dtype", f"expected dtype {want}, found {got}")
    if expected.numel() == 0:
        return ResultVerdict(name, True, "exact", "the result has no elements")
    unwritten = truth.undefined.get(name)
    if not (expected.is_floating_point() or expected.is_complex()):
        return _judge_integers(signature, tensors, name, reference, found, unwritten)
    return _judge_floats(signature, tensors, name, expected, found, unwritten, truth)


def _judge_integers(
    signature: Signature,
    tensors: Sequence[torch.Tensor],
    name: str,
    reference: Named,
    found: torch.Tensor,
    unwritten: torch.Tensor | None,
) -> ResultVerdict:
    expected = dict(reference)[name]
    different = found != expected
    if unwritten is not None:
        different &= ~unwritten
    count = int(different.sum())
    if count == 0:
        return ResultVerdict(name, True, "exact", "equal to the recorded result", {"elements": expected.numel()})
    index = _first(different)
    share = {"elements": expected.numel(), "different": count}
    if is_tie(signature, tensors, name, reference, found):
        text = f"{count} of {expected.numel()} indices differ from the recorded ones and point at equal values"
        return ResultVerdict(name, True, "index-tie", text, share)
    want, got = (t[tuple(index)].item() for t in (expected, found))
    text = f"{count} of {expected.numel()} elements differ: candidate {got} at {index}, PyTorch {want}"
    detail = {"index": index, "candidate": got, "reference": want}
    return ResultVerdict(name, False, "integer-mismatch", text, {**share, "first": detail})


def _judge_floats(
    signature: Signature,
    tensors: Sequence[torch.Tensor],
    name: str,
    expected: torch.Tensor,
    found: torch.Tensor,
    unwritten: torch.Tensor | None,
    truth: Oracle,
) -> ResultVerdict:
    exact, reason = truth.results.get(name), truth.reason
    limits = limits_of(expected.dtype)
    warnings: list[str] = []
    if exact is None:
        reason = reason or f"{signature.operator} gives no float64 result"
        warnings.append(f"no-oracle: {reason}; judged against PyTorch's result at the case's own precision")
    y_ref, y = _real(expected), _real(found)
    y64 = y_ref if exact is None else _real(exact.detach())
    skip = unwritten
    if unwritten is not None and expected.is_complex():
        skip = unwritten.unsqueeze(-1).expand(y64.shape)
    pattern = match_pattern(y64, y_ref, y, skip, limits)
    warnings.extend(pattern.warnings)
    spread = histogram(y_ref, y)
    if pattern.mismatch is not None:
        nonfinite = {"nonfinite": pattern.detail, "histogram": spread}
        return ResultVerdict(name, False, "nonfinite-pattern", pattern.mismatch, nonfinite, tuple(warnings))
    res = residuals(y64, y, y_ref, pattern.compared)
    found_figures = {**figures(res, limits), "histogram": spread}
    warnings.extend(headroom_warning(y64, y_ref, limits))
    overflow = absorbed_overflow(tensors, res, limits)
    if overflow is not None and absorbed_overflow(tensors, residuals(y64, y_ref, y_ref, pattern.compared), limits):
        warnings.append(f"reference-overflow: in PyTorch's result, {overflow}")
        overflow = None  # the reference is off, and the candidate is judged against it as well
    if overflow is not None:
        return ResultVerdict(name, False, "absorbed-overflow", overflow, found_figures, tuple(warnings))
    if exact is None:
        finding = judge_errors(res, TypicalScale(res.exact, limits), limits)
    else:
        kept = None if truth.graphs is None else truth.graphs.setdefault(name, {})
        model = Sensitivity(signature, tensors, name, res.exact, limits, graphs=kept)
        share = rms(res.reference_error, res.count) / max(rms(res.exact, res.count), limits.smallest)
        if share <= REFERENCE_OFF:
            finding = judge_errors(res, model, limits)
        else:
            warnings.append(
                f"reference-off: PyTorch's result differs from float64 by {share:.0%} (root mean square); judged "
                "against float64 without the ratio rule, and against PyTorch's result"
            )
            finding = judge_errors(residuals(y64, y, y64, pattern.compared), model, limits)
            recorded = residuals(y_ref, y, y_ref, pattern.compared)
            if not finding.passed:
                finding = judge_errors(recorded, TypicalScale(recorded.exact, limits), limits)
    code, text = finding.code, finding.explanation
    if finding.passed and pattern.better:
        code, text = "better-than-reference", pattern.better
        warnings.append(f"better-than-reference: {pattern.better}")
    return ResultVerdict(name, finding.passed, code, text, {**found_figures, **finding.figures}, tuple(warnings))


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """Float64; complex numbers as a trailing dimension of 2."""
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj().to(torch.complex128))
    return tensor.to(torch.float64)


def _first(mask: torch.Tensor) -> list[int]:
    return [int(i) for i in mask.nonzero()[0].tolist()]
