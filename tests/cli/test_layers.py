"""Imports point downward: cli -> verbs -> nouns; platforms are reached through tapml/platform.py alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

LAYERS = {
    "cli": 4,
    "pytest_plugin": 4,
    "report": 3,  # shows what the verbs found
    "carving": 2,
    "migration": 2,
    "blame": 3,  # judges by way of migration
    "score": 3,  # the same
    "deploy": 2,
    "repro": 2,
    "suite": 1,
    "boundary": 1,
    "numerics": 1,
    "lowering": 1,
    "kernels": 1,
    "platforms": 1,
}
"""Folder -> its layer. Modules directly in tapml/ (errors.py, platform.py, ...) are at the bottom, layer 0."""

PLATFORMS = "tapml.platforms"
MAY_NAME_PLATFORMS = ("tapml.platform",)
FRONT = ("tapml",)
"""Offers what users register converters with, and imports it only when asked to."""


def modules() -> Iterator[tuple[str, Path]]:
    """(dotted name, file) of every module of the package."""
    for folder, package in (("tapml", "tapml"), ("cli", "tapml.cli"), ("platforms", "tapml.platforms")):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join([package, *(p for p in parts if p != "__init__")]), path


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """(module, line) of each import, wherever it stands, but those for type checking only."""

    def walk(node: ast.AST) -> Iterator[tuple[str, int]]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: imports are absolute"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
        for child in ast.iter_child_nodes(node):
            yield from walk(child)

    yield from walk(ast.parse(path.read_text()))


def layer(module: str) -> int:
    parts = module.split(".")
    return LAYERS.get(parts[1], 0) if len(parts) > 1 else 0


def folder(module: str) -> str:
    return module.split(".")[1] if module.count(".") else ""


def test_every_folder_has_a_layer() -> None:
    packages = {p.parent.name for p in (ROOT / "tapml").glob("*/__init__.py")} | {"cli", "platforms"}
    assert packages <= set(LAYERS), "say in LAYERS where a new folder belongs"


@pytest.mark.parametrize(("name", "path"), [pytest.param(n, p, id=n) for n, p in modules()])
def test_imports_point_downward(name: str, path: Path) -> None:
    own = layer(name)
    for module, line in imports(path):
        if not module.startswith("tapml."):
            continue
        where = f"{path.relative_to(ROOT)}:{line} imports {module}"
        if module.startswith(PLATFORMS):
            assert name.startswith(PLATFORMS) or name in MAY_NAME_PLATFORMS, f"{where}, not by way of tapml.platform"
        if folder(module) != folder(name) and name not in (*FRONT, *MAY_NAME_PLATFORMS):
            assert layer(module) <= own, f"{where}, which is above it"


def test_a_platform_knows_no_other() -> None:
    for name, path in modules():
        if not name.startswith(f"{PLATFORMS}."):
            continue
        own = ".".join(name.split(".")[:3])
        for module, line in imports(path):
            if module.startswith(f"{PLATFORMS}."):
                assert module.startswith((own, f"{PLATFORMS}.simt")), f"{path}:{line} imports {module}"
