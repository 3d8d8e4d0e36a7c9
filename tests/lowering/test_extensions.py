"""Files of the user: what belongs to them, what is said of those that do not load, what becomes of compiled kernels."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tapml.errors import ExtensionError
from tapml.lowering import registry
from tapml.lowering.extensions import digest_of, parts_of
from tapml.migration.cache import artifact_key
from tapml.suite.call import Signature, TensorSpec

OWN = """
import json, torch
import tapml
import {helper}

@tapml.converter("aten.sin.default")
def sin(ctx, x):
    return {helper}.value(ctx, x)
"""


@pytest.fixture
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A registry and modules that forget what a test loads."""
    registry.registered()
    for name in ("_entries", "_schedules", "_loaded"):
        monkeypatch.setattr(registry, name, getattr(registry, name).copy())
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in sys.modules.keys() - modules:
        del sys.modules[name]


def files(folder: Path) -> Path:
    """A file, a module that it imports, and one that this imports in a function."""
    (folder / "helper_a.py").write_text("def value(ctx, x):\n    import helper_b\n    return helper_b.value(ctx, x)\n")
    (folder / "helper_b.py").write_text("def value(ctx, x):\n    return x\n")
    (folder / "unrelated.py").write_text("")
    own = folder / "own.py"
    own.write_text(OWN.format(helper="helper_a"))
    return own


def test_local_modules_belong_to_a_file(tmp_path: Path) -> None:
    own = files(tmp_path)
    assert parts_of(own) == (own, tmp_path / "helper_a.py", tmp_path / "helper_b.py")
    before = digest_of(own)
    (tmp_path / "unrelated.py").write_text("x = 1\n")
    assert digest_of(own) == before
    (tmp_path / "helper_b.py").write_text("def value(ctx, x):\n    return 2 * x\n")
    assert digest_of(own) != before


@pytest.mark.usefixtures("empty_registry")
def test_compiled_kernels_are_of_the_content(tmp_path: Path) -> None:
    """An edit of a file, or of a module beside it, compiles anew what runs by it, and nothing else."""
    spec = TensorSpec.of(torch.zeros(4))
    sin, cos = (
        Signature(f"aten.{n}.default", '[[{"tensor":0}],{}]', (spec,), (("out0", spec),)) for n in ("sin", "cos")
    )

    def keys(folder: str, change: str = "") -> list[str]:
        place = tmp_path / "same" / "own.py"
        place.parent.mkdir(exist_ok=True)
        files(place.parent)
        (place.parent / "helper_b.py").write_text(f"def value(ctx, x):\n    return x{change}\n")
        registry._loaded.clear()
        registry.load_extensions([str(place)])
        return [
            artifact_key(s, r, "llvm", "") for s, r in ((sin, "converter"), (cos, "converter"), (cos, "decomposition"))
        ]

    first, again, other = keys("a"), keys("a"), keys("b", " * 2")
    assert first == again
    assert first[0] != other[0] and first[1] == other[1]
    assert first[2] != other[2]  # into a sine, perhaps


@pytest.mark.usefixtures("empty_registry")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\ndef f(:\n", "own.py:2: SyntaxError: invalid syntax: `def f(:`"),
        ("x = 1\n\nx.y\n", "own.py:3 raised AttributeError"),
        ("import helper_c\n", "own.py:1 raised ModuleNotFoundError"),
        ("x = 1\0", "own.py"),
    ],
)
def test_the_line_of_what_does_not_load_is_said(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "own.py"
    file.write_text(text)
    with pytest.raises(ExtensionError) as error:
        registry.load_extensions([str(file)])
    assert said in error.value.message
    assert not any("tapml_extension" in name and "own" in name for name in sys.modules)


@pytest.mark.usefixtures("empty_registry")
def test_modules_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "shared_name.py").write_text(f"def value(ctx, x):\n    return {name!r}\n")
        (tmp_path / name / "own.py").write_text(OWN.format(helper="shared_name"))
    registry.load_extensions([str(tmp_path / "a" / "own.py")])
    with pytest.raises(ExtensionError, match="loaded before"):
        registry.load_extensions([str(tmp_path / "b" / "own.py")])
