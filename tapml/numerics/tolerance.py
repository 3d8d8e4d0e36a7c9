"""Every number that decides a judgement, in one place, each with its source.

The rules they enter are in :mod:`tapml.numerics.judge`; ``benchmarks/calibrate.py`` measures what they let pass and
what they catch, and ``docs/numerics.md`` prints its table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from tapml.suite.call import dtype_name

PEAK_RATIO = 5.0
"""An error may be this many times the largest error of the reference among comparable elements.

Healthy float32 kernels may exceed it (a sequential sum of 49,152 terms has 100 times the error of PyTorch's blocked
one), which is what the analytic bound is for; the ratio decides which elements are held against that bound.
"""

NARROW_PEAK_RATIO = 3.0
"""The same for 16-bit dtypes, where the reference's error is almost always that of one rounding."""

SEPARABLE_RATIO = 12.0
"""The same, in units of the reference's root mean square error predicted for the element from its row, column, ...

A normal distribution reaches 5 in a million elements and the prediction is good to a factor of about 2.
"""

ELEMENT_UNITS = 8.0
"""Error of elementwise arithmetic, in units of ``u`` times the first-order sensitivity: ``c`` of ``c*u*|y|``.

The accuracy table of the WGSL specification allows log an absolute 2^-21 on [0.5, 2], which is 8 u; exp 3 + 2|x| ulp,
where the sensitivity is |x|; division 2.5 ulp, which is 5 u.
"""

RUNNING_UNITS = 3.0
"""Error of a sequential sum, in units of ``u * sqrt(sum of S_k^2)`` with ``S_k`` its partial sums.

A rounding error is uniform in half a unit in the last place: 0.41 u of the value, root mean square over a binade.  So
3.0 is 7 standard deviations; the calibration needs more than 2.0, because small terms added to a large sum do not round
independently.  Source of the approach: N. Higham and T. Mary, "A new approach to probabilistic rounding error
analysis", SIAM J. Sci. Comput. 41 (2019).
"""

SIMULATED_UNITS = 3.0
"""Error in units of that of a sequential float32 sum of the very terms, computed: sums of equal terms all round one
way.

By calibration on constant inputs: 49,152 times 0.1 is off by 4,000 times the reference's error, 10 times the bound
above.
"""

ABSOLUTE_UNITS = 2.0
"""Error of elementwise operators in units of ``u * min(1, 4 rms(y))``: formulas with an intermediate of order one.

``1 + erf(x)`` and ``1 - 2 / (exp(2x) + 1)``, a tanh found in GPU drivers, are off by 1.5 u near 0 (calibration).
"""

TYPICAL_ELEMENT_UNITS = 4.0
"""As :data:`ELEMENT_UNITS`, for a root mean square; half of it, because equal inputs all round alike."""

TYPICAL_RUNNING_UNITS = 2.0
"""As :data:`RUNNING_UNITS`, for a root mean square.

Nearly 5 standard deviations, because the elements of a row may share one sum (a variance): their errors are one error.
"""

TYPICAL_OUTPUT_UNITS = 1.2
"""Root mean square error of rounding, in units of ``u * |y|``: nearest gives 0.41, twice rounded equal values up to
1.2.

An error of 1.5, which is an approximation to 1e-3 in float16, is called a defect.
"""

BIAS_UNITS = 0.3
"""Mean signed error (away from zero), in half units in the last place, from which 16-bit results are called biased.

Rounding to nearest has 0, truncation has -1.
"""

BIAS_RATIO = 1.4
"""A bias fails only together with a root mean square error this many times that of rounding to nearest (truncation:
2).
"""

REFERENCE_OFF = 0.25
"""A reference that is off from float64 by this share of its root mean square says nothing about rounding.

Either it is wrong, or the operator has another meaning in float64 (``as_strided``, a floor of a rounded quotient).
"""

HEADROOM = 0.5
"""A magnitude above this share of the dtype's largest is a warning: 32,752 for float16."""


@dataclass(frozen=True)
class Limits:
    """What rounding means for one output dtype.

    ``unit``: unit round-off u.  ``accumulate``: u of the arithmetic inside an operator (float32 for 16-bit dtypes, as
    in every serious kernel).  ``largest``: largest finite value.  ``smallest``: absolute error that is always
    allowed: the subnormal spacing, or, where GPUs flush subnormals to zero, the smallest normal.  ``ratio``: m, by
    how much the root mean square error may exceed the reference's.  ``peak_ratio``: the same for the largest error.
    ``output_units``: how many roundings to this dtype one result may suffer.
    """

    dtype: torch.dtype
    unit: float
    accumulate: float
    largest: float
    smallest: float
    ratio: float
    peak_ratio: float
    output_units: float
    reason: str

    @property
    def overflow(self) -> float:
        """Magnitude from which rounding to nearest gives infinity."""
        return self.largest * (1 + self.unit / (2 - 2 * self.unit)) if self.dtype != torch.float64 else self.largest


_FLOAT32 = 2.0**-24

_TABLE = {
    torch.float64: (2.0**-53, 2.0**-53, 2.0, PEAK_RATIO, 1.0, "the oracle is no more precise: judged by the floor"),
    torch.float32: (2.0**-24, _FLOAT32, 2.0, PEAK_RATIO, 1.0, "m as in torch._dynamo.utils.same"),
    torch.bfloat16: (2.0**-8, _FLOAT32, 2.0, NARROW_PEAK_RATIO, 3.0, "m by calibration (same uses 3)"),
    torch.float16: (2.0**-11, _FLOAT32, 2.0, NARROW_PEAK_RATIO, 3.0, "m by calibration (same uses 3)"),
}


@lru_cache(maxsize=None)
def limits_of(dtype: torch.dtype) -> Limits:
    """The row of the table for a floating (or complex: its component's) dtype.

    Dtypes outside the table (float8) are judged as 16-bit ones with the unit round-off that ``torch.finfo`` tells.
    Raises :class:`TypeError` for an integer or bool dtype.
    """
    real = dtype.to_real() if dtype.is_complex else dtype
    info = torch.finfo(real)
    default = (info.eps / 2, _FLOAT32, 2.0, NARROW_PEAK_RATIO, 3.0, "as 16-bit")
    unit, accumulate, ratio, peak, output_units, reason = _TABLE.get(real, default)
    flushed = real in (torch.float32, torch.bfloat16)
    smallest = info.smallest_normal if flushed else info.smallest_normal * info.eps
    return Limits(
        real, unit, accumulate, info.max, smallest, ratio, peak, output_units, f"{dtype_name(real)}: {reason}"
    )
