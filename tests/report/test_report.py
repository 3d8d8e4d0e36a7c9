"""``tapml report``: what is collected, and what the terminal, the JSON and the JUnit XML say of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from junit_schema import check

from tapml.report.collect import collect
from tapml.report.html import render


def doctored(migrated: Path, tmp_path: Path, change: Callable[[list[dict[str, Any]]], None]) -> Path:
    """A copy of the suite with one migration, its journal changed."""
    suite = Path(shutil.copytree(migrated, tmp_path / "waves"))
    for folder in ("metal-emulated", "webgpu-native"):
        shutil.rmtree(suite / "migrations" / folder)
    file = suite / "migrations" / "llvm-cpu" / "journal.jsonl"
    events = [json.loads(line) for line in file.read_text().splitlines()]
    change(events)
    file.write_text("".join(json.dumps(e) + "\n" for e in events))
    return suite


def test_the_terminal_says_where_each_migration_stands(
    tapml: Callable[..., Any], migrated: Path, tmp_path: Path
) -> None:
    ran = tapml("report", migrated, "-o", tmp_path / "r.html")
    assert ran.code == 1, "not every migration is accepted"
    rows = {line.split("│")[1].strip(): line for line in ran.out.splitlines() if line.startswith("│")}
    assert "not accepted" in rows["llvm:cpu"] and "1 rolled back" in rows["llvm:cpu"]
    assert "emulated" in rows["metal:emulated"].split("│")[2] and "1 unsupported" in rows["metal:emulated"]
    assert "interrupted" in rows["webgpu:native"] and "not judged" in rows["webgpu:native"]
    assert "rolled back aten.sin.default" in ran.out and f"wrote {tmp_path / 'r.html'}" in ran.out


def test_the_json_has_what_the_migration_itself_said(
    tapml: Callable[..., Any], copied: Callable[..., Path], tmp_path: Path
) -> None:
    suite, figures = copied("mlp"), tmp_path / "migration.json"
    assert tapml("migrate", suite, "--target", "llvm", "--gate", "end", "--jobs", "1", "--json", figures).code == 0
    ran = tapml("report", suite, "-o", tmp_path / "r.html", "--json", "-")
    assert ran.code == 0, "accepted"
    said = json.loads(figures.read_text())
    found = json.loads(ran.out)["migrations"][0]
    for name in ("target", "device", "mode", "accepted", "counts", "signatures", "gates", "final"):
        assert found[name] == said[name], name
    assert found["environments"][0]["versions"]["torch"] and found["environments"][0]["description"]
    assert 0 < found["share_of_tolerance"] <= 1


def test_junit_xml_is_valid_and_keeps_statuses_apart(tapml: Callable[..., Any], migrated: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.xml"
    tapml("report", migrated, "-o", tmp_path / "r.html", "--junit", file)
    root = ElementTree.parse(file).getroot()
    check(root)
    report = collect(migrated)
    assert [s.get("name") for s in root] == [f"waves on {m.heading}" for m in report.migrations]
    by_name = dict(zip(("llvm", "metal", "webgpu"), root, strict=True))
    types = {k: {e.get("type") for e in [*s.iter("failure"), *s.iter("error")]} for k, s in by_name.items()}
    assert types == {"llvm": {"rolled back"}, "metal": {"unsupported", "rolled back"}, "webgpu": {"not judged"}}
    assert "(emulated)" in by_name["metal"].find("testcase").get("classname")  # type: ignore[union-attr]
    assert int(by_name["llvm"].get("tests", 0)) > len(report.cases)
    unsupported = next(e for e in by_name["metal"].iter("error"))
    assert "onerror=alert(1)" in unsupported.get("message", "") and "\ufffd" in unsupported.get("message", "")


def test_a_pass_without_a_launch_is_no_pass(migrated: Path, tmp_path: Path) -> None:
    def change(events: list[dict[str, Any]]) -> None:
        outcome = next(e["outcome"] for e in events if e["event"] == "judged" and e["outcome"]["status"] == "passed")
        outcome["launches"] = outcome["cases"][0]["launches"] = 0
        changed.append(outcome["signature"])

    changed: list[str] = []
    suite = doctored(migrated, tmp_path, change)
    migration = collect(suite).migrations[0]
    assert migration.statuses[changed[0]] == "failed" and not migration.accepted
    assert "no kernel was launched" in migration.outcomes[changed[0]].message


def test_journals_that_do_not_say_enough_are_not_read_as_good(migrated: Path, tmp_path: Path) -> None:
    """Of a version that did not write down tolerances, environments, and the last run."""

    def change(events: list[dict[str, Any]]) -> None:
        del events[0]["environment"]
        events[-1].pop("final")
        for event in events:
            for case in event.get("outcome", {}).get("cases", ()):
                for result in case["verdict"]["results"]:
                    for name in ("tolerance", "histogram", "worst_elements", "worst_channels"):
                        result["figures"].pop(name, None)

    report = collect(doctored(migrated, tmp_path, change))
    migration = report.migrations[0]
    assert migration.share != migration.share, "not known, and not 0"
    assert migration.environment.description == ""
    page = render(report)
    assert "not recorded by the version" in page and "adapter not recorded" in page


def test_another_carve_is_left_out_and_named(migrated: Path, tmp_path: Path) -> None:
    suite = Path(shutil.copytree(migrated, tmp_path / "waves"))
    file = suite / "migrations" / "metal-emulated" / "journal.jsonl"
    first, *rest = file.read_text().splitlines()
    file.write_text("\n".join([json.dumps({**json.loads(first), "suite": "0" * 64}), *rest]) + "\n")
    report = collect(suite)
    assert [m.device for m in report.migrations] == ["llvm:cpu", "webgpu:native"]
    assert any("metal-emulated" in note and "another carve" in note for note in report.notes)


def test_kernels_that_left_the_cache_are_named(migrated: Path, tmp_path: Path) -> None:
    report = collect(migrated, cache=tmp_path)
    assert not report.kernels
    assert any("llvm:cpu" in note and "--restart" in note for note in report.notes)


def test_nothing_is_written_to_the_suite(tapml: Callable[..., Any], migrated: Path, tmp_path: Path) -> None:
    def state() -> dict[Path, bytes]:
        return {p: p.read_bytes() for p in migrated.rglob("*") if p.is_file() and "tensors" not in p.parts}

    before = state()
    tapml("report", migrated, "-o", tmp_path / "r.html")
    assert state() == before, "not even the torn line of a migration that may be running"


def test_devices_choose_the_columns_and_their_order(migrated: Path) -> None:
    found = collect(migrated, ("webgpu", "llvm:cpu")).migrations
    assert [m.device for m in found] == ["webgpu:native", "llvm:cpu"]


def test_what_cannot_be_reported_is_said(
    tapml: Callable[..., Any], copied: Callable[..., Path], migrated: Path, tmp_path: Path
) -> None:
    suite = copied("waves", keep=1)
    ran = tapml("report", suite, "-o", tmp_path / "r.html")
    assert ran.code == 2 and "found none" in ran.err and f"tapml migrate {suite} --target llvm" in ran.err
    ran = tapml("report", migrated, "-o", tmp_path / "r.html", "--device", "cuda")
    assert ran.code == 2 and "found those to llvm:cpu" in ran.err
    ran = tapml("report", migrated, "-o", tmp_path / "nowhere" / "r.html")
    assert ran.code == 2 and "can be written" in ran.err
    ran = tapml("report", migrated, "-o", tmp_path / "r.html", "--json", "-", "--junit", "-")
    assert ran.code == 2 and "found both" in ran.err
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize("damage", ["{}", '{"event": "judged", "outcome": 3}', '{"event": "gate", "results": [{}]}'])
def test_a_damaged_journal_is_named(tapml: Callable[..., Any], migrated: Path, tmp_path: Path, damage: str) -> None:
    suite = Path(shutil.copytree(migrated, tmp_path / "waves"))
    file = suite / "migrations" / "llvm-cpu" / "journal.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:2], damage, *lines[2:]]) + "\n")
    ran = tapml("report", suite, "-o", tmp_path / "r.html")
    assert ran.code == 2 and str(file) in ran.err and "--restart" in ran.err
