"""Importing this module registers every converter of our own."""

from tapml.lowering.converters import (  # noqa: F401
    attention,
    convolution,
    creation,
    indexing,
    interpolation,
    linear,
    normalization,
    pointwise,
    pooling,
    reduction,
    scan,
    scattering,
    shape,
    sorting,
)
