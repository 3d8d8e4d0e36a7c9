"""``manifest.json``: what a suite has, as data.  Written from it, and parsed into it with every field checked.

Parsing executes nothing and believes nothing: names of dtypes, layouts and devices come from closed lists, and a tensor
record is accepted only when its view stays within the bytes that its buffer has.  See ``docs/suite-format.md``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tapml.suite.call import Json, Signature, canonical_json
from tapml.suite.case import Origin, SignatureRecord
from tapml.suite.record import TensorRecord
from tapml.suite.store import ExternalBuffer
from tapml.suite_format import FORMAT

VERSION = 1

VOLATILE = ("created", "timing", "host")
"""Members of ``info`` that differ between two carves of the same thing; the digest leaves them out."""


@dataclass(frozen=True)
class CaseEntry:
    """A case without its values.  ``aliases``: groups of tensor arguments that share storage, one of each mutated."""

    id: str
    origin: Origin
    tensors: tuple[TensorRecord, ...]
    results: tuple[tuple[str, TensorRecord], ...]
    aliases: tuple[tuple[int, ...], ...]
    stress: dict[str, Json]

    @property
    def signature_id(self) -> str:
        return self.id.partition("/")[0]

    @property
    def records(self) -> tuple[TensorRecord, ...]:
        """All tensor records, arguments first."""
        return self.tensors + tuple(record for _, record in self.results)

    def to_json(self) -> Json:
        return {
            "id": self.id,
            "origin": {
                "call_index": self.origin.call_index,
                "module": self.origin.module,
                "source": self.origin.source,
            },
            "tensors": [record.to_json() for record in self.tensors],
            "results": [[name, record.to_json()] for name, record in self.results],
            "aliases": [list(group) for group in self.aliases],
            "stress": encode_numbers(self.stress),
        }


@dataclass(frozen=True)
class Manifest:
    """The content of ``manifest.json``.  ``packs``: file below the suite's directory -> its size in bytes.

    Signatures and cases are by id, external buffers by hash.
    """

    info: dict[str, Json]
    packs: dict[str, int]
    external: dict[str, ExternalBuffer]
    signatures: dict[str, SignatureRecord]
    cases: dict[str, CaseEntry]
    reference_outputs: tuple[tuple[str, TensorRecord], ...]

    def to_json(self) -> Json:
        """The JSON object, without its ``digest``."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "info": encode_numbers(self.info),
            "packs": [{"path": path, "size": size} for path, size in self.packs.items()],
            "external": {name: buffer.to_json() for name, buffer in self.external.items()},
            "signatures": [_signature_record_to_json(record) for record in self.signatures.values()],
            "cases": [entry.to_json() for entry in self.cases.values()],
            "reference_outputs": [[name, record.to_json()] for name, record in self.reference_outputs],
        }


def manifest_digest(data: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of the canonical JSON text, without ``digest`` and the :data:`VOLATILE` members of ``info``."""
    info = {key: value for key, value in data["info"].items() if key not in VOLATILE}
    content = {**{key: value for key, value in data.items() if key != "digest"}, "info": info}
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def manifest_text(data: Mapping[str, Any]) -> str:
    """The file's text: sorted members, one line for each, and for each item of a list."""
    data = {**data, "digest": manifest_digest(data)}
    members = []
    for key in sorted(data):
        value = data[key]
        if isinstance(value, list) and value:
            text = "[\n" + ",\n".join(canonical_json(item) for item in value) + "\n]"
        else:
            text = canonical_json(value)
        members.append(f"{json.dumps(key)}:{text}")
    return "{\n" + ",\n".join(members) + "\n}\n"


def signature_to_json(signature: Signature) -> Json:
    """As :meth:`Signature.to_json`, but with results as a list: sorting the members of an object loses their order."""
    return {**signature.to_json(), "results": [[name, spec.to_json()] for name, spec in signature.results]}


def _signature_record_to_json(record: SignatureRecord) -> Json:
    return {
        "id": record.signature.id,
        "signature": signature_to_json(record.signature),
        "kind": record.kind,
        "calls": record.calls,
        "modules": record.modules,
        "cases": list(record.cases),
        "carved_from": record.carved_from,
    }


def encode_numbers(value: Any) -> Json:
    """JSON for ``value``, with ``{"float": "inf"}`` for floats that JSON has not.

    Raises :class:`TypeError` for what is no JSON value.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"expected string keys, found {list(value)[:5]}")
        return {key: encode_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode_numbers(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"expected a JSON value, found {type(value).__name__}")


def decode_numbers(value: Json) -> Any:
    """The inverse of :func:`encode_numbers` (tuples come back as lists)."""
    if isinstance(value, dict):
        if value.keys() == {"float"} and value["float"] in ("inf", "-inf", "nan"):
            return float(value["float"])
        return {key: decode_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [decode_numbers(item) for item in value]
    return value
