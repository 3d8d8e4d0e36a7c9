"""The workflow that users copy: it is in the docs as it is, what it calls exists, and its commands work."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest
import yaml
from packaging.requirements import Requirement

from tapml.cli.main import cli
from tapml.platform import find_platform, platform_names

ROOT = Path(__file__).resolve().parent.parent.parent
WORKFLOW = ROOT / "examples" / "ci" / "github-actions.yml"
EXPRESSION = re.compile(r"\$\{\{ ?(.*?) ?\}\}")

pytest_plugins = ("pytester",)


def jobs() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    return found


def variants(job: dict[str, Any]) -> list[dict[str, str]]:
    """The values of ``matrix`` for each time that a job runs."""
    return list(job.get("strategy", {}).get("matrix", {}).get("include", [{}]))


def commands(job: dict[str, Any], matrix: dict[str, str]) -> Iterator[list[str]]:
    """The words of each command, with the values of ``matrix`` put in."""
    for step in job["steps"]:
        text = EXPRESSION.sub(lambda m: matrix[m[1].removeprefix("matrix.")], step.get("run", ""))
        yield from (shlex.split(line) for line in text.splitlines())


def all_commands() -> list[list[str]]:
    return [c for job in jobs().values() for matrix in variants(job) for c in commands(job, matrix)]


def test_it_is_in_the_docs() -> None:
    assert f"```yaml\n{WORKFLOW.read_text()}```\n" in (ROOT / "docs" / "ci.md").read_text()


def test_it_is_a_workflow() -> None:
    """As far as GitHub's schema goes for what is used here."""
    data = yaml.safe_load(WORKFLOW.read_text())
    assert set(data) == {"name", True, "jobs"} and data[True] == ["push", "pull_request"]  # YAML's "on" is true
    names = set(data["jobs"])
    for job in data["jobs"].values():
        assert set(job) <= {"runs-on", "needs", "strategy", "steps"} and job["runs-on"]
        assert job.get("needs") is None or job["needs"] in names
        known = {f"steps.{step['id']}.outputs.cache-hit" for step in job["steps"] if "id" in step}
        known |= {f"matrix.{name}" for matrix in variants(job) for name in matrix} | {"github.sha", "!cancelled()"}
        for step in job["steps"]:
            assert set(step) <= {"name", "id", "uses", "with", "run", "if"} and ("uses" in step) != ("run" in step)
            assert re.fullmatch(r"actions/[\w-]+@v\d+", step.get("uses", "actions/checkout@v4"))
            condition = step.get("if", "")
            assert not condition or condition.partition(" != ")[0] in known or EXPRESSION.fullmatch(condition)
            for value in [*step.get("with", {}).values(), step.get("run", ""), condition]:
                for expression in EXPRESSION.findall(str(value)):
                    assert expression in known or expression.startswith("hashFiles("), expression
                    for pattern in re.findall(r"'tapml-source/(.*?)'", expression):
                        assert list(ROOT.glob(pattern)), pattern


def test_what_it_uploads_is_what_it_downloads() -> None:
    steps = [step for job in jobs().values() for step in job["steps"]]
    uploads, downloads = (
        [s["with"]["name"] for s in steps if s.get("uses", "").startswith(f"actions/{kind}-artifact")]
        for kind in ("upload", "download")
    )
    assert set(downloads) <= set(uploads) and len(set(uploads)) == len(uploads)
    (report,) = [word for c in all_commands() if c[0] == "pytest" and "llvm" in c for word in c if "junit" in word]
    assert EXPRESSION.sub("llvm", uploads[-1]) + ".xml" == report.partition("=")[2]


def test_what_it_installs_exists() -> None:
    options = configparser.ConfigParser()
    options.read(ROOT / "setup.cfg")
    setup = (ROOT / ".ci" / "setup").read_text()
    pinned = (ROOT / "constraints.txt").read_text()
    for words in all_commands():
        if words[:2] == ["pip", "install"]:
            assert words[2] == "-c" and (ROOT / words[3].removeprefix("tapml-source/")).is_file()
            assert words[4].startswith("./tapml-source")
            extras = re.findall(r"\[(.*)\]", words[4])
            assert all(e in options["options.extras_require"] for extra in extras for e in extra.split(","))
            assert all(f"\n{Requirement(w).name}==" in pinned for w in words[5:])
        elif words[:3] == ["sudo", "apt-get", "install"]:
            packages = [w for w in words[3:] if not w.startswith("-")]
            assert packages and all(re.search(rf"\b{p}\b", setup) for p in packages)
        else:
            assert words[0] in ("tapml", "pytest") or words[:3] == ["sudo", "apt-get", "update"]


def test_its_commands_parse(pytester: pytest.Pytester) -> None:
    (pytester.path / "suite").mkdir()
    for words in all_commands():
        if words[0] == "tapml":
            context = click.Context(cli, info_name="tapml", **cli.context_settings)
            command = cli.get_command(context, words[1])
            assert command is not None
            own = click.Context(command, info_name=words[1], parent=context)
            command.make_parser(own).parse_args(args=words[2:])
        if words[0] == "pytest":
            config = pytester.parseconfig(*words[1:])
            assert config.args == ["suite"] and config.getoption("tapml_target") in words
            assert config.getoption("xmlpath") and config.getoption("numprocesses") == 2
            assert config.getoption("tapml_target") in platform_names()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_it_runs(tmp_path: Path) -> None:
    """Both jobs, with a small model in place of the reader's."""
    (tmp_path / "mypackage").mkdir()
    (tmp_path / "mypackage" / "model.py").write_text("from tests.programs import mlp as factory\n")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    here = {d.name for t in ("llvm", "webgpu") for d in find_platform(t).devices()}
    done = 0
    for job in jobs().values():
        for matrix in variants(job):
            if matrix.get("device", "llvm:cpu") not in here:
                continue
            for words in commands(job, matrix):
                if words[0] in ("tapml", "pytest"):
                    ran = subprocess.run(
                        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250, check=False
                    )
                    assert ran.returncode == 0, f"{words}: {ran.stdout}{ran.stderr}"
            if "target" in matrix:
                report = ElementTree.parse(tmp_path / f"junit-{matrix['target']}.xml").getroot()[0]
                devices = {p.get("value") for p in report.iter("property") if p.get("name") == "device"}
                assert devices == {matrix["device"]} and int(report.get("tests", 0)) == 5
                assert report.get("failures") == report.get("errors") == report.get("skipped") == "0"
                done += 1
    assert done
