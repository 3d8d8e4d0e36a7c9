"""Operators on a server on loopback: as on this machine, whatever happens to the server."""

from __future__ import annotations

import platform as platform_module
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tapml.errors import DeviceError
from tapml.kernels.plan import Artifact
from tapml.lowering.lower import lower, routes
from tapml.platform import Executable, Execution, find_platform
from tapml.platforms.llvm import codegen
from tapml.platforms.rpc import connection as connection_module
from tapml.platforms.rpc.address import Address
from tapml.platforms.rpc.connection import Connection, Link
from tapml.platforms.rpc.executing import LOST, _Loaded
from tapml.platforms.rpc.reach import reach
from tapml.platforms.rpc.turn import Turn
from tests.lowering.running import Call, record
from tests.platforms.rpc.conftest import Processes
from tests.platforms.rpc.servers import Process

CALLS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "product": ("aten.mm.default", (torch.randn(37, 64), torch.randn(64, 128))),
    "several results": ("aten.native_layer_norm.default", (torch.randn(2, 37, 64), [64], torch.randn(64), None, 1e-5)),
    "bool": ("aten.ge.Tensor", (torch.randn(9), torch.randn(9))),
    "bfloat16": ("aten.add.Tensor", (torch.randn(9).bfloat16(), torch.randn(9).bfloat16())),
    "int64": ("aten.embedding.default", (torch.randn(50, 8), torch.tensor([[3, 49], [0, 7]]))),
    "in place": ("aten.add_.Tensor", (torch.randn(4, 5).t(), torch.randn(5, 4))),
    "no argument": ("aten.arange.default", (7,)),
    "scalar": ("aten.sum.default", (torch.randn(30),)),
    "strided": ("aten.exp.default", (torch.randn(20, 30)[3:9, ::2],)),
}


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    reach.cache_clear()
    yield
    reach.cache_clear()


def loaded(call: Call, url: str) -> Executable:
    platform = find_platform("llvm")
    lowered = lower(call.signature, "llvm", routes(call.signature, "llvm")[0])
    return platform.open(url).load(platform.build(lowered, url), call.signature)


def equal(found: Execution, expected: Execution) -> bool:
    pairs = zip(found.results, expected.results, strict=True)
    return all(a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a, b) for a, b in pairs)


def here(call: Call) -> Execution:
    return loaded(call, "llvm:cpu").run(call.tensors)


def times_zero(call: Call) -> Execution:
    return loaded(call, "llvm:cpu").run([call.tensors[0], torch.zeros_like(call.tensors[1])])


@pytest.mark.parametrize("name", CALLS)
def test_the_same_bits_as_here(name: str, plain: Process) -> None:
    call = record(*CALLS[name])
    found, expected = loaded(call, f"rpc://127.0.0.1:{plain.port}/board").run(call.tensors), here(call)
    assert equal(found, expected) and found.launches == expected.launches > 0
    assert found.seconds >= 0 and not found.notes and not found.faults


def test_by_way_of_a_tracker(processes: Processes) -> None:
    call = record(*CALLS["product"])
    assert equal(loaded(call, f"rpc://127.0.0.1:{processes.tracker.port}/farm").run(call.tensors), here(call))


def test_for_a_processor_that_the_url_describes(processes: Processes) -> None:
    call = record(*CALLS["product"])
    if platform_module.machine() != "x86_64" or sys.platform != "linux":
        pytest.skip("needs an x86-64 machine with Linux")
    url = f"rpc://127.0.0.1:{processes.bare.port}/phone?triple=x86_64-linux-gnu&mcpu=x86-64-v2"
    found = loaded(call, url).run(call.tensors)
    torch.testing.assert_close(found.results[0], here(call).results[0])
    assert find_platform("llvm").fingerprint(url) != find_platform("llvm").fingerprint("llvm:cpu")


def test_the_server_links_what_nothing_here_links_for(plain: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codegen, "linker_for", lambda triple: None)
    url, call = f"rpc://127.0.0.1:{plain.port}/board", record(*CALLS["product"])
    platform = find_platform("llvm")
    artifact = platform.build(lower(call.signature, "llvm", "converter"), url)
    assert list(artifact.files) == [codegen.OBJECT]
    assert equal(platform.open(url).load(artifact, call.signature).run(call.tensors), here(call))


def test_code_for_another_kind_of_machine() -> None:
    url, call = "rpc://127.0.0.1:1/k?triple=aarch64-linux-android&mcpu=cortex-a76", record(*CALLS["product"])
    artifact = find_platform("llvm").build(lower(call.signature, "llvm", "converter"), url)
    ((name, code),) = artifact.files.items()
    assert name == (codegen.LIBRARY if codegen.linker_for("aarch64-linux-android") else codegen.OBJECT)
    assert code[:4] == b"\x7fELF" and code[18] == 183  # EM_AARCH64


