"""TIR blocks with one part exchanged; they cannot be changed in place."""

from __future__ import annotations

from typing import Any

from tvm.s_tir import SBlock


def with_body(block: Any, body: Any) -> Any:
    """The block with another body."""
    return _block(block, body, block.init)


def with_init(block: Any, init: Any) -> Any:
    """The block whose reduction begins with something else; ``None``: whose body alone is left."""
    return _block(block, block.body, init)


def with_regions(block: Any, reads: Any, writes: Any) -> Any:
    """The block that says of itself that it reads and writes these regions of buffers."""
    return _block(block, block.body, block.init, regions=(reads, writes))


def with_variables(block: Any, variables: Any) -> Any:
    """The block with other iteration variables (or domains of them)."""
    return _block(block, block.body, block.init, variables=variables)


def _block(block: Any, body: Any, init: Any, *, regions: Any = None, variables: Any = None) -> Any:
    reads, writes = regions or (block.reads, block.writes)
    return SBlock(
        block.iter_vars if variables is None else variables,
        reads,
        writes,
        block.name_hint,
        body,
        init,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )
