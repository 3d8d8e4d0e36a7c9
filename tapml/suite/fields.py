"""Checks of the single fields of a manifest; a failed one is a :class:`SuiteError` that names the field."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any, NoReturn

import torch

from tapml.errors import SuiteError
from tapml.suite.call import Signature, TensorSpec, canonical_json, dtype_name, span
from tapml.suite.case import CLASSES, Origin, SignatureRecord
from tapml.suite.manifest import CaseEntry, decode_numbers
from tapml.suite.pack import DAMAGED, Entry
from tapml.suite.record import DTYPES, STORED_AS, TensorRecord, distinct_shape, is_sparse_view
from tapml.suite.store import ExternalBuffer

_OPERATOR = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*\.[A-Za-z_]\w*", re.ASCII)
HASH = re.compile(r"[0-9a-f]{64}")
_CASE_ID = re.compile(r"([0-9a-f]{12})/(0|[1-9][0-9]{0,8})")
_RESULT = re.compile(r"(out|arg)(0|[1-9][0-9]{0,5})")
_DEVICE = re.compile(r"[a-z]+(:[0-9]{1,5})?")
_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "_mkldnn", "jagged")
_MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
_ALL_DTYPES = frozenset(dtype_name(value) for value in vars(torch).values() if isinstance(value, torch.dtype))
_LIMIT = 1 << 62
"""Shapes, strides and sizes stay below: PyTorch computes with signed 64-bit numbers."""
_MAX_DIMENSIONS = 64
"""PyTorch's own limit."""


def shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


Place = tuple[str | int, ...]
"""Where a field is: ``("cases", 3, "origin")``, in messages ``cases[3].origin``."""