def test_a_damaged_library_is_refused(plain: Process) -> None:
    url, call = f"rpc://127.0.0.1:{plain.port}/board", record(*CALLS["bool"])
    platform = find_platform("llvm")
    good = platform.build(lower(call.signature, "llvm", "converter"), url)
    bad = Artifact(good.plan, {codegen.LIBRARY: b"\x7fELF" + bytes(100)}, good.route)
    with pytest.raises(DeviceError, match="loader refused a compiled kernel"):
        platform.open(url).load(bad, call.signature)
    assert equal(platform.open(url).load(good, call.signature).run(call.tensors), here(call))


def test_parameters_stay_there(plain: Process) -> None:
    weight = torch.nn.Parameter(torch.randn(64, 128))
    call = record("aten.mm.default", (torch.randn(37, 64), weight.detach()))
    executable = loaded(call, f"rpc://127.0.0.1:{plain.port}/board")
    first = executable.run([call.tensors[0], weight])
    changed = torch.ones(64, 128).zero_()  # and so sent each time
    kept = executable._plan._connection._link.kept  # type: ignore[attr-defined]
    assert len(kept) == 1
    assert equal(executable.run([call.tensors[0], weight]), first) and len(kept) == 1
    assert equal(executable.run([call.tensors[0], changed]), times_zero(call)) and len(kept) == 1
    assert equal(executable.run([call.tensors[0], weight]), first), "another argument was written over it"
    with torch.no_grad():
        weight.mul_(2)
    assert equal(executable.run([call.tensors[0] / 2, weight]), first) and len(kept) == 2


def test_a_server_killed_in_the_middle(plain: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the upload and the launch; a supervisor starts it again."""
    call = record(*CALLS["product"])
    executable, expected = loaded(call, f"rpc://127.0.0.1:{plain.port}/board"), here(call)
    kills = 1
    original = _Loaded._fetch

    def fetch(self: _Loaded, index: int) -> Any:
        nonlocal kills
        if kills:
            kills -= 1
            plain.restart()
        return original(self, index)

    monkeypatch.setattr(_Loaded, "_fetch", fetch)
    found = executable.run(call.tensors)
    assert equal(found, expected) and found.notes == (LOST,) and kills == 0
    assert equal(executable.run(call.tensors), expected)


def test_an_operator_that_ends_its_session_twice(plain: Process) -> None:
    """As a kernel that crashes does.  The server of docs/rpc.md ends then, and is started again."""
    supervisor = plain.supervise()
    connection = Connection(Address("127.0.0.1", plain.port, "board"))

    def crash(link: Link) -> None:
        plain.kill_sessions()
        link.session.get_function("tvm.rpc.server.upload")

    try:
        with pytest.raises(DeviceError, match="was lost twice while one operator ran"):
            connection.do(crash)
        assert connection.do(lambda link: link.alive()) == (True, False), "the next operator has a connection again"
    finally:
        supervisor.set()
        connection.close()


def test_a_server_that_stays_away(plain: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "PATIENCE", 0.5)
    call = record(*CALLS["bool"])
    executable = loaded(call, f"rpc://127.0.0.1:{plain.port}/board")
    plain.kill()
    with pytest.raises(DeviceError, match=r"found none, after 0\.5 s of waiting"):
        executable.run(call.tensors)
    with pytest.raises(DeviceError, match="found none: "):  # not waited for again
        executable.run(call.tensors)


def test_what_the_server_refuses_is_no_lost_connection(plain: Process) -> None:
    connection = Connection(Address("127.0.0.1", plain.port, "board"))
    with pytest.raises(DeviceError, match="this is what it says"):
        connection.do(lambda link: link.session.get_function("rpc.test.except")("this is what it says"))
    connection.close()


def test_an_idle_connection_is_for_others(plain: Process) -> None:
    """Another gets its turn although this one never says that it is done."""
    connection = Connection(Address("127.0.0.1", plain.port, "board"))
    connection.do(lambda link: None)
    other = Connection(Address("127.0.0.1", plain.port, "board"))
    assert other.do(lambda link: link.alive()) == (True, False)
    assert connection.do(lambda link: link.alive()) == (True, False)
    connection.close()
    other.close()


def test_who_works_on_and_on_lets_others_in_between() -> None:
    mine, other = Turn("a server"), Turn("a server")
    assert mine.take(0) and not mine.wanted() and not other.take(0)
    came = threading.Event()
    threading.Thread(target=lambda: other.take(5) and came.set()).start()
    while not mine.wanted():
        pass
    mine.give()
    assert came.wait(2) and not mine.take(0)
    other.give()
    assert mine.take(0)
    mine.give()
