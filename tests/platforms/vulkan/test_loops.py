"""How often a thread goes round the loops of a kernel."""

from __future__ import annotations

import pytest
from tvm import te

from tapml.platforms.vulkan.loops import count_iterations
from tests.platforms.opencl.kernels import elementwise, make, row_sums


@pytest.mark.parametrize(
    ("source", "times"),
    [
        ("void f() {\n}\n", 0),
        ("void f() {\n  for (int k = 0; k < 10; ++k) {\n    a;\n  }\n}\n", 10),
        ("void f() {\n for (int k = 0; k < 10; ++k) {\n for (int j = 0; j < 3; ++j) {\n }\n }\n}\n", 10 + 30),
        ("void f() {\n for (int k = 0; k < 10; ++k) {\n }\n for (int j = 0; j < 3; ++j) {\n }\n}\n", 10 + 3),
        ("for (int k = 0; k < 4; ++k) {\nif (k) {\na;\n} else {\nfor (int j = 2; j < 9; ++j) {\n}\n}\n}\n", 4 + 28),
        ("for (int k = 0; k < 9; k += 4) {\n}\n", 3),
        ("while (1) {\nfor (int j = 0; j < 9; ++j) {\n}\n}\n", 9),
        ("// for (int k = 0; k < 9; ++k) {\n", 0),
    ],
)
def test_counts(source: str, times: int) -> None:
    assert count_iterations(source) == times


def test_tvms_own_loops_are_understood() -> None:
    a = te.placeholder((8, 7, 1000), "float32", name="A")
    k, j = te.reduce_axis((0, 7), "k"), te.reduce_axis((0, 1000), "j")
    made = make("many", a, te.compute((8,), lambda i: te.max(a[i, k, j], axis=[k, j]), name="B"))
    assert 7000 / 256 <= count_iterations(made.source.decode()) <= 7 + 7000, made.source.decode()
    assert count_iterations(row_sums(4, 100_000).source.decode()) >= 100_000 / 256
    assert count_iterations(elementwise("none", 100, "float32", te.abs).source.decode()) == 0
