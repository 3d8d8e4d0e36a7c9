"""Pages of other browsers: names, tokens, pages that go and come back, clients that share one."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy
import pytest

from tapml.errors import DeviceError
from tapml.platforms.webgpu.browser.client import BrowserRunner, open_remote, remote_devices
from tapml.platforms.webgpu.browser.discovery import Listening, announced, listen_file
from tests.platforms.webgpu_browser.conftest import OpenBrowser, eventually
from tests.platforms.webgpu_browser.kernels import DOUBLE, ENDLESS, elementwise, ones, run

pytest.importorskip("websockets")


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime directory of this test's own."""
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.delenv("TAPML_LISTEN", raising=False)
    return folder


@pytest.mark.parametrize("path", ["/", "/device.js", "/gpu.js", "/view.js", "/style.css", "/devices"])
@pytest.mark.parametrize("query", ["", "?token=", "?token=wrong", "?other=1"])
def test_nothing_without_the_token(hub: Any, path: str, query: str) -> None:
    with pytest.raises(HTTPError) as refused:
        urlopen(f"http://127.0.0.1:{hub.port}{path}{query}")
    assert refused.value.code == 403
    assert refused.value.read() == b"This address needs its token: open it as tapml printed it.\n"
    with urlopen(f"http://127.0.0.1:{hub.port}{path}?token={hub.token}") as answer:
        assert answer.status == 200


@pytest.mark.parametrize("path", ["/page", "/client"])
def test_no_socket_without_the_token(hub: Any, path: str) -> None:
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    for query in ("", "?token=wrong"):
        with pytest.raises(InvalidStatus) as refused:
            connect(f"ws://127.0.0.1:{hub.port}{path}{query}", proxy=None)
        assert refused.value.response.status_code == 403


def test_files_beside_the_page_are_not_served(hub: Any) -> None:
    for path in ("/../hub.py", "/hub.py", "/%2e%2e/hub.py"):
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"http://127.0.0.1:{hub.port}{path}?token={hub.token}")


def test_pages_by_name(hub: Any, runtime: Path, open_browser: OpenBrowser) -> None:
    """Two browsers, found by other processes through the file; one goes, and its name is free again."""
    assert remote_devices() == ()
    with announced(Listening(hub.url(), pid=1)):  # a process that lives
        assert remote_devices() == ()
        open_browser(f"{hub.url()}&name=My%20Phone")
        assert hub.wait_for_page("my-phone", 20)
        second = open_browser(f"{hub.url()}&name=my-phone")
        assert hub.wait_for_page("my-phone-2", 20)
        assert [d.name for d in remote_devices()] == ["webgpu:remote/my-phone", "webgpu:remote/my-phone-2"]
        for name in ("my-phone", "webgpu:remote/my-phone-2"):
            runner = open_remote(name, timeout=20)
            assert runner.name == name.removeprefix("webgpu:remote/")
            out, _ = run(runner.load(*elementwise(DOUBLE, 10)), ones(10))
            assert (out == 3).all()
            runner.close()
        second.close()
        assert eventually(lambda: len(remote_devices()) == 1)
    assert not listen_file().exists()
    with pytest.raises(DeviceError, match="found none"):
        open_remote("my-phone")


def test_a_page_that_goes_and_comes_back(hub: Any, open_browser: OpenBrowser) -> None:
    """What runs fails; what comes later waits for the page, sends all it needs again, and works."""
    first = open_browser(f"{hub.url()}&name=tablet")
    assert hub.wait_for_page("tablet", 20)
    runner = BrowserRunner(hub.url(), "tablet", timeout=30)
    good, endless = runner.load(*elementwise(DOUBLE, 10)), runner.load(*elementwise(ENDLESS, 10))
    run(good, ones(10), key="kept")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, endless, ones(10))
        assert eventually(lambda: hub.pages()[0].doing == "main_kernel")
        time.sleep(0.3)
        first.close()
        with pytest.raises(DeviceError, match="the browser page tablet has gone: "):
            running.result(20)
        again = pool.submit(run, good, ones(10), key="kept")
        open_browser(f"{hub.url()}&name=tablet")
        assert (again.result(20)[0] == 3).all()
    runner.close()


