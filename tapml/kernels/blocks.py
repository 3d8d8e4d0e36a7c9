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


def _block(block: Any, body: Any, init: Any) -> Any:
    return SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        body,
        init,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )
