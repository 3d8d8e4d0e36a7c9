"""Another machine, by its URL; see :class:`tapml.platform.Machine`."""

from __future__ import annotations

import contextlib
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from tapml.errors import DeviceError
from tapml.platform import Device, DeviceInfo
from tapml.platforms.rpc.address import parse
from tapml.platforms.rpc.connection import Connection, Link

if TYPE_CHECKING:
    from tapml.kernels.plan import Artifact
    from tapml.platforms.rpc.executing import RemoteExecutable
    from tapml.suite.call import Signature

_DEVICES = {"llvm": "cpu"}
"""TVM's name of the device that a target's functions run on."""


@lru_cache(maxsize=None)
def reach(device: str) -> RemoteMachine:
    """The machine behind ``rpc://host:port/key``.  Raises :class:`UsageError` for a URL that is not one."""
    return RemoteMachine(device)


class RemoteMachine:
    """A machine with a TVM RPC server; there is one object for it in a process."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._address = parse(url)
        self._connection = Connection(self._address)

    def describe(self, target: str) -> DeviceInfo:
        """See :class:`tapml.platform.Machine`.  A server that is not there is not waited for."""
        try:
            tracked, _ = self._connection.do(lambda link: link.tracked, patience=0.0)
            processor = self.processor()
        finally:
            self._connection.close()
        address = self._address
        kind = "tracker" if tracked else "server"
        triple, cpu = processor["mtriple"], processor.get("mcpu", "generic")
        return DeviceInfo(
            self._url,
            f"{triple.partition('-')[0]} CPU ({cpu}) by way of the TVM RPC {kind} at {address.host}:{address.port}",
            details={
                kind: f"{address.host}:{address.port}",
                "key": address.key,
                "device": _DEVICES[target],
                "triple": triple,
                "cpu": cpu,
                **({"features": processor["mattr"]} if "mattr" in processor else {}),
            },
        )

    def processor(self) -> dict[str, str]:
        """See :class:`tapml.platform.Machine`: what the URL says, or else the server's compiler."""
        return dict(self._processor)

    def open(self, target: str) -> Device:
        """See :class:`tapml.platform.Machine`."""
        info = DeviceInfo(self._url, f"TVM RPC at {self._address}")
        return RemoteDevice(info, self._connection, _DEVICES[target])

    @cached_property
    def _processor(self) -> dict[str, str]:
        if self._address.processor:
            return {"kind": "llvm", **self._address.processor}
        return self._connection.do(self._ask)[0]

    def _ask(self, link: Link) -> dict[str, str]:
        with contextlib.suppress(AttributeError):  # no such function
            triple, cpu = (link.session.get_function(f"target.llvm_get_system_{name}")() for name in ("triple", "cpu"))
            return {"kind": "llvm", "mtriple": str(triple), "mcpu": str(cpu)}
        raise DeviceError(
            f"expected the server at {self._address} to say what processor it has, found one without a compiler",
            hint="say it in the URL, such as ?triple=aarch64-linux-android&mcpu=cortex-a76",
        )


class RemoteDevice:
    """See :class:`tapml.platform.Device`."""

    def __init__(self, info: DeviceInfo, connection: Connection, kind: str) -> None:
        self.info = info
        self._connection = connection
        self._kind = kind

    def load(self, artifact: Artifact, signature: Signature) -> RemoteExecutable:
        """See :class:`tapml.platform.Device`.  Raises :class:`DeviceError` when the other machine's loader refuses it."""
        from tapml.platforms.rpc.executing import RemoteExecutable

        return RemoteExecutable(self._connection, self._kind, artifact, signature)
