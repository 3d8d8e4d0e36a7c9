"""Addresses, and what is said when what they name is not there."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from tapml.errors import DeviceError, UnsupportedError, UsageError
from tapml.platform import DeviceInfo, find_device, find_platform, platform_names
from tapml.platforms.rpc import connecting
from tapml.platforms.rpc.address import Address, parse
from tapml.platforms.rpc.connection import Connection
from tapml.platforms.rpc.reach import reach
from tests.platforms.rpc.conftest import Processes
from tests.platforms.rpc.servers import Process, free_port


def look(url: str, target: str = "llvm") -> DeviceInfo:
    reach.cache_clear()
    return find_device(find_platform(target), url)


def test_an_address_is_what_the_url_says() -> None:
    assert parse("rpc://10.0.0.7:9090/pi%204") == Address("10.0.0.7", 9090, "pi 4")
    assert parse("rpc://[::1]:9090") == Address("::1", 9090, "")
    said = parse("rpc://pi:9090/k?triple=aarch64-linux-gnu&mcpu=cortex-a76&mattr=%2Bneon,%2Bdotprod")
    assert said.processor == {"mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76", "mattr": "+neon,+dotprod"}
    assert str(parse("rpc://[::1]:9090/k?triple=t")) == "rpc://[::1]:9090/k"


@pytest.mark.parametrize(
    "url",
    [
        "rpc://",
        "rpc://host/k",
        "rpc://host:99999/k",
        "rpc://host:port/k",
        "rpc://host:9/a/b",
        "rpc://host:9/k#f",
        "rpc://host:9/k?cpu=x",
        "rpc://host:9/k?triple=",
        "rpc://host:9/k?mcpu=cortex-a76",
        "rpc://user@host:9/k",
    ],
)
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(UsageError, match="in the URL of a device") as caught:
        parse(url)
    assert "rpc://HOST:PORT/KEY" in caught.value.hint


def test_rpc_is_no_platform_and_no_other_scheme_is_known() -> None:
    assert "rpc" not in platform_names()
    with pytest.raises(UsageError, match=r"to begin with rpc://, found 'adb://phone'"):
        look("adb://phone")


def test_a_target_without_it_says_so() -> None:
    with pytest.raises(UnsupportedError, match="rpc for target webgpu is not there yet"):
        look("rpc://127.0.0.1:1/k", "webgpu")


def test_the_device_says_what_it_is(plain: Process) -> None:
    info = look(f"rpc://127.0.0.1:{plain.port}/board")
    assert info.mode == "native" and f"TVM RPC server at 127.0.0.1:{plain.port}" in info.description
    assert info.details["key"] == "board" and info.details["triple"] and info.details["cpu"]


def test_a_tracker_is_known_by_its_answer(processes: Processes) -> None:
    info = look(f"rpc://127.0.0.1:{processes.tracker.port}/farm")
    assert f"TVM RPC tracker at 127.0.0.1:{processes.tracker.port}" in info.description


def test_a_tracker_without_such_a_server(processes: Processes) -> None:
    with pytest.raises(DeviceError, match=r"knows servers of keys \['farm'\], and none of key 'pasture'") as caught:
        look(f"rpc://127.0.0.1:{processes.tracker.port}/pasture")
    assert "--tracker" in caught.value.hint


def test_nothing_listens() -> None:
    begin = time.monotonic()
    with pytest.raises(DeviceError, match="found none: Connection refused") as caught:
        look(f"rpc://127.0.0.1:{free_port()}/board")
    assert "rpc_server" in caught.value.hint and time.monotonic() - begin < 5


def test_another_key(plain: Process) -> None:
    with pytest.raises(DeviceError, match="expected a server with key 'bard'"):
        look(f"rpc://127.0.0.1:{plain.port}/bard")


def test_a_host_that_nobody_knows() -> None:
    with pytest.raises(DeviceError, match="expected a host name or address"):
        look("rpc://no-such-host.invalid:9090/k")


def test_something_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with another client, or one whose session crashed: TVM's own client would wait for ever."""
    monkeypatch.setattr(connecting, "_ANSWER_SECONDS", 0.3)
    wanted = pytest.raises(DeviceError, match=r"said nothing for 0\.3 s")
    with socket.create_server(("127.0.0.1", 0)) as silent, wanted as caught:
        look(f"rpc://127.0.0.1:{silent.getsockname()[1]}/k")
    assert "one client at a time" in caught.value.hint


def test_something_that_is_no_server() -> None:
    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            with listener.accept()[0] as client:
                client.recv(100)
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        with pytest.raises(DeviceError, match="expected a TVM RPC server"):
            look(f"rpc://127.0.0.1:{listener.getsockname()[1]}/k")


def test_a_server_without_compiler_needs_a_triple(processes: Processes) -> None:
    url = f"rpc://127.0.0.1:{processes.bare.port}/phone"
    with pytest.raises(DeviceError, match="found one without a compiler") as caught:
        look(url)
    assert "?triple=" in caught.value.hint
    info = look(f"{url}?triple=x86_64-linux-gnu&mcpu=x86-64-v2")
    assert info.details["cpu"] == "x86-64-v2"


def test_a_server_that_was_away_is_waited_for(plain: Process) -> None:
    connection = Connection(Address("127.0.0.1", plain.port, "board"))
    plain.restart()
    assert connection.do(lambda link: link.alive()) == (True, False)
    connection.close()
