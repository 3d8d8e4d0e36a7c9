"""Text of a ``manifest.json`` -> :class:`Manifest`, or a :class:`SuiteError` that names the field."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from tapml._version import __version__
from tapml.errors import SuiteError
from tapml.suite.call import Json
from tapml.suite.case import SignatureRecord
from tapml.suite.fields import HASH, FieldChecker, shorten
from tapml.suite.manifest import VERSION, CaseEntry, Manifest, decode_numbers, manifest_digest
from tapml.suite.pack import DAMAGED, Entry, refuse_constant, unique_keys
from tapml.suite_format import FORMAT

_PACK = re.compile(r"tensors/pack-[0-9]{4,9}\.safetensors")
_OUTPUT = re.compile(r".+", re.DOTALL)


def parse_manifest(text: bytes, path: Path) -> Json:
    """The JSON object in ``text``, of a format and version that can be read, and with the digest that it states."""
    try:
        data = json.loads(text.decode(), object_pairs_hook=unique_keys, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise SuiteError(f"{path}: expected JSON, found a damaged file: {reason}", hint=DAMAGED) from error
    check = FieldChecker(path)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else data
        raise SuiteError(
            f'{path}: expected "format": "{FORMAT}", found {shorten(found)}',
            hint="this is no suite; `tapml carve` writes one",
        )
    version = check.integer(data, "version", ())
    if version > VERSION:
        raise SuiteError(
            f"{path}: the suite is version {version}, this tapml ({__version__}) reads up to {VERSION}",
            hint="update tapml",
        )
    if version < 1:
        check.fail(("version",), "a version from 1", version)
    check.mapping(data, "info", ())
    stated = check.text(data, "digest", ())
    try:
        found = manifest_digest(data)
    except (ValueError, RecursionError) as error:
        raise SuiteError(f"{path}: expected JSON numbers, found a damaged file: {error}", hint=DAMAGED) from error
    if stated != found:
        check.fail(("digest",), f"the digest of the content, {found}", stated)
    return data


def build_manifest(
    data: Json, path: Path, read_pack: Callable[[str, int], dict[str, Entry]]
) -> tuple[Manifest, dict[str, Entry]]:
    """Check each field of what :func:`parse_manifest` returned; returns the manifest, and the stored buffers by hash.

    ``read_pack`` takes the checked relative path of a pack and its size, and returns its buffers.
    """
    check = FieldChecker(path)
    members = {"format", "version", "digest", "info", "packs", "external", "signatures", "cases", "reference_outputs"}
    check.members(data, members, ())
    packs: dict[str, int] = {}
    entries: dict[str, Entry] = {}
    for where, item in check.items(data, "packs"):
        check.members(item, {"path", "size"}, where)
        name, size = item["path"], check.integer(item, "size", where)
        if not (isinstance(name, str) and _PACK.fullmatch(name)):
            check.fail((*where, "path"), "a pack below the suite, tensors/pack-NNNN.safetensors", name)
        if name in packs:
            check.fail((*where, "path"), "each pack once", name)
        packs[name] = size
        for digest, entry in read_pack(name, size).items():
            if not HASH.fullmatch(digest) or len(entry.shape) != 1:
                raise SuiteError(
                    f"{entry.path}: expected 1-D buffers named by hash, found {digest[:80]!r}", hint=DAMAGED
                )
            if digest in entries:
                raise SuiteError(
                    f"{entry.path}: expected each buffer once in a suite, found {digest} in {entries[digest].path} too",
                    hint=DAMAGED,
                )
            entries[digest] = entry
    external = {
        digest: check.external(digest, item, entries) for digest, item in check.mapping(data, "external", ()).items()
    }
    check.sizes = {digest: entry.size for digest, entry in entries.items()}
    check.sizes.update((digest, buffer.size) for digest, buffer in external.items())

    signatures: dict[str, SignatureRecord] = {}
    for where, item in check.items(data, "signatures"):
        record = check.signature_record(item, where)
        if item["id"] in signatures:
            check.fail((*where, "id"), "each signature once", item["id"])
        signatures[item["id"]] = record
    listed: dict[str, SignatureRecord] = {}
    for record in signatures.values():
        for case_id in record.cases:
            if case_id in listed:
                check.fail(("signatures",), "each case id once", case_id)
            listed[case_id] = record
    cases: dict[str, CaseEntry] = {}
    for where, item in check.items(data, "cases"):
        case_id = check.text(item, "id", where) if isinstance(item, dict) else check.fail(where, "an object", item)
        if case_id in cases:
            check.fail((*where, "id"), "each case id once", case_id)
        if case_id not in listed:
            check.fail((*where, "id"), "an id that a signature lists", case_id)
        cases[case_id] = check.case(item, case_id, listed[case_id].signature, where)
    if missing := listed.keys() - cases.keys():
        check.fail(("cases",), "every case that a signature lists", f"none with the id {min(missing)}")
    outputs = tuple(check.named_tensor(item, where, _OUTPUT) for where, item in check.items(data, "reference_outputs"))
    check.unique([name for name, _ in outputs], ("reference_outputs",))
    info = decode_numbers(data["info"])
    return Manifest(info, packs, external, signatures, cases, outputs), entries
