"""A suite appears whole or not at all, whatever happens to its writer."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from suite_making import assert_same_case, records_of, tensors_case, write_suite

from tapml.errors import SuiteError, TapmlError, UsageError
from tapml.suite import Suite, SuiteWriter

HERE = Path(__file__).parent
CASE = tensors_case(torch.arange(12.0))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- killed -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["new", "replace"])
def test_a_writer_killed_at_any_operation_leaves_the_old_state_or_the_new(tmp_path: Path, kind: str) -> None:
    program = [sys.executable, str(HERE / "killed_writer.py"), str(tmp_path), kind]
    printed = subprocess.run(program, check=True, capture_output=True, text=True).stdout
    kills = [json.loads(line) for line in printed.splitlines()]
    assert len(kills) > 15 and kills[-1]["status"] == "done" and {k["status"] for k in kills[:-1]} == {"killed"}
    for kill in kills:
        assert kill["after"] == 3 and kill["left"] == ["s"], kill
        if kind == "new":
            assert kill["before"] == 2 or "found nothing" in kill["before"], kill
            assert kill["restored"] == kill["before"], kill
        else:
            interrupted = "replacing it was interrupted; carve again, or rename"
            assert kill["before"] in (1, 2) or interrupted in kill["before"], kill
            assert kill["restored"] == (kill["before"] if kill["before"] in (1, 2) else 1), kill
    states = [kill["before"] if isinstance(kill["before"], int) else 0 for kill in kills]
    assert states == sorted(states) if kind == "new" else {1, 2} <= set(states)


def test_a_writer_killed_in_the_middle_of_a_pack(tmp_path: Path) -> None:
    code = (
        "import torch, sys; from suite_making import tensors_case; from tapml.suite import SuiteWriter\n"
        "w = SuiteWriter(sys.argv[1], pack_bytes=1 << 20); print('ready', flush=True); n = 0\n"
        "while True: w.add_case(tensors_case(torch.full((1 << 18,), float(n)), number=n)); n += 1"
    )
    path = tmp_path / "s"
    program = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, cwd=HERE)
    try:
        assert program.stdout is not None and program.stdout.readline() == b"ready\n"
        time.sleep(0.2)
        assert names(tmp_path) == [f".s.tmp-{program.pid}"]
        SuiteWriter(path).close()  # another writer leaves one that is alive alone
        assert names(tmp_path) == [f".s.tmp-{program.pid}"]
    finally:
        program.send_signal(signal.SIGKILL)
        program.communicate()
    assert names(tmp_path) == [f".s.tmp-{program.pid}"]
    with pytest.raises(SuiteError, match="found nothing"):
        Suite.open(path)
    assert_same_case(write_suite(path, [CASE]).case(CASE.id), CASE)
    assert names(tmp_path) == ["s"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_an_exception_removes_everything(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), SuiteWriter(tmp_path / "a" / "b" / "s") as writer:
        writer.add_case(CASE)
        raise error
    assert names(tmp_path) == []


def test_leaving_without_commit_removes_everything(tmp_path: Path) -> None:
    with SuiteWriter(tmp_path / "s") as writer:
        writer.add_case(CASE)
        assert names(tmp_path) == [f".s.tmp-{os.getpid()}"]
    assert names(tmp_path) == []


def test_an_interrupt_between_the_renames_puts_the_old_suite_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = write_suite(tmp_path / "s", [CASE])
    rename = os.rename

    def interrupted(source: Path, target: Path) -> None:
        if ".tmp-" in str(source):
            raise KeyboardInterrupt
        rename(source, target)

    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patch:
        patch.setattr(os, "rename", interrupted)
        write_suite(tmp_path / "s", [], force=True)
    assert names(tmp_path) == ["s"]
    assert Suite.open(tmp_path / "s").digest == old.digest


def test_everything_is_on_the_disk_before_the_suite_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    rename = os.rename
    monkeypatch.setattr(os, "rename", lambda *paths: (flushed.append("rename"), rename(*paths)))
    write_suite(tmp_path / "s", [CASE])
    staging = str(tmp_path / f".s.tmp-{os.getpid()}")
    before, after = flushed[: flushed.index("rename")], flushed[flushed.index("rename") + 1 :]
    assert sorted(name.removeprefix(staging) for name in before) == [
        "",
        "/manifest.json",
        "/tensors",
        "/tensors/pack-0000.safetensors",
    ]
    assert after == [str(tmp_path)]


# -- outputs that exist -----------------------------------------------------------------------------------------------


def test_an_existing_suite_is_replaced_only_with_force(tmp_path: Path) -> None:
    path = tmp_path / "s"
    old = write_suite(path, [CASE], info={"seed": 1})
    with pytest.raises(UsageError, match="is a suite already") as caught:
        SuiteWriter(path)
    assert "--force" in caught.value.hint
    new = write_suite(path, [CASE], info={"seed": 2}, force=True)
    assert Suite.open(path).digest == new.digest != old.digest
    assert_same_case(new.case(CASE.id), CASE)
    assert names(tmp_path) == ["s"]


def test_a_reader_keeps_what_it_read_when_the_suite_is_replaced(tmp_path: Path) -> None:
    read = write_suite(tmp_path / "s", [CASE]).case(CASE.id)
    write_suite(tmp_path / "s", [], force=True)
    assert_same_case(read, CASE)


def test_a_damaged_suite_and_one_of_a_later_version_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.mkdir()
    (path / "manifest.json").write_text('{"format": "tapml-suite", "version": 9, ')
    write_suite(path, [CASE], force=True)


@pytest.mark.parametrize("content", [{"thesis.tex": "x"}, {"manifest.json": "{}"}, {"manifest.json": "tapml-suite"}])
def test_what_is_no_suite_is_never_replaced(tmp_path: Path, content: dict[str, str]) -> None:
    path = tmp_path / "s"
    path.mkdir()
    for name, text in content.items():
        (path / name).write_text(text)
    for force in (False, True):
        with pytest.raises(UsageError, match="is neither empty nor a suite") as caught:
            SuiteWriter(path, force=force)
        assert "choose another output" in caught.value.hint
    assert names(path) == sorted(content)
    assert names(tmp_path) == ["s"]


def test_a_file_is_never_replaced_and_an_empty_directory_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is a file, expected a directory to create"):
        SuiteWriter(tmp_path / "file", force=True)
    (tmp_path / "empty").mkdir()
    write_suite(tmp_path / "empty", [CASE])
    with pytest.raises(UsageError, match="cannot write"):
        SuiteWriter(tmp_path / "file" / "s")
    assert names(tmp_path) == ["empty", "file"]


def test_a_directory_that_appears_while_writing_is_not_replaced(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="is neither empty nor a suite"),
        SuiteWriter(tmp_path / "s", force=True) as writer,
    ):
        writer.add_case(CASE)
        (tmp_path / "s").mkdir()
        (tmp_path / "s" / "mine").touch()
        writer.commit(records_of([CASE]), info={})
    assert names(tmp_path) == ["s"]
    assert names(tmp_path / "s") == ["mine"]


def test_two_writers_of_one_process(tmp_path: Path) -> None:
    with SuiteWriter(tmp_path / "s") as writer:
        with pytest.raises(UsageError, match="is being written by this process already"):
            SuiteWriter(tmp_path / "s")
        with SuiteWriter(tmp_path / "t") as other:
            other.commit([], info={})
        writer.commit([], info={})
    assert names(tmp_path) == ["s", "t"]


def test_the_output_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "s")
    write_suite(tmp_path / "link", [CASE])
    write_suite(tmp_path / "link", [CASE], force=True)
    assert (tmp_path / "link").is_symlink() and names(tmp_path / "disk") == ["s"]


# -- a full disk ------------------------------------------------------------------------------------------------------


def mount_tmpfs(path: Path, size: str) -> None:
    path.mkdir()
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs root, to mount a small tmpfs")


@pytest.mark.parametrize("pack_bytes", [1 << 10, 1 << 18, 1 << 28])
def test_a_full_disk_is_an_error_with_figures_and_leaves_nothing(tmp_path: Path, pack_bytes: int) -> None:
    disk = tmp_path / "disk"
    mount_tmpfs(disk, "1m")
    try:
        old = write_suite(disk / "s", [CASE])
        cases = [tensors_case(torch.full((1 << 14,), float(n)), number=n) for n in range(32)]
        with pytest.raises(TapmlError) as caught:
            write_suite(disk / "s", cases, force=True, pack_bytes=pack_bytes)
        assert type(caught.value) is TapmlError
        text = str(caught.value)
        assert text.startswith(f"the disk is full: {disk / 's'} needs at least ") and text.endswith(" are free")
        needed, free = (int(figure.replace(",", "")) for figure in re.findall(r"([\d,]+) (?:bytes|are)", text))
        assert 700_000 < free < 1 << 20 and needed > 900_000
        assert "--keep" in caught.value.hint
        assert names(disk) == ["s"]
        assert Suite.open(disk / "s").digest == old.digest
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write /proc/tapml/s: ") as caught:
        SuiteWriter("/proc/tapml/s")
    assert caught.value.hint == "choose an output that can be written to"
