"""pytest-xdist: the cases of one signature go to one process, where it is compiled once."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling


class SignatureScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """As ``--dist loadscope``, with signatures for scopes, and other tests each by itself."""

    def _split_scope(self, nodeid: str) -> str:
        return signature_of(nodeid) or nodeid


def signature_of(nodeid: str) -> str:
    """The node id of a case's signature; empty for that of another test."""
    file, *names = nodeid.split("::")
    return nodeid.rpartition("::")[0] if file.endswith("manifest.json") and len(names) == 3 else ""
