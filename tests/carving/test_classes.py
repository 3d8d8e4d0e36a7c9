"""The class of a call follows from its schema and from what it is seen to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tapml.carving.interception import CallMode

X = torch.randn(4, 4)
INDEX = torch.tensor([0, 2])
INF = float("inf")

PROGRAMS: list[tuple[str, str, Callable[[], object]]] = [
    ("aten.mm.default", "compute", lambda: X @ X),
    ("aten.index.Tensor", "compute", lambda: X[INDEX]),
    ("aten.full.default", "compute", lambda: torch.full((3,), float("nan"))),
    ("aten.full.default", "compute", lambda: torch.full((3,), torch.iinfo(torch.int64).max)),
    ("aten.full.default", "compute", lambda: torch.full((3,), True)),
    ("aten.add_.Tensor", "compute", lambda: X.clone().add_(1)),
    ("aten._foreach_add_.Scalar", "compute", lambda: torch._foreach_add_([X.clone()], 1.0)),
    ("aten.mm.out", "compute", lambda: torch.mm(X, X, out=torch.empty(4, 4))),
    ("aten.contiguous.default", "", lambda: X.t().contiguous()),
    ("aten.transpose.int", "view", lambda: X.transpose(0, 1)),
    ("aten.expand.default", "view", lambda: X[None].expand(2, 4, 4)),
    ("aten.split.Tensor", "view", lambda: X.split(2)),
    ("aten.unsqueeze_.default", "view", lambda: X.clone().unsqueeze_(0)),
    ("aten.cat.default", "view", lambda: torch.cat([X[:0], X[:0]])),
    ("aten.ones.default", "view", lambda: torch.ones(0)),
    ("aten._local_scalar_dense.default", "host", lambda: X.sum().item()),
    ("aten.equal.default", "host", lambda: torch.equal(X, X)),
    ("aten.nonzero.default", "host", lambda: (X > 0).nonzero()),
    ("aten.index.Tensor", "host", lambda: X[X > 0]),
    ("aten.masked_select.default", "host", lambda: X.masked_select(X > 0)),
    ("aten.randn.default", "random", lambda: torch.randn(3)),
    ("aten.bernoulli_.float", "random", lambda: torch.dropout(X, 0.5, True)),
    ("aten.randn.generator", "random", lambda: torch.randn(3, generator=torch.Generator())),
    ("aten.empty_like.default", "undefined", lambda: torch.empty_like(X)),
    ("aten.empty.memory_format", "undefined", lambda: torch.empty(3, dtype=torch.int64)),
    ("aten.empty.memory_format", "undefined", lambda: torch.empty(3, dtype=torch.bool)),
    ("aten.new_empty.default", "undefined", lambda: X.new_empty(3)),
    ("aten.resize_.default", "undefined", lambda: torch.ones(2).resize_(400)),
    ("aten.resize_.default", "view", lambda: torch.ones(4).resize_(2)),
]


@pytest.mark.parametrize(("operator", "kind", "program"), PROGRAMS, ids=[f"{o}-{k}" for o, k, _ in PROGRAMS])
def test_class(operator: str, kind: str, program: Callable[[], object]) -> None:
    with torch.no_grad(), CallMode() as mode:
        program()
    kinds = {e.signature.operator: e.kind for e in mode._entries.values() if not e.decompose}
    assert kinds.get(operator, "") == kind


def test_attention_without_dropout_is_not_random_though_declared_so() -> None:
    q = torch.randn(1, 2, 3, 8)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context, CallMode() as mode:
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
        (entry,) = mode._entries.values()
        assert entry.kind == "compute"
        assert entry.signature.operator == "aten.scaled_dot_product_attention.default"


def test_looking_for_undefined_values_leaves_the_settings_alone() -> None:
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    with torch.no_grad(), CallMode():
        torch.empty(3)
    assert before == (torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory)


def test_the_same_calls_in_inference_mode() -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0).eval()
    norm = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.LayerNorm(8), torch.nn.Dropout(0.5), torch.nn.GELU())
    x = torch.randn(2, 5, 16)
    operators = []
    for context in (torch.no_grad(), torch.inference_mode()):
        with context, CallMode() as mode:
            norm.eval()(x)
            layer.linear2(torch.relu(layer.linear1(x))).reshape(2, -1).double()
        operators.append({e.signature.operator for e in mode._entries.values() if not e.decompose})
    assert operators[0] == operators[1]
    assert "aten.addmm.default" in operators[0]


def test_equal_numbers_of_different_types_are_different_signatures() -> None:
    with torch.no_grad(), CallMode() as mode:
        for value in (1, 1.0, True, -0.0, 0.0, INF, -INF):
            torch.full((2,), value, dtype=torch.float32)
        torch.full((2,), float("nan"), dtype=torch.float32)
        torch.full((2,), float("nan"), dtype=torch.float32)
    assert len({e.signature.id for e in mode._entries.values()}) == 8
