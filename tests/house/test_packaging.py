"""What is installed is what is here; versions are pinned; the scripts of the house are sound."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tapml._version import __version__

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = sorted(p for p in (ROOT / ".ci").iterdir() if p.read_bytes().startswith(b"#!"))


def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def modules() -> set[str]:
    """Every module as it is called once installed: ``tapml/cli/main.py``."""
    found = set()
    for folder, package in (("tapml", "tapml"), ("cli", "tapml/cli"), ("platforms", "tapml/platforms")):
        found |= {f"{package}/{p.relative_to(ROOT / folder).as_posix()}" for p in (ROOT / folder).rglob("*.py")}
    return found


def test_every_package_is_listed() -> None:
    listed = set(setup_cfg()["options"]["packages"].split())
    folders = {m.rsplit("/", 1)[0].replace("/", ".") for m in modules()}
    assert listed == folders, "setup.cfg lists the packages by name"


def test_every_folder_with_modules_is_a_package() -> None:
    for name in {m.rsplit("/", 1)[0] for m in modules()}:
        assert f"{name}/__init__.py" in modules()


def test_the_wheel_has_everything_and_its_command_runs_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    source = tmp_path / "source"
    source.mkdir()
    for name in ("tapml", "cli", "platforms"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", tmp_path, source],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    (wheel,) = tmp_path.glob("tapml-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {n for n in names if n.endswith(".py")} == modules()
    assert any(n.endswith("LICENSE") for n in names)
    page = ROOT / "tapml" / "report" / "page"
    assert {f"tapml/report/page/{p.name}" for p in page.iterdir()} <= names
    site = tmp_path / "site"
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", site, wheel], check=True)
    done = subprocess.run(
        [sys.executable, "-P" if sys.version_info >= (3, 11) else "-B", "-m", "tapml.cli.main", "devices"],
        env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "llvm:cpu" in done.stdout, done.stderr


def pins() -> list[Requirement]:
    lines = [line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    return [Requirement(line) for line in lines if line]


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.13"])
def test_constraints_pin_exactly_and_cover_what_setup_cfg_asks_for(python: str) -> None:
    assert all(re.fullmatch(r"==[\w.]+", str(p.specifier)) for p in pins())
    here = [p for p in pins() if p.marker is None or p.marker.evaluate({"python_version": python})]
    pinned = {canonicalize_name(p.name): p for p in here}
    assert len(pinned) == len(here), "one version of each"
    options = setup_cfg()
    wanted = [options["options"]["install_requires"], *options["options.extras_require"].values()]
    for line in "\n".join(wanted).split("\n"):
        if line.strip():
            requirement = Requirement(line)
            pin = pinned[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(str(pin.specifier).removeprefix("=="))


def test_what_doctor_wants_is_what_is_pinned() -> None:
    from tapml.doctor import PINNED

    for name, version in PINNED.items():
        assert f"{name}=={version}" in (ROOT / "constraints.txt").read_text()
        assert f"{name}=={version}" in setup_cfg()["options"]["install_requires"]


def test_the_versions_agree() -> None:
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    assert metadata.version("tapml") == __version__


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.name)
def test_scripts_are_sound_and_executable(script: Path) -> None:
    assert script.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", script], check=True)
    assert "set -euo pipefail" in script.read_text()


def test_make_alone_lists_the_targets() -> None:
    if shutil.which("make") is None:
        pytest.skip("needs make")
    done = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("setup", "demo", "test", "test-slow", "lint", "bench", "docs", "clean"):
        assert f"make {target}" in done.stdout
