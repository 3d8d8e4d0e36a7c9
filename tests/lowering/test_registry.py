"""Which of several converters and kernels is taken."""

from __future__ import annotations

import pytest

from tapml.errors import UsageError
from tapml.lowering import registry
from tapml.lowering.registry import converter, find, kernel


@pytest.fixture(autouse=True)
def own_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.registered()
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))


def ours(operator: str, target: str | None) -> None:
    def function() -> None: ...

    function.__module__ = "tapml.lowering.converters.pointwise"
    registry._register((operator,), target)(function)


def test_a_kernel_is_preferred_on_its_target_only() -> None:
    a, b = (
        converter("aten.foo.default")(lambda: "converter"),
        kernel("aten.foo.default", target="llvm")(lambda: "kernel"),
    )
    assert (find("aten.foo.default", "llvm") or a).function is b
    assert (find("aten.foo.default", "webgpu") or b).function is a
    assert find("aten.no_such_operator.default", "llvm") is None


def test_the_converter_of_a_user_goes_before_a_kernel_of_ours() -> None:
    ours("aten.foo.default", "llvm")
    ours("aten.foo.default", None)
    theirs = converter("aten.foo.default")(lambda: "theirs")
    found = find("aten.foo.default", "llvm")
    assert found is not None and found.function is theirs and not found.builtin


def test_the_later_one_replaces_the_earlier() -> None:
    converter("aten.foo.default")(lambda: 1)
    second = converter("aten.foo.default")(lambda: 2)
    found = find("aten.foo.default", "llvm")
    assert found is not None and found.function is second


@pytest.mark.parametrize("name", ["foo", "aten.foo", "aten.foo.default.more"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        converter(name)
    assert "aten.mm.default" in caught.value.message
