"""Importing this module registers every converter of our own."""

from tapml.lowering.converters import (  # noqa: F401
    attention,
    creation,
    indexing,
    linear,
    normalization,
    pointwise,
    reduction,
    scan,
    shape,
)
