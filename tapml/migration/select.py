"""``--select``: which signatures, by a small expression as pytest's ``-k``: words, ``and``, ``or``, ``not``, brackets."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from tapml.errors import UsageError
from tapml.suite.case import SignatureRecord

_WORD = re.compile(r"[^\s()]+")


def selector(expression: str) -> Callable[[SignatureRecord], bool]:
    """A predicate on signatures; the empty expression selects all.

    A word matches when it occurs in the operator, the signature's id or a module path.  Raises :class:`UsageError`.
    """
    if not expression.strip():
        return lambda record: True
    words: list[str] = []

    def as_name(match: re.Match[str]) -> str:
        if match[0] in ("and", "or", "not"):
            return match[0]
        words.append(match[0])
        return f"_{len(words) - 1}"

    try:
        tree = ast.parse(_WORD.sub(as_name, expression), mode="eval").body
    except SyntaxError as error:
        raise UsageError(
            f"expected an expression of words, and, or, not and brackets, found {expression!r}",
            hint='such as --select "softmax or (mm and not addmm)"',
        ) from error

    def holds(node: ast.expr, text: str) -> bool:
        if isinstance(node, ast.BoolOp):
            values = (holds(v, text) for v in node.values)
            return all(values) if isinstance(node.op, ast.And) else any(values)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return not holds(node.operand, text)
        if isinstance(node, ast.Name):
            return words[int(node.id[1:])] in text
        raise UsageError(f"expected words, and, or, not and brackets, found {expression!r}")

    def chosen(record: SignatureRecord) -> bool:
        return holds(tree, " ".join([record.signature.operator, record.signature.id, *record.modules]))

    return chosen
