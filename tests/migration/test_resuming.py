"""A migration that was interrupted, or whose journal or cache is damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from climbing import Listener, climb, ending

from tapml.errors import SuiteError, UsageError
from tapml.migration.cache import KernelCache
from tapml.migration.journal import Journal, journal_folder
from tapml.migration.ladder import compute_signatures
from tapml.suite.reader import Suite


def journal_of(suite: Path) -> Path:
    return journal_folder(suite, "llvm", "llvm:cpu") / "journal.jsonl"


def interrupted(suite: Path, kind: str, after: int, *converters: str, cache: Path | None = None) -> Listener:
    listener = Listener(kind, after)
    with pytest.raises(KeyboardInterrupt):
        climb(suite, *converters, listen=listener, cache=cache)
    return listener


@pytest.mark.parametrize(("kind", "after"), [("judged", 1), ("judged", 3), ("gate", 1), ("gate", 3)])
def test_a_resumed_migration_ends_as_an_undisturbed_one(copied: Callable[..., Path], kind: str, after: int) -> None:
    whole = climb(copied("mlp", name="whole"))
    suite = copied("mlp", name="disturbed")
    interrupted(suite, kind, after)
    kept = Journal(journal_of(suite))
    listener = Listener()
    result = climb(suite, resume=True, listen=listener)
    assert result.resumed
    assert ending(result) == ending(whole)
    judged_again = {o.signature for o in listener.of("judged")} & {
        e["outcome"]["signature"] for e in kept.of_kind("judged")
    }
    assert not judged_again
    assert len(listener.of("judged")) == len(result.outcomes) - len(kept.of_kind("judged"))


def test_a_rolled_back_operator_stays_so_when_resumed(copied: Callable[..., Path]) -> None:
    whole = climb(copied("waves", keep=1, name="whole"), "taylor_sin.py")
    number = next(i for i, g in enumerate(whole.gates, 1) if g.rejected)
    for after in (number, number + 1):
        suite = copied("waves", keep=1, name=f"disturbed{after}")
        interrupted(suite, "gate", after, "taylor_sin.py")
        assert ending(climb(suite, "taylor_sin.py", resume=True)) == ending(whole)


def test_a_finished_migration_is_begun_anew_unless_resumed(copied: Callable[..., Path]) -> None:
    suite = copied("mlp")
    climb(suite)
    resumed = Listener()
    assert climb(suite, resume=True, listen=resumed).accepted
    assert not resumed.of("judged")
    anew = Listener()
    result = climb(suite, listen=anew)
    assert len(anew.of("judged")) == len(result.outcomes) and not result.resumed
    assert all(o.cached for o in anew.of("judged")), "compiled kernels are taken from the cache"
    assert journal_of(suite).with_name("journal.previous.jsonl").exists()


@pytest.mark.parametrize("cut", [1, 7, 60])
def test_a_torn_last_line_is_cut_off(copied: Callable[..., Path], cut: int) -> None:
    whole = climb(copied("mlp", name="whole"))
    suite = copied("mlp", name="torn")
    interrupted(suite, "gate", 2)
    journal = journal_of(suite)
    data = journal.read_bytes()
    journal.write_bytes(data[:-cut])
    assert ending(climb(suite, resume=True)) == ending(whole)
    for line in journal.read_text().splitlines():
        json.loads(line)


def test_damage_inside_names_the_file_and_the_line_and_restart_gets_over_it(copied: Callable[..., Path]) -> None:
    suite = copied("mlp")
    interrupted(suite, "gate", 2)
    journal = journal_of(suite)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], lines[1][:20] + b"\n", *lines[2:]]))
    for resume in (True, None):
        with pytest.raises(SuiteError) as caught:
            climb(suite, resume=resume)
        assert str(journal) in caught.value.message and "line 2" in caught.value.message
        assert "--restart" in caught.value.hint
    assert climb(suite, resume=False).accepted


@pytest.mark.parametrize("content", ['{"event": "begin", "version": 99}\n', '{"event": "judged"}\n'])
def test_a_journal_of_something_else_is_refused(copied: Callable[..., Path], content: str) -> None:
    suite = copied("mlp")
    journal = journal_of(suite)
    journal.parent.mkdir(parents=True)
    journal.write_text(content)
    with pytest.raises(SuiteError) as caught:
        climb(suite, resume=True)
    assert str(journal) in caught.value.message
    assert climb(suite, resume=False).accepted


def test_the_journal_of_another_suite_is_not_gone_on_with(copied: Callable[..., Path]) -> None:
    suite, other = copied("mlp", name="mlp"), copied("waves", name="waves")
    interrupted(other, "gate", 1)
    journal = journal_of(suite)
    journal.parent.mkdir(parents=True)
    foreign = journal_of(other).read_bytes()
    journal.write_bytes(foreign)
    with pytest.raises(UsageError) as caught:
        climb(suite, resume=True)
    assert "suite" in caught.value.message and "--restart" in caught.value.hint
    result = climb(suite)
    assert result.accepted and not result.resumed
    assert journal.with_name("journal.previous.jsonl").read_bytes() == foreign


def test_another_converter_makes_the_journal_void(copied: Callable[..., Path]) -> None:
    suite = copied("mlp")
    interrupted(suite, "gate", 2)
    with pytest.raises(UsageError) as caught:
        climb(suite, "wrong_gelu.py", resume=True)
    assert "extensions" in caught.value.message


def test_nothing_to_resume_is_said(copied: Callable[..., Path]) -> None:
    with pytest.raises(UsageError) as caught:
        climb(copied("mlp"), resume=True)
    assert "nothing to resume" in caught.value.message and "--resume" in caught.value.hint


def damage_everything(cache: Path, name: str, data: bytes | None) -> int:
    found = list(cache.rglob(name))
    for path in found:
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
    return len(found)


@pytest.fixture(scope="module")
def compiled(carved: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, int]:
    """A suite with a journal that was gone on with to its end, the cache of it alone, and how many signatures it has."""
    folder = tmp_path_factory.mktemp("compiled")
    suite, cache = folder / "suite", folder / "cache"
    shutil.copytree(carved("mlp"), suite, ignore=shutil.ignore_patterns("migrations"))
    interrupted(suite, "gate", 2, cache=cache)
    return suite, cache, len(climb(suite, resume=True, cache=cache).outcomes)


@pytest.mark.parametrize(
    ("name", "data"),
    [("kernels.so", b"\x7fELF"), ("kernels.so", None), ("artifact.json", b'{"plan"'), ("artifact.json", b"[]")],
)
def test_damaged_cache_entries_are_compiled_again(
    compiled: tuple[Path, Path, int], tmp_path: Path, name: str, data: bytes | None
) -> None:
    suite = shutil.copytree(compiled[0], tmp_path / "suite")
    cache = shutil.copytree(compiled[1], tmp_path / "cache")
    assert damage_everything(cache, name, data) >= compiled[2]
    resumed = Listener()
    result = climb(suite, resume=True, listen=resumed, cache=cache)
    assert result.accepted
    assert len(resumed.of("judged")) == len(result.outcomes), "their kernels have gone, so they are judged again"
    assert climb(suite, resume=False, cache=cache).accepted
    kernels = KernelCache(cache)
    assert all(kernels.get(key) is not None for key in result.kernels.values())


def test_a_copy_of_the_suite_is_the_same_suite(copied: Callable[..., Path]) -> None:
    first = copied("mlp", name="first")
    interrupted(first, "gate", 2)
    assert climb(first, resume=True).accepted
    assert len(compute_signatures(Suite.open(first))) == len(climb(copied("mlp", name="second")).outcomes)