def test_no_page_of_that_name(hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapml.platforms.webgpu.browser.hub.RETURN_SECONDS", 0.2)
    with pytest.raises(DeviceError, match="the browser page nobody has gone, and was not back"):
        BrowserRunner(hub.url(), "nobody")


def test_a_hub_that_is_gone(hub: Any, open_browser: OpenBrowser) -> None:
    open_browser(f"{hub.url()}&name=laptop")
    assert hub.wait_for_page("laptop", 20)
    runner = BrowserRunner(hub.url(), "laptop")
    url = hub.url()
    hub.stop()
    with pytest.raises(DeviceError, match=r"the hub at .* has gone"):
        runner.load(*elementwise(DOUBLE, 10))
    with pytest.raises(DeviceError, match=r"expected a hub at .*, found none"):
        BrowserRunner(url, "laptop")


def test_clients_share_a_page(hub: Any, open_browser: OpenBrowser) -> None:
    """Requests queue; plans and inputs of one are not those of the other, and are freed when it goes."""
    open_browser(f"{hub.url()}&name=shared&keep=0.001")  # keeps one kilobyte of inputs
    assert hub.wait_for_page("shared", 20)
    clients = [BrowserRunner(hub.url(), "shared", timeout=30) for _ in range(2)]
    plans = [c.load(*elementwise(f"b1[i] = b0[i] + {n}.0;", 100)) for n, c in enumerate(clients)]
    wrong: list[int] = []

    def work(n: int) -> None:
        for repeat in range(20):
            out, _ = run(plans[n], ones(100) * (n + 1), key="a")
            if not (out == 1 + 2 * n).all():
                wrong.append(repeat)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert [c.uploaded for c in clients] == [400, 400]
    run(plans[0], ones(100), key="b")  # 1,200 bytes: the least recently used input goes, and is sent again
    out, _ = run(plans[0], ones(100), key="a")
    out1, _ = run(plans[1], ones(100) * 2, key="a")
    assert (out == 1).all() and (out1 == 3).all()
    assert sum(c.uploaded for c in clients) > 1200
    (page,) = hub.pages()
    assert page.clients == 2 and page.runs == 43 and page.launches == 43
    clients[0].close()
    assert eventually(lambda: page.clients == 1)
    assert (run(plans[1], ones(100) * 2, key="a")[0] == 3).all()
    clients[1].close()


def test_stale_and_foreign_files(runtime: Path) -> None:
    path = listen_file()
    path.parent.mkdir(parents=True)
    for text in ("not json", "[]", json.dumps({"url": "http://127.0.0.1:1/?token=x", "pid": 2**22 + 1})):
        path.write_text(text)
        assert remote_devices() == () and not path.exists()
    path.write_text(json.dumps({"url": "http://127.0.0.1:1/?token=x", "pid": 1}))  # a number that was used again
    assert remote_devices() == () and not path.exists()


def test_a_hub_named_by_the_user_has_to_answer(hub: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPML_LISTEN", hub.url())
    assert remote_devices() == ()
    monkeypatch.setenv("TAPML_LISTEN", "http://127.0.0.1:1/?token=x")
    with pytest.raises(DeviceError, match=r"expected a hub at http://127.0.0.1:1 \(\$TAPML_LISTEN\)"):
        remote_devices()


def test_tls(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a certificate of one's own, which those who find the hub by its file trust, and others do not."""
    from tapml.platforms.webgpu.browser.hub import Hub

    openssl = shutil.which("openssl") or pytest.skip("needs openssl")
    cert, key = str(runtime / "cert.pem"), str(runtime / "key.pem")
    make = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=tapml",
        "-keyout",
        key,
        "-out",
        cert,
    ]
    subprocess.run(make, check=True, capture_output=True)
    monkeypatch.setattr("tapml.platforms.webgpu.browser.hub.RETURN_SECONDS", 0.1)
    hub = Hub(cert=cert, key=key)
    hub.start()
    try:
        assert hub.url().startswith("https://")
        with announced(Listening(hub.url(), 1, cert)):
            assert remote_devices() == ()
            with pytest.raises(DeviceError, match="the browser page nobody has gone"):
                open_remote("nobody")
        monkeypatch.setenv("TAPML_LISTEN", hub.url())
        with pytest.raises(DeviceError, match=r"(?i)certificate"):
            remote_devices()
    finally:
        hub.stop()


def test_numpy_is_all_that_a_reply_holds(runner: BrowserRunner) -> None:
    _, ran = run(runner.load(*elementwise(DOUBLE, 7)), ones(7))
    (data,) = ran.outputs.values()
    assert data.dtype == numpy.uint8 and data.shape == (28,)
