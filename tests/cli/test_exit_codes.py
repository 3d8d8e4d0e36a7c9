"""Exit codes, and what is printed with them: 0 all passed, 1 some failed, 2 usage or environment."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WRONG_GELU = Path(__file__).resolve().parent.parent / "converters" / "wrong_gelu.py"
TAYLOR_SIN = WRONG_GELU.with_name("taylor_sin.py")


def counts_of(out: str) -> dict[str, int]:
    """``176 compute signatures: 170 migrated, 6 failed; ...`` -> the numbers by status; the total checked."""
    (line,) = re.findall(r"^(\d+) compute signatures: (.*?)(?:;.*)?$", out, re.MULTILINE)
    found = {status: int(number) for number, status in re.findall(r"(\d+) ([a-z ]+)", line[1])}
    assert sum(found.values()) == int(line[0])
    return found


def test_all_passed_is_0_and_the_json_says_what_the_terminal_says(
    tapml: Callable[..., Any], carved: Callable[..., Path], tmp_path: Path
) -> None:
    ran = tapml("test", carved("mlp"), "--target", "llvm", "--json", tmp_path / "out.json")
    assert (ran.code, ran.err) == (0, "")
    data = json.loads((tmp_path / "out.json").read_text())
    assert counts_of(ran.out) == data["counts"] == {"passed": len(data["signatures"])}
    assert f"device {data['device']} ({data['mode']})" in ran.out
    for signature in data["signatures"]:
        assert signature["operator"] in ran.out
        assert signature["launches"] > 0


def test_a_migration_says_the_same_in_json(tapml: Callable[..., Any], copied: Callable[..., Path]) -> None:
    suite = copied("waves", keep=1)
    file = suite.parent / "out.json"
    ran = tapml("migrate", suite, "--target", "llvm", "--with", TAYLOR_SIN, "--json", file)
    assert (ran.code, ran.err.count("rolled back")) == (1, 1)
    data = json.loads(file.read_text())
    assert counts_of(ran.out) == data["counts"] == {"migrated": len(data["signatures"]) - 1, "rolled back": 1}
    assert data["accepted"] is False
    (rejected,) = [g for g in data["gates"] if g["rejected"]]
    assert rejected["where"] in " ".join(ran.out.split())
    final = data["final"]
    assert f"{sum(final['on_target'].values()):,} calls and {final['launches']:,} kernel launches there" in ran.out
    kept = ", ".join(f"{number} {kind}" for kind, number in data["kept"].items())
    assert (f"kept in PyTorch: {kept}" in ran.out) == bool(kept)


def test_json_on_standard_output_is_alone_there(tapml: Callable[..., Any], copied: Callable[..., Path]) -> None:
    suite = copied("mlp")
    for command in ("test", "migrate"):
        ran = tapml(command, suite, "--target", "llvm", "--json", "-")
        assert ran.code == 0
        assert set(json.loads(ran.out)["counts"]) == {"passed" if command == "test" else "migrated"}


def test_some_failed_is_1_and_says_why(tapml: Callable[..., Any], carved: Callable[..., Path], tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(
        "import tapml\n"
        "from tvm import tirx\n"
        "@tapml.kernel('aten._softmax.default', 'aten.softmax.int', target='llvm')\n"
        "def softmax(ctx, x, *rest):\n"
        "    return ctx.pointwise(lambda v: tirx.exp(v), x)\n"
    )
    ran = tapml("test", carved("mlp"), "--target", "llvm", "--select", "softmax", "--with", bad, "--json", "-")
    (signature,) = json.loads(ran.out)["signatures"]
    attempts = {a["route"]: a["status"] for a in signature["attempts"]}
    assert attempts["converter"] == "failed"
    assert ran.code == (0 if signature["status"] == "passed" else 1)


def test_a_selection_that_matches_nothing_is_an_error(tapml: Callable[..., Any], carved: Callable[..., Path]) -> None:
    """Nothing was executed, so nothing passed."""
    ran = tapml("test", carved("mlp"), "--target", "llvm", "--select", "nothing_of_this_name")
    assert ran.code == 2
    assert "error: " in ran.err and "nothing_of_this_name" in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "No such command"),
        (["migrate"], "Missing argument 'SUITE'"),
        (["migrate", "SUITE"], "Missing option '--target'"),
        (["migrate", "SUITE", "--target", "nowhere"], "expected a target out of"),
        (["migrate", "SUITE", "--target", "llvm", "--device", "llvm:gpu"], "expected device 'llvm:gpu'"),
        (["migrate", "SUITE", "--target", "llvm", "--gate", "sometimes"], "'sometimes' is not one of"),
        (["migrate", "SUITE", "--target", "llvm", "--jobs", "0"], "0 is not in the range"),
        (["migrate", "SUITE", "--target", "llvm", "--resume"], "nothing to resume"),
        (["migrate", "no_suite", "--target", "llvm"], "no_suite: expected the directory of a suite"),
        (["migrate", "SUITE", "--target", "llvm", "--with", "no_file.py"], "no_file.py"),
        (["test", "no_suite", "--target", "llvm"], "no_suite: expected the directory of a suite"),
        (["test", "SUITE", "--target", "llvm", "--select", "a or"], "expected an expression of words"),
        (["show", "no_suite"], "no_suite: expected the directory of a suite"),
        (["show", "SUITE", "0123456789ab"], "0123456789ab"),
        (["carve", "no_such_module:factory", "-o", "out"], "no_such_module"),
        (["carve", "no_file.gguf", "-o", "out"], "no_file.gguf"),
        (["carve", "SUITE", "-o", "out"], "config.json"),
        (["carve", "x.py:f"], "Missing option '-o' / '--output'"),
    ],
)
def test_misuse_is_2_with_one_error_line_and_a_hint(
    tapml: Callable[..., Any],
    copied: Callable[..., Path],
    in_directory: Path,
    arguments: list[str],
    message: str,
) -> None:
    suite = copied("mlp")
    before = sorted(in_directory.rglob("*"))
    ran = tapml(*[str(suite) if a == "SUITE" else a for a in arguments])
    assert ran.code == 2
    assert ran.out == ""
    lines = ran.err.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["error", "hint"], ran.err
    assert message in lines[0]
    made = {p for p in set(in_directory.rglob("*")) - set(before) if "migrations" not in p.parts}
    assert not made, "nothing is left behind"


def test_debug_shows_the_traceback(tapml: Callable[..., Any]) -> None:
    ran = tapml("--debug", "show", "no_suite")
    assert ran.code == 2 and "Traceback" in ran.err and "error: no_suite" in ran.err


def test_a_defect_of_ours_is_called_that(tapml: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("it broke\nin two")

    monkeypatch.setattr("tapml.doctor.examine", broken)
    ran = tapml("doctor")
    assert ran.code == 2
    assert ran.err.splitlines()[0] == "error: unexpected RuntimeError: it broke in two"
    assert "defect in tapml" in ran.err.splitlines()[1]


def test_a_command_whose_import_fails_is_listed_and_explains_itself(
    tapml: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tapml.cli.devices", None)
    assert "devices" in tapml("--help").out
    ran = tapml("devices", "--some-option")
    assert ran.code == 2
    assert "`tapml devices` needs a package" in ran.err and "hint: `tapml doctor`" in ran.err


def test_devices_and_doctor(tapml: Callable[..., Any]) -> None:
    assert "llvm:cpu" in tapml("devices").out
    ran = tapml("doctor")
    assert ran.code == 0 and "apache-tvm-ffi" in ran.out


def test_doctor_is_2_when_something_needed_is_missing(
    tapml: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapml.doctor.PINNED", {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.0.1"})
    ran = tapml("doctor")
    assert ran.code == 2 and "expected 0.0.1" in ran.out
