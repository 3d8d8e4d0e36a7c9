"""How large a rounding error can be at one element of a result: an analytic bound without a list of operators.

The bound for a sum of K products is known (Higham).  For an arbitrary operator it is applied to the operator's
linearisation: with ``g`` the gradient of the element in float64, the result is to first order ``sum_j g_j x_j``, and a
rounding error anywhere inside acts like relative perturbations of those terms.  So

* each of the K nonzero terms ``t_j = g_j x_j`` carries a few u of elementwise arithmetic, independently, which makes
  ``sqrt(sum t_j^2)``;
* each partial sum ``S_k`` of the terms is rounded once, which makes ``sqrt(sum_k S_k^2)``, never more than ``sum
  |S_k|``. This is what a sequential kernel does; blocked and pairwise ones are better.  The order is the kernel's
  secret, so the largest of three is taken: as stored, reversed, and shuffled.  Equal terms do not round
  independently: the sums are also computed in float32, and their true error counts.

For K terms of one sign this is ``sqrt(K/3) * u * sum|t|``, the usual ``c*sqrt(K)`` bound, and for terms of both signs
it is as much smaller as partial sums are then smaller, which is what makes a wrong epsilon visible.  Gradients know
the conditioning: ``exp(x)`` gets ``|x| u``, a layer norm of a row with a large offset the error of its mean, each
element of a cumulative sum its own K; while ``floor``, ``sign`` and comparisons have gradient 0 and get nothing.

What the gradient does not see are sums inside nonlinear functions whose result does not depend on their input (all
exponentials of a softmax near 1): there only ``sqrt(K) * u * |y|`` is granted.

Second-order effects (the variance of a constant row is 0 with gradient 0, yet healthy kernels give 1e-15) are met by
taking the gradient a second time, at inputs perturbed by float32's rounding, if the first does not excuse the error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch

from tapml.numerics.metrics import rms
from tapml.numerics.oracle import widen, widened_results
from tapml.numerics.tolerance import (
    ABSOLUTE_UNITS,
    ELEMENT_UNITS,
    RUNNING_UNITS,
    SIMULATED_UNITS,
    TYPICAL_ELEMENT_UNITS,
    TYPICAL_OUTPUT_UNITS,
    TYPICAL_RUNNING_UNITS,
    Limits,
    limits_of,
)
from tapml.suite.call import Signature

LARGEST_INPUT = 1 << 22
"""Inputs with more elements are not differentiated (their terms repeat those of the smaller inputs in a product)."""

PERTURBATION = 64.0
"""Relative change of the inputs, in u, for the second gradient: what a naive float32 mean of some 10^4 terms may be
off.
"""


@dataclass(frozen=True)
class Noise:
    """Rounding error at one element.

    ``bound``: larger than any healthy kernel's error.  ``typical``: upper estimate of the root mean square over
    elements like this one.  ``terms``: K.
    """

    bound: float
    typical: float
    terms: int


Graph = tuple["torch.Tensor | None", list[torch.Tensor]]
"""A result in float64, with what is needed to differentiate it by each of the tensors; ``None``: it has no derivative."""


class RoundingModel(Protocol):
    """Anything that knows how large a rounding error can be at an element of a result."""

    def noise(self, flat: int, *, error: float = math.inf) -> Noise:
        """The bound at flat index ``flat``; ``error`` is the one to be excused, so that no more work is done than
        needed.
        """


class Sensitivity:
    """Rounding bounds for elements of one result of one call; gradients are taken only when asked for.

    ``tensors`` are as recorded.  Elements are addressed by flat index into the result, whose float64 value is ``exact``
    (real, one dimension; complex results as pairs).  ``graphs``: what an earlier one of the same result of the same call
    was given and has filled, so that the call is not differentiated anew.
    """

    def __init__(
        self,
        signature: Signature,
        tensors: Sequence[torch.Tensor],
        name: str,
        exact: torch.Tensor,
        limits: Limits,
        *,
        graphs: dict[bool, Graph] | None = None,
    ) -> None:
        self._signature = signature
        self._tensors = tensors
        self._name = name
        self._exact = exact
        self._limits = limits
        self._graphs: dict[bool, Graph] = {} if graphs is None else graphs

    def noise(self, flat: int, *, error: float = math.inf) -> Noise:
        """The bound at one element.  A second gradient is taken only if the first does not excuse ``error``."""
        first = self._noise(flat, perturbed=False)
        if abs(error) <= first.bound:
            return first
        second = self._noise(flat, perturbed=True)
        return Noise(max(first.bound, second.bound), max(first.typical, second.typical), max(first.terms, second.terms))

    def _noise(self, flat: int, *, perturbed: bool) -> Noise:
        limits, u = self._limits, self._limits.accumulate
        value = abs(float(self._exact[flat]))
        inputs = self._terms(flat, perturbed=perturbed)
        terms = [values for values, _ in inputs if values.numel()]
        count = max([1, *(count for _, count in inputs)])
        spread = math.sqrt(sum(float(t.square().sum()) for t in terms))
        sums = _sums(terms, simulate=u > limits_of(torch.float64).unit)
        if count > 1:
            # An accumulator may hold the result itself, or a bias, through all of its steps.
            carried = max([value, *(float(t.abs()) for t in terms if t.numel() == 1)])
            sums = Sums(max(sums.root, math.sqrt(count) * carried), max(sums.total, count * carried), sums.simulated)
        running = max(RUNNING_UNITS * sums.root, SIMULATED_UNITS * sums.simulated / u)
        typical_running = max(TYPICAL_RUNNING_UNITS * sums.root, SIMULATED_UNITS * sums.simulated / u)
        absolute = limits.smallest
        if count == 1:
            absolute += u * ABSOLUTE_UNITS * min(1.0, 4 * self._root_mean_square)
        bound = u * (ELEMENT_UNITS * (spread + value) + min(sums.total, running))
        typical = u * (TYPICAL_ELEMENT_UNITS * (spread + value) + min(sums.total, typical_running))
        bound += limits.output_units * limits.unit * value + absolute
        typical += TYPICAL_OUTPUT_UNITS * limits.unit * value + absolute
        return Noise(bound, typical, count)

    @cached_property
    def _root_mean_square(self) -> float:
        return _scale(self._exact)

    def _terms(self, flat: int, *, perturbed: bool) -> list[tuple[torch.Tensor, int]]:
        """An input each: nonzero ``g_j x_j`` (one dimension), and the number of nonzero ``g_j``, K.

        Empty where the operator has no derivative.
        """
        if perturbed not in self._graphs:
            self._graphs[perturbed] = self._graph(perturbed)
        output, inputs = self._graphs[perturbed]
        if output is None or not inputs:
            return []
        try:
            with torch.enable_grad():
                element = output[flat]
            gradients = torch.autograd.grad(element, inputs, retain_graph=True, allow_unused=True)
        except (RuntimeError, NotImplementedError):
            self._graphs[perturbed] = (None, [])
            return []
        terms = []
        for gradient, tensor in zip(gradients, inputs, strict=True):
            if gradient is not None:
                product = (gradient.conj() * tensor.detach()).reshape(-1)
                product = product.abs() if product.is_complex() else product
                product = torch.nan_to_num(product, nan=0.0, posinf=0.0, neginf=0.0)
                terms.append((product[product != 0], int(torch.count_nonzero(gradient))))
        return terms

    def _graph(self, perturbed: bool) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
        generator = torch.Generator().manual_seed(0)
        with torch.inference_mode(False), torch.enable_grad():
            signature, wide = widen(self._signature, self._tensors)
            floating = [i for i, t in enumerate(wide) if t.is_floating_point() or t.is_complex()]
            chosen = [i for i in floating if wide[i].numel() <= LARGEST_INPUT]
            if floating and not chosen:
                chosen = [min(floating, key=lambda i: wide[i].numel())]
            for i in chosen:
                leaf = wide[i].detach().clone()
                if perturbed:
                    factor = torch.rand(leaf.shape, generator=generator, dtype=torch.float64) * 2 - 1
                    leaf = leaf * (1 + PERTURBATION * self._limits.accumulate * factor)
                wide[i] = leaf.requires_grad_()
            output = widened_results(signature, wide).results.get(self._name)
            if output is None or output.grad_fn is None:
                return None, []
            flat = torch.view_as_real(output.resolve_conj()) if output.is_complex() else output
            return flat.reshape(-1), [wide[i] for i in chosen]


class TypicalScale:
    """The stand-in where there is no float64 truth: the recorded result is off too, and cancellation is not known.

    The bound is a few u of the element plus that of the result's root mean square.
    """

    def __init__(self, exact: torch.Tensor, limits: Limits) -> None:
        self._exact = exact
        self._limits = limits
        self._scale = _scale(exact)

    def noise(self, flat: int, *, error: float = math.inf) -> Noise:
        limits = self._limits
        units = 2 * limits.output_units * limits.unit + 2 * ELEMENT_UNITS * limits.accumulate
        bound = units * (abs(float(self._exact[flat])) + self._scale) + limits.smallest
        return Noise(bound, bound, 1)


def _scale(exact: torch.Tensor) -> float:
    finite = exact[torch.isfinite(exact)]
    return rms(finite, finite.numel())


@dataclass(frozen=True)
class Sums:
    """What a sequential sum goes through: ``sqrt(sum S_k^2)``, ``sum |S_k|``, and the error of a float32 one."""

    root: float
    total: float
    simulated: float


def _sums(terms: Sequence[torch.Tensor], *, simulate: bool) -> Sums:
    """The worst input in the worst of three orders."""
    root = total = simulated = 0.0
    for term in terms:
        for ordered in _orders(term):
            sums = torch.cumsum(ordered, 0)
            root = max(root, float(torch.linalg.vector_norm(sums)))
            total = max(total, float(sums.abs().sum()))
            if simulate and ordered.numel() > 1:
                simulated = max(simulated, _simulated_error(ordered))
    return Sums(root, total, simulated)


def _simulated_error(terms: torch.Tensor) -> float:
    """Error of a sequential float32 sum of ``terms``, the largest over a few scalings, which round differently."""
    _, exponent = math.frexp(float(terms.abs().max()))
    worst = 0.0
    for scale in (1.0, 1.1, 1.3, 1.7):
        scaled = (terms * math.ldexp(scale, -exponent)).to(torch.float32)
        found = float(np.add.accumulate(scaled.numpy(), dtype=np.float32)[-1])
        worst = max(worst, abs(found - float(scaled.double().sum())) / scale)
    return math.ldexp(worst, exponent)


def _orders(term: torch.Tensor) -> Iterator[torch.Tensor]:
    yield term
    if term.numel() > 1:
        yield term.flip(0)
        yield term[torch.randperm(term.numel(), generator=torch.Generator().manual_seed(0))]