class FieldChecker:
    """Checks of single fields.  Messages begin with ``subject``: the file, or whatever the fields are of."""

    def __init__(self, subject: Path | str, *, hint: str = DAMAGED) -> None:
        self.subject = subject
        self.hint = hint
        self.sizes: dict[str, int] = {}
        """Bytes of each buffer, by hash."""

    def fail(self, where: Place, expected: str, found: Any) -> NoReturn:
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where).lstrip(".")
        raise SuiteError(
            f"{self.subject}: expected {expected} at {place or 'the top'}, found {shorten(found)}", hint=self.hint
        )

    def members(self, value: Any, names: set[str], where: Place) -> dict[str, Any]:
        if not isinstance(value, dict) or value.keys() != names:
            found = sorted(value) if isinstance(value, dict) else value
            self.fail(where, f"an object with the members {', '.join(sorted(names))}", found)
        return value

    def integer(self, data: dict[str, Any], key: str, where: Place) -> int:
        value = data.get(key)
        if type(value) is not int or not 0 <= value < _LIMIT:
            self.fail((*where, key), "a number from 0", value)
        return value

    def text(self, data: dict[str, Any], key: str, where: Place) -> str:
        value = data.get(key)
        if not isinstance(value, str):
            self.fail((*where, key), "a string", value)
        return value

    def mapping(self, data: dict[str, Any], key: str, where: Place) -> dict[str, Any]:
        value = data.get(key)
        if not isinstance(value, dict):
            self.fail((*where, key), "an object", value)
        return value

    def counts(self, data: dict[str, Any], key: str, where: Place) -> dict[str, int]:
        value = self.mapping(data, key, where)
        return {name: self.integer(value, name, (*where, key)) for name in value}

    def items(self, data: dict[str, Any], key: str, where: Place = ()) -> list[tuple[Place, Any]]:
        """``(place, item)`` for each item of a list."""
        value, place = data.get(key), (*where, key)
        if not isinstance(value, list):
            self.fail(place, "a list", value)
        return [((*place, index), item) for index, item in enumerate(value)]

    def unique(self, names: list[str], where: Place) -> None:
        if len(set(names)) != len(names):
            self.fail(where, "each name once", sorted(names))

    def external(self, digest: str, item: Any, entries: dict[str, Entry]) -> ExternalBuffer:
        where = ("external", digest[:80])
        if not HASH.fullmatch(digest):
            self.fail(where, "a SHA-256 as name", digest)
        if digest in entries:
            self.fail(where, "a buffer that is not stored in the suite too", digest)
        self.members(item, {"path", "name", "dtype", "size"}, where)
        path, name, dtype = (self.text(item, key, where) for key in ("path", "name", "dtype"))
        if "\0" in path or not Path(path).is_absolute():
            self.fail((*where, "path"), "an absolute path", path)
        if dtype not in DTYPES or DTYPES[dtype] not in STORED_AS.values():
            self.fail((*where, "dtype"), "a dtype that a buffer can have", dtype)
        return ExternalBuffer(path, name, dtype, self.integer(item, "size", where))

    # -- signatures ---------------------------------------------------------------------------------------------------

    def spec(self, item: dict[str, Any], where: Place, dtypes: Container[str] = _ALL_DTYPES) -> TensorSpec:
        shape, strides, dtype = item.get("shape"), item.get("strides"), item.get("dtype")
        for key, value in (("shape", shape), ("strides", strides)):
            if not isinstance(value, list) or len(value) > _MAX_DIMENSIONS:
                self.fail((*where, key), f"a list of at most {_MAX_DIMENSIONS} numbers", value)
            if value and not (set(map(type, value)) == {int} and min(value) >= 0 and max(value) < _LIMIT):
                self.fail((*where, key), "numbers from 0", value)
        assert isinstance(shape, list) and isinstance(strides, list)
        if len(shape) != len(strides):
            self.fail((*where, "strides"), f"{len(shape)} strides, one a dimension", strides)
        if not isinstance(dtype, str) or dtype not in dtypes:
            which = "that PyTorch has" if dtypes is _ALL_DTYPES else "that a suite can hold"
            self.fail((*where, "dtype"), f"the name of a dtype {which}", dtype)
        if math.prod(n or 1 for n in shape) * 16 >= _LIMIT:
            self.fail((*where, "shape"), "a tensor that 64-bit numbers can address", shape)
        return TensorSpec(tuple(shape), dtype, tuple(strides))

    def signature_record(self, item: Any, where: Place) -> SignatureRecord:
        self.members(item, {"id", "signature", "kind", "calls", "modules", "cases", "carved_from"}, where)
        signature = self.signature(item["signature"], (*where, "signature"))
        if item["id"] != signature.id:
            self.fail((*where, "id"), f"the id of its signature, {signature.id}", item["id"])
        if item["kind"] not in CLASSES:
            self.fail((*where, "kind"), f"one of {', '.join(CLASSES)}", item["kind"])
        for place, case_id in self.items(item, "cases", where):
            match = _CASE_ID.fullmatch(case_id) if isinstance(case_id, str) else None
            if match is None or match[1] != signature.id:
                self.fail(place, f"a case id, {signature.id}/<n>", case_id)
        return SignatureRecord(
            signature=signature,
            kind=item["kind"],
            calls=self.integer(item, "calls", where),
            modules=self.counts(item, "modules", where),
            cases=tuple(item["cases"]),
            carved_from=self.counts(item, "carved_from", where),
        )

    def signature(self, item: Any, where: Place) -> Signature:
        self.members(item, {"operator", "arguments", "tensors", "results"}, where)
        operator, arguments = self.text(item, "operator", where), item["arguments"]
        if not _OPERATOR.fullmatch(operator):
            self.fail((*where, "operator"), "namespace.name.overload", operator)
        specs = []
        for place, spec in self.items(item, "tensors", where):
            specs.append(self.spec(self.members(spec, {"shape", "dtype", "strides"}, place), place))
        results = []
        for place, pair in self.items(item, "results", where):
            name, spec = self.pair(pair, place, _RESULT)
            results.append((name, self.spec(self.members(spec, {"shape", "dtype", "strides"}, place), place)))
            self.argument_index(name, len(specs), place)
        self.unique([name for name, _ in results], (*where, "results"))
        place = (*where, "arguments")
        if not (isinstance(arguments, list) and len(arguments) == 2):
            self.fail(place, "[args, kwargs]", arguments)
        if not (isinstance(arguments[0], list) and isinstance(arguments[1], dict)):
            self.fail(place, "[args, kwargs]", arguments)
        used: list[int] = []
        for value in (*arguments[0], *arguments[1].values()):
            self.argument(value, place, used)
        if sorted(used) != list(range(len(specs))):
            self.fail(place, f"each of {len(specs)} tensors once", f"tensors {used}")
        return Signature(operator, canonical_json(arguments), tuple(specs), tuple(results))

    def argument(self, value: Any, where: Place, used: list[int]) -> None:
        """Check one argument of a template, and add the indices of its tensors to ``used``."""
        if value is None or isinstance(value, bool | int | float | str):
            return
        if isinstance(value, list):
            for item in value:
                self.argument(item, where, used)
            return
        if isinstance(value, dict) and len(value) == 1:
            ((kind, data),) = value.items()
            if kind == "tensor" and type(data) is int:
                used.append(data)
                return
            if kind in _ARGUMENTS and _ARGUMENTS[kind](data):
                return
        self.fail(where, "an argument template", value)

    # -- tensors and cases --------------------------------------------------------------------------------------------

    def pair(self, item: Any, where: Place, names: re.Pattern[str]) -> tuple[str, Any]:
        if not (isinstance(item, list) and len(item) == 2 and isinstance(item[0], str) and names.fullmatch(item[0])):
            self.fail(where, "[name, tensor]", item)
        return item[0], item[1]

    def argument_index(self, name: str, count: int, where: Place) -> None:
        if name.startswith("arg") and int(name[3:]) >= count:
            self.fail(where, f"one of {count} tensor arguments", name)

    def named_tensor(self, item: Any, where: Place, names: re.Pattern[str]) -> tuple[str, TensorRecord]:
        name, record = self.pair(item, where, names)
        return name, self.tensor(record, where)

    def tensor(self, item: Any, where: Place) -> TensorRecord:
        """A tensor record whose view stays within its buffer."""
        names = {"buffer", "dtype", "shape", "strides", "offset"}
        self.members(item, names | {"packed"} if isinstance(item, dict) and "packed" in item else names, where)
        spec, offset = self.spec(item, where, DTYPES), self.integer(item, "offset", where)
        digest, packed = self.text(item, "buffer", where), item.get("packed", False)
        size = self.sizes.get(digest)
        if size is None:
            self.fail((*where, "buffer"), "the hash of a stored or external buffer", digest)
        itemsize = DTYPES[spec.dtype].itemsize
        count = size // itemsize
        if size % itemsize:
            self.fail(where, f"a buffer of whole {spec.dtype} elements", f"{size} bytes")
        if packed is False:
            reach = offset + span(spec.shape, spec.strides)
            if reach > count:
                self.fail(
                    where, f"a view within the {count} elements of its buffer", f"one that reaches element {reach}"
                )
        else:
            if packed is not True or offset or not is_sparse_view(spec):
                self.fail(where, "packed: true with offset 0 and gaps between elements", item)
            if math.prod(distinct_shape(spec)) != count:
                self.fail(where, f"a shape for the {count} elements of its buffer", list(spec.shape))
            if span(spec.shape, spec.strides) * 16 >= _LIMIT:
                self.fail(where, "a tensor that 64-bit numbers can address", list(spec.strides))
        return TensorRecord(digest, spec, offset, packed)

    def case(self, item: dict[str, Any], case_id: str, signature: Signature, where: Place) -> CaseEntry:
        self.members(item, {"id", "origin", "tensors", "results", "aliases", "stress"}, where)
        origin = self.members(item["origin"], {"call_index", "module", "source"}, (*where, "origin"))
        tensors = tuple(self.tensor(record, place) for place, record in self.items(item, "tensors", where))
        specs = tuple(record.spec for record in tensors)
        if specs != signature.tensors:
            found = ", ".join(map(str, specs))
            self.fail((*where, "tensors"), f"the tensors of {signature} with their strides", found)
        results = tuple(self.named_tensor(pair, place, _RESULT) for place, pair in self.items(item, "results", where))
        for name, _ in results:
            self.argument_index(name, len(tensors), (*where, "results"))
        self.unique([name for name, _ in results], (*where, "results"))
        aliases = self.aliases(item, tensors, where)
        return CaseEntry(
            id=case_id,
            origin=Origin(
                self.integer(origin, "call_index", (*where, "origin")),
                self.text(origin, "module", (*where, "origin")),
                self.text(origin, "source", (*where, "origin")),
            ),
            tensors=tensors,
            results=results,
            aliases=aliases,
            stress=decode_numbers(self.mapping(item, "stress", where)),
        )

    def aliases(
        self, item: dict[str, Any], tensors: tuple[TensorRecord, ...], where: Place
    ) -> tuple[tuple[int, ...], ...]:
        groups: list[tuple[int, ...]] = []
        seen: set[int] = set()
        for place, group in self.items(item, "aliases", where):
            if not (isinstance(group, list) and group):
                self.fail(place, "a list of tensor arguments", group)
            for index in group:
                if type(index) is not int or not 0 <= index < len(tensors) or index in seen:
                    self.fail(place, f"each of {len(tensors)} tensor arguments at most once", group)
                seen.add(index)
            if len(group) > 1 and (
                len({tensors[i].buffer for i in group}) > 1 or any(tensors[i].packed for i in group)
            ):
                self.fail(place, "arguments that are views of one buffer", group)
            groups.append(tuple(group))
        return tuple(groups)


def _is_float(text: Any) -> bool:
    if not isinstance(text, str) or len(text) > 40:
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True


_ARGUMENTS: dict[str, Callable[[Any], bool]] = {
    "float": _is_float,
    "complex": lambda data: isinstance(data, list) and len(data) == 2 and all(map(_is_float, data)),
    "dtype": lambda data: isinstance(data, str) and data in _ALL_DTYPES,
    "device": lambda data: isinstance(data, str) and _DEVICE.fullmatch(data) is not None,
    "layout": lambda data: isinstance(data, str) and data in _LAYOUTS,
    "memory_format": lambda data: isinstance(data, str) and data in _MEMORY_FORMATS,
    "generator": lambda data: isinstance(data, str) and _DEVICE.fullmatch(data) is not None,
}
"""Kind of an argument that is no plain JSON value -> whether its data is what :mod:`tapml.suite.call` writes."""
