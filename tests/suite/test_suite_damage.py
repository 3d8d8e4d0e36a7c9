"""Damaged, foreign, hostile and later suites: always a SuiteError that names file, expectation and finding."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from suite_making import assert_same_case, edit_manifest, make_case, tensors_case, write_suite

from tapml._version import __version__
from tapml.errors import SuiteError
from tapml.suite import Suite

CASES = [
    make_case("aten.mm.default", torch.arange(12.0).view(3, 4), torch.arange(8.0).view(2, 4).t()),
    make_case("aten.add_.Tensor", torch.ones(4, 4), torch.ones(4)),
    tensors_case(torch.arange(40.0).view(5, 8)[:, ::2], torch.arange(6.0).as_strided((2, 3), (3, 1)), mutated=[1]),
    tensors_case(*torch.arange(8.0).split(4), mutated=[0]),
]
DAMAGED = "the suite is damaged or was edited; carve it again"
COPY = "copy the suite again from where it came, or carve it again"
CARVE = "`tapml carve` writes one"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write_suite(tmp_path / "s", CASES, outputs={"logits": torch.arange(5.0)}).path


def error_of(path: Path) -> SuiteError:
    """The error of opening the suite, or of reading what is in it."""
    with pytest.raises(SuiteError) as caught:
        read_all(path)
    return caught.value


def read_all(path: Path) -> Suite:
    suite = Suite.open(path)
    list(suite.cases())
    suite.reference_outputs()
    return suite


# -- the manifest, under a digest that belongs to it ------------------------------------------------------------------


def assign(*steps: Any) -> Callable[[Any], None]:
    """An edit: the last step is the value, those before lead to its place."""
    *path, last, value = steps

    def edit(data: Any) -> None:
        for step in path:
            data = data[step]
        data[last] = value

    return edit


def remove(*steps: Any) -> Callable[[Any], None]:
    *path, last = steps

    def edit(data: Any) -> None:
        for step in path:
            data = data[step]
        del data[last]

    return edit


def repeat(*steps: Any) -> Callable[[Any], None]:
    def edit(data: Any) -> None:
        for step in steps:
            data = data[step]
        data.append(data[0])

    return edit


FIRST = ("cases", 0, "tensors", 0)
PACKED = ("cases", 2, "tensors", 0)
SIGNATURE = ("signatures", 0, "signature")
ZEROS = "0" * 64

MANIFEST_DAMAGE: dict[str, tuple[Callable[[Any], None], str]] = {
    "version_float": (assign("version", 1.0), "expected a number from 0 at version, found 1.0"),
    "version_0": (assign("version", 0), "expected a version from 1 at version, found 0"),
    "member_missing": (remove("cases"), "expected an object with the members cases, digest, external"),
    "member_unknown": (
        assign("hook", "os.system"),
        "at the top, found ['cases', 'digest', 'external', 'format', 'hook'",
    ),
    "cases_object": (assign("cases", {}), "expected a list at cases, found {}"),
    "case_number": (assign("cases", 0, 7), "expected an object at cases[0], found 7"),
    "case_id_number": (assign("cases", 0, "id", 7), "expected a string at cases[0].id, found 7"),
    "case_id_twice": (repeat("cases"), "expected each case id once at cases[4].id"),
    "case_unlisted": (
        assign("cases", 0, "id", "0123456789ab/0"),
        "expected an id that a signature lists at cases[0].id",
    ),
    "case_missing": (
        remove("cases", 0),
        "expected every case that a signature lists at cases, found 'none with the id",
    ),
    "origin": (
        assign("cases", 0, "origin", []),
        "with the members call_index, module, source at cases[0].origin, found []",
    ),
    "call_index": (
        assign("cases", 0, "origin", "call_index", -1),
        "a number from 0 at cases[0].origin.call_index, found -1",
    ),
    "stress": (assign("cases", 0, "stress", []), "expected an object at cases[0].stress, found []"),
    "tensor_missing": (
        remove("cases", 0, "tensors", 1),
        "the tensors of aten.mm.default(float32[3, 4], float32[4, 2])",
    ),
    "tensor_member": (
        assign(*FIRST, "device", "cuda"),
        "the members buffer, dtype, offset, shape, strides at cases[0]",
    ),
    "shape_negative": (
        assign(*FIRST, "shape", [-1, 4]),
        "expected numbers from 0 at cases[0].tensors[0].shape, found [-1",
    ),
    "shape_float": (
        assign(*FIRST, "shape", [3.0, 4]),
        "expected numbers from 0 at cases[0].tensors[0].shape, found [3.0",
    ),
    "shape_bool": (
        assign(*FIRST, "shape", [True, 4]),
        "expected numbers from 0 at cases[0].tensors[0].shape, found [True",
    ),
    "shape_huge": (assign(*FIRST, "shape", [1 << 31, 1 << 30]), "a tensor that 64-bit numbers can address"),
    "shape_astronomic": (assign(*FIRST, "shape", [1 << 80, 4]), "expected numbers from 0 at cases[0].tensors[0].shape"),
    "shape_text": (assign(*FIRST, "shape", "34"), "expected a list of at most 64 numbers at cases[0].tensors[0].shape"),
    "shape_long": (
        assign(*FIRST, "shape", [1] * 65),
        "expected a list of at most 64 numbers at cases[0].tensors[0].shape",
    ),
    "strides_short": (
        assign(*FIRST, "strides", [1]),
        "2 strides, one a dimension at cases[0].tensors[0].strides, found [1]",
    ),
    "strides_far": (
        assign(*FIRST, "strides", [4, 2]),
        "a view within the 12 elements of its buffer at cases[0].tensors[0]",
    ),
    "shape_far": (assign(*FIRST, "shape", [4, 4]), "found 'one that reaches element 16'"),
    "offset_far": (assign(*FIRST, "offset", 1), "found 'one that reaches element 13'"),
    "offset_negative": (
        assign(*FIRST, "offset", -1),
        "expected a number from 0 at cases[0].tensors[0].offset, found -1",
    ),
    "dtype_wide": (assign(*FIRST, "dtype", "float64"), "a view within the 6 elements of its buffer"),
    "dtype_ragged": (assign("reference_outputs", 0, 1, "dtype", "int64"), "expected a buffer of whole int64 elements"),
    "dtype_function": (
        assign(*FIRST, "dtype", "load"),
        "the name of a dtype that a suite can hold at cases[0].tensors[0]",
    ),
    "dtype_list": (assign(*FIRST, "dtype", []), "expected the name of a dtype that a suite can hold"),
    "buffer_unknown": (
        assign(*FIRST, "buffer", ZEROS),
        f"a stored or external buffer at cases[0].tensors[0].buffer, found '{ZEROS}'",
    ),
    "strides_other": (assign(*FIRST, "strides", [0, 0]), "expected the tensors of aten.mm.default"),
    "packed_false": (
        assign(*PACKED, "packed", False),
        "a view within the 20 elements of its buffer at cases[2].tensors[0]",
    ),
    "packed_number": (assign(*PACKED, "packed", 1), "packed: true with offset 0 and gaps between elements"),
    "packed_offset": (assign(*PACKED, "offset", 1), "packed: true with offset 0 and gaps between elements"),
    "packed_dense": (assign(*FIRST, "packed", True), "packed: true with offset 0 and gaps between elements"),
    "packed_small": (
        assign(*PACKED, "shape", [4, 4]),
        "a shape for the 20 elements of its buffer at cases[2].tensors[0]",
    ),
    "packed_vast": (assign(*PACKED, "strides", [1 << 61, 2]), "a tensor that 64-bit numbers can address"),
    "result_name": (assign("cases", 0, "results", 0, 0, "in0"), "[name, tensor] at cases[0].results[0], found ['in0'"),
    "result_argument": (
        assign("cases", 1, "results", 0, 0, "arg2"),
        "one of 2 tensor arguments at cases[1].results, found 'arg2'",
    ),
    "result_twice": (repeat("cases", 0, "results"), "expected each name once at cases[0].results"),
    "alias_unknown": (
        assign("cases", 1, "aliases", [[2]]),
        "each of 2 tensor arguments at most once at cases[1].aliases[0]",
    ),
    "alias_negative": (
        assign("cases", 1, "aliases", [[-1]]),
        "each of 2 tensor arguments at most once at cases[1].aliases[0]",
    ),
    "alias_twice": (assign("cases", 1, "aliases", [[0], [0]]), "at most once at cases[1].aliases[1], found [0]"),
    "alias_empty": (assign("cases", 1, "aliases", [[]]), "a list of tensor arguments at cases[1].aliases[0], found []"),
    "alias_apart": (
        assign("cases", 1, "aliases", [[0, 1]]),
        "arguments that are views of one buffer at cases[1].aliases[0]",
    ),
    "output_pair": (
        assign("reference_outputs", 0, ["logits"]),
        "[name, tensor] at reference_outputs[0], found ['logits']",
    ),
    "output_twice": (repeat("reference_outputs"), "expected each name once at reference_outputs"),
    "operator": (
        assign(*SIGNATURE, "operator", "aten.mm"),
        "expected namespace.name.overload at signatures[0].signature.operator",
    ),
    "operator_code": (assign(*SIGNATURE, "operator", "os.system('x').y"), "expected namespace.name.overload"),
    "operator_other": (assign(*SIGNATURE, "operator", "aten.bmm.default"), "expected the id of its signature"),
    "signature_id": (assign("signatures", 0, "id", []), "expected the id of its signature"),
    "signature_twice": (repeat("signatures"), "expected each signature once at signatures[4].id"),
    "signature_case": (assign("signatures", 0, "cases", ["x/1"]), "expected a case id, "),
    "signature_case_twice": (repeat("signatures", 0, "cases"), "expected each case id once at signatures"),
    "kind": (
        assign("signatures", 0, "kind", "other"),
        "expected one of compute, view, host, random, undefined at signatures[0].kind",
    ),
    "calls": (assign("signatures", 0, "calls", None), "expected a number from 0 at signatures[0].calls, found None"),
    "modules": (
        assign("signatures", 0, "modules", "m", -1),
        "expected a number from 0 at signatures[0].modules.m, found -1",
    ),
    "arguments": (
        assign(*SIGNATURE, "arguments", {}),
        "expected [args, kwargs] at signatures[0].signature.arguments, found {}",
    ),
    "arguments_kwargs": (
        assign(*SIGNATURE, "arguments", [[], []]),
        "expected [args, kwargs] at signatures[0].signature.arguments",
    ),
    "arguments_tensor": (assign(*SIGNATURE, "arguments", 0, 1, {"tensor": 2}), "each of 2 tensors once"),
    "arguments_again": (assign(*SIGNATURE, "arguments", 0, 1, {"tensor": 0}), "each of 2 tensors once"),
    "arguments_dtype": (
        assign(*SIGNATURE, "arguments", 1, "dtype", {"dtype": "_inductor"}),
        "expected an argument template",
    ),
    "arguments_layout": (
        assign(*SIGNATURE, "arguments", 1, "layout", {"layout": "load"}),
        "expected an argument template",
    ),
    "arguments_device": (
        assign(*SIGNATURE, "arguments", 1, "device", {"device": "cuda:x"}),
        "expected an argument template",
    ),
    "arguments_format": (
        assign(*SIGNATURE, "arguments", 1, "f", {"memory_format": "x"}),
        "expected an argument template",
    ),
    "arguments_float": (assign(*SIGNATURE, "arguments", 1, "f", {"float": "one"}), "expected an argument template"),
    "arguments_complex": (assign(*SIGNATURE, "arguments", 1, "f", {"complex": ["1"]}), "expected an argument template"),
    "arguments_kind": (assign(*SIGNATURE, "arguments", 1, "f", {"python": "1"}), "expected an argument template"),
    "pack_up": (
        assign("packs", 0, "path", "../pack-0000.safetensors"),
        "expected a pack below the suite, tensors/pack-NNNN",
    ),
    "pack_inside_up": (
        assign("packs", 0, "path", "tensors/../../pack-0000.safetensors"),
        "expected a pack below the suite",
    ),
    "pack_absolute": (assign("packs", 0, "path", "/etc/passwd"), "found '/etc/passwd'"),
    "pack_number": (assign("packs", 0, "path", 7), "expected a pack below the suite"),
    "pack_line": (assign("packs", 0, "path", "tensors/pack-0000.safetensors\n"), "expected a pack below the suite"),
    "pack_twice": (repeat("packs"), "expected each pack once at packs[1].path"),
    "pack_missing": (remove("packs", 0), "expected the hash of a stored or external buffer"),
    "external_name": (assign("external", "x", {}), "expected a SHA-256 as name at external.x, found 'x'"),
    "external_path": (
        assign("external", ZEROS, {"path": "m.safetensors", "name": "w", "dtype": "float32", "size": 4}),
        f"expected an absolute path at external.{ZEROS}.path, found 'm.safetensors'",
    ),
    "external_size": (
        assign("external", ZEROS, {"path": "/m.safetensors", "name": "w", "dtype": "float32", "size": -4}),
        f"expected a number from 0 at external.{ZEROS}.size, found -4",
    ),
    "external_dtype": (
        assign("external", ZEROS, {"path": "/m.safetensors", "name": "w", "dtype": "complex64", "size": 4}),
        f"expected a dtype that a buffer can have at external.{ZEROS}.dtype, found 'complex64'",
    ),
}


@pytest.mark.parametrize("name", MANIFEST_DAMAGE)
def test_each_field_is_checked(suite: Path, name: str) -> None:
    edit, message = MANIFEST_DAMAGE[name]
    edit_manifest(suite, edit)
    error = error_of(suite)
    assert message in error.message
    assert error.message.startswith(f"{suite / 'manifest.json'}: expected ")
    assert error.hint == DAMAGED


def test_a_buffer_both_stored_and_external(suite: Path) -> None:
    def edit(data: Any) -> None:
        where = {"path": "/m.safetensors", "name": "w", "dtype": "float32", "size": 4}
        data["external"][data["cases"][0]["tensors"][0]["buffer"]] = where

    edit_manifest(suite, edit)
    assert "expected a buffer that is not stored in the suite too at external." in error_of(suite).message


def test_a_view_that_spans_more_than_there_is_memory(suite: Path) -> None:
    def edit(data: Any) -> None:
        data["reference_outputs"][0][1] = {**data["cases"][2]["tensors"][0], "strides": [1 << 53, 2]}

    edit_manifest(suite, edit)
    assert "expected a tensor that fits in memory" in error_of(suite).message


# -- the manifest as text ---------------------------------------------------------------------------------------------

TEXT_DAMAGE: dict[str, tuple[bytes, str, str]] = {
    "empty": (b"", "expected JSON, found a damaged file: Expecting value", DAMAGED),
    "truncated": (b'{"format": "tapml-suite", "versi', "expected JSON, found a damaged file", DAMAGED),
    "binary": (b"\x80\x04\x95", "expected JSON, found a damaged file", DAMAGED),
    "nan": (b'{"format": NaN}', "found a damaged file: NaN is no JSON value", DAMAGED),
    "twice": (b'{"format": "x", "format": "tapml-suite"}', "two members of one object have one name", DAMAGED),
    "deep": (b"[" * 100_000, "expected JSON, found a damaged file: nested too deeply", DAMAGED),
    "digits": (b'{"version": ' + b"9" * 5000 + b"}", "expected JSON, found a damaged file", DAMAGED),
    "list": (b"[]", 'expected "format": "tapml-suite", found []', "this is no suite; `tapml carve` writes one"),
    "foreign": (b'{"format": "webext"}', "found 'webext'", "this is no suite; `tapml carve` writes one"),
    "none": (b'{"manifest_version": 3}', 'expected "format": "tapml-suite", found None', "this is no suite; " + CARVE),
    "infinite": (
        b'{"format": "tapml-suite", "version": 1, "info": {"x": 1e999}, "digest": ""}',
        "expected JSON numbers",
        DAMAGED,
    ),
    "info": (b'{"format": "tapml-suite", "version": 1, "info": 3}', "expected an object at info, found 3", DAMAGED),
    "digest": (
        b'{"format": "tapml-suite", "version": 1, "info": {}}',
        "expected a string at digest, found None",
        DAMAGED,
    ),
    "edited": (
        b'{"format": "tapml-suite", "version": 1, "info": {}, "digest": "00"}',
        "expected the digest of the content, ",
        DAMAGED,
    ),
    "newer": (
        b'{"format": "tapml-suite", "version": 7, "tensors": "elsewhere"}',
        f"the suite is version 7, this tapml ({__version__}) reads up to 1",
        "update tapml",
    ),
}


@pytest.mark.parametrize("name", TEXT_DAMAGE)
def test_text_that_is_no_manifest(suite: Path, name: str) -> None:
    text, message, hint = TEXT_DAMAGE[name]
    (suite / "manifest.json").write_bytes(text)
    error = error_of(suite)
    assert message in error.message
    assert error.message.startswith(f"{suite / 'manifest.json'}: ")
    assert error.hint == hint


@pytest.mark.parametrize("depth", [100, 300, 450, 600, 800])
@pytest.mark.parametrize("place", [("info",), ("cases", 0, "stress"), ("signatures", 0, "signature", "arguments", 1)])
def test_nesting_that_json_reads_and_python_may_not(suite: Path, place: tuple[Any, ...], depth: int) -> None:
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    try:
        edit_manifest(suite, assign(*place, "deep", nested))
    except RecursionError:
        pytest.skip("this Python cannot write it either")
    try:
        read_all(suite)
    except SuiteError as error:
        assert "nested too deeply" in error.message or "the id of its signature" in error.message


def test_what_is_no_suite_at_all(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "manifest.json")
    for name, message, hint in [
        ("absent", "absent: expected the directory of a suite, found nothing", CARVE),
        ("file", "file: expected the directory of a suite, found a file", CARVE),
        ("empty", "manifest.json: expected a file, found: No such file or directory", "this is no suite; " + CARVE),
        ("pipe", "manifest.json: expected a regular file, found another kind", "this is no suite; " + CARVE),
    ]:
        error = error_of(tmp_path / name)
        assert error.message.endswith(message)
        assert error.hint == hint


# -- packs ------------------------------------------------------------------------------------------------------------


def edit_header(suite: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Change the header of the first pack, and the size that the manifest states."""
    pack = suite / "tensors" / "pack-0000.safetensors"
    content = pack.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    text = json.dumps(edit(header) or header).encode()
    pack.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    edit_manifest(suite, lambda data: data["packs"][0].update(size=pack.stat().st_size))


def first(header: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(iter(header.values()))
    return found


HEADER_DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "list": (lambda h: [h], "expected a safetensors header, found a damaged one: it is no object"),
    "beyond": (lambda h: first(h).update(data_offsets=[0, 1 << 40]), "is at 0..1099511627776 of "),
    "negative": (lambda h: first(h).update(data_offsets=[-64, 0]), "is at -64..0 of "),
    "backward": (lambda h: first(h).update(data_offsets=[64, 0]), "is at 64..0 of "),
    "overlap": (
        lambda h: list(h.values())[1].update(data_offsets=first(h)["data_offsets"], shape=[16]),
        "(an overlap or a hole)",
    ),
    "hole": (lambda h: h.pop(next(iter(h))) and None, "starts at "),
    "short": (lambda h: h.pop(list(h)[-1]) and None, " bytes of data"),
    "shape": (lambda h: first(h).update(shape=[17]), "bytes for shape [17] of F32"),
    "shape_2d": (lambda h: first(h).update(shape=[4, 4]), "expected 1-D buffers named by hash"),
    "shape_text": (lambda h: first(h).update(shape="16"), "has the shape 16"),
    "dtype": (lambda h: first(h).update(dtype="F64"), "bytes for shape [16] of F64"),
    "member": (lambda h: first(h).update(pickle="cos"), "has other members than dtype, shape and data_offsets"),
    "offsets": (lambda h: first(h).update(data_offsets=[0.0, 64]), "has the offsets [0.0, 64]"),
    "name": (lambda h: h.update(weight=h.pop(next(iter(h)))), "expected 1-D buffers named by hash, found 'weight'"),
    "tensor": (lambda h: h.update({next(iter(h)): 3}), "has other members than"),
}


@pytest.mark.parametrize("name", HEADER_DAMAGE)
def test_a_header_that_lies(suite: Path, name: str) -> None:
    edit, message = HEADER_DAMAGE[name]
    edit_header(suite, edit)
    error = error_of(suite)
    assert message in error.message
    assert str(suite / "tensors" / "pack-0000.safetensors") in error.message
    assert error.hint == DAMAGED


def test_metadata_in_a_header_is_no_damage(suite: Path) -> None:
    edit_header(suite, lambda header: {"__metadata__": {"format": "pt"}, **header})
    read_all(suite)


def test_a_dtype_that_is_unknown_here_is_a_missing_buffer(suite: Path) -> None:
    edit_header(suite, lambda header: first(header).update(dtype="F6_E2M3"))
    assert "expected the hash of a stored or external buffer" in error_of(suite).message


def test_packs_that_are_not_as_the_manifest_says(suite: Path) -> None:
    pack = suite / "tensors" / "pack-0000.safetensors"
    content = pack.read_bytes()
    size = len(content)
    for change, message, hint in [
        (content[:-1], f"expected {size} bytes, found {size - 1}: the pack is truncated", COPY),
        (b"", f"expected {size} bytes, found 0: the pack is truncated", COPY),
        (content + b"x", f"expected {size} bytes, found {size + 1}", COPY),
        (b"\xff" * 8 + content[8:], "header within the file's", DAMAGED),
        (size.to_bytes(8, "little") + content[8:], f"found one that claims {size} bytes", DAMAGED),
        (content[:8] + b"[" * (size - 8), "expected a safetensors header, found a damaged one", DAMAGED),
        (content[:-1] + bytes([content[-1] ^ 1]), "the data is damaged", COPY),
    ]:
        pack.write_bytes(change)
        error = error_of(suite)
        assert message in error.message and str(pack) in error.message
        assert error.hint == hint
    pack.unlink()
    assert error_of(suite).message == f"{pack}: expected a file, found: No such file or directory"
    pack.mkdir()
    assert error_of(suite).message == f"{pack}: expected a regular file, found another kind"


def test_a_link_out_of_the_suite(suite: Path, tmp_path: Path) -> None:
    pack = suite / "tensors" / "pack-0000.safetensors"
    shutil.move(pack, tmp_path / "secret")
    pack.symlink_to(tmp_path / "secret")
    assert error_of(suite).message == f"{pack}: expected a pack within the suite, found a link out of it"
    pack.unlink()
    shutil.move(tmp_path / "secret", pack)
    shutil.move(suite / "tensors", tmp_path / "elsewhere")
    (suite / "tensors").symlink_to(tmp_path / "elsewhere")
    assert error_of(suite).message == f"{pack}: expected a pack within the suite, found a link out of it"
    pack.unlink()
    pack.symlink_to(pack)
    error_of(suite)


def test_a_suite_behind_a_link_is_as_good(suite: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(suite)
    read_all(tmp_path / "link")


def test_a_pack_that_is_cut_after_opening(suite: Path) -> None:
    opened = Suite.open(suite)
    pack = suite / "tensors" / "pack-0000.safetensors"
    os.truncate(pack, 100)
    with pytest.raises(SuiteError, match="found 100: the file is truncated"):
        opened.case(CASES[0].id)


def test_damaged_values_concern_only_the_cases_that_have_them(suite: Path) -> None:
    opened = Suite.open(suite)
    pack = suite / "tensors" / "pack-0000.safetensors"
    needle = bytes(CASES[0].tensors[0].view(torch.uint8).numpy().data)
    pack.write_bytes(pack.read_bytes().replace(needle, needle[::-1]))
    with pytest.raises(SuiteError, match="expected a buffer with the SHA-256"):
        opened.case(CASES[0].id)
    assert_same_case(opened.case(CASES[1].id), CASES[1])


# -- at random --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["manifest.json", "tensors/pack-0000.safetensors"])
def test_random_damage_is_found_or_harmless(suite: Path, name: str) -> None:
    file, noise = suite / name, random.Random(name)
    content = file.read_bytes()
    original = Suite.open(suite)
    outcomes = {"found": 0, "harmless": 0}
    for attempt in range(600):
        data = bytearray(content)
        for _ in range(noise.choice([1, 1, 1, 2, 8])):
            where = noise.randrange(len(data))
            kind = noise.randrange(4)
            if kind == 0:
                data[where] ^= 1 << noise.randrange(8)
            elif kind == 1:
                data[where] = noise.choice(b'0123456789-,:[]{}"\\/ eE.\x00\xff')
            elif kind == 2:
                del data[where : where + noise.choice([1, 2, 40])]
            else:
                data[where:where] = data[where : where + noise.choice([1, 9])]
        if attempt % 20 == 0:
            del data[noise.randrange(len(data)) :]
        file.write_bytes(data)
        try:
            damaged = read_all(suite)
        except SuiteError as error:
            assert str(suite) in error.message and error.hint
            outcomes["found"] += 1
            continue
        outcomes["harmless"] += 1
        assert damaged.digest == original.digest
        assert damaged.signatures == original.signatures
        for case in CASES:
            assert_same_case(damaged.case(case.id), case)
    assert outcomes["found"] > 500


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where each value below ``data`` is, as arguments of :func:`assign`."""
    steps = data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    return [place for step in steps for place in ((*path, step), *places(data[step], (*path, step)))]


def test_random_values_under_a_valid_digest_are_refused_or_read(suite: Path) -> None:
    noise = random.Random(7)
    file = suite / "manifest.json"
    content = file.read_text()
    data = json.loads(content)
    everywhere = [place for place in places(data) if place not in {("info",), ("digest",), ("format",)}]
    values = [
        0,
        1,
        2,
        3,
        -1,
        1 << 61,
        1 << 63,
        1 << 70,
        0.5,
        "",
        "x",
        "float64",
        None,
        True,
        [],
        {},
        [0],
        [[0]],
        [2, 2],
        [1 << 40],
    ]
    refused = 0
    for _ in range(500):
        file.write_text(content)
        for place in noise.sample(everywhere, noise.choice([1, 1, 2])):
            value = noise.choice([*values, json.loads(content)["reference_outputs"], CASES[0].id])
            try:
                edit_manifest(suite, remove(*place) if noise.random() < 0.1 else assign(*place, value))
            except (KeyError, IndexError, TypeError, AttributeError):
                continue  # what the first edit did away with
        try:
            read_all(suite)
        except SuiteError as error:
            assert str(suite) in error.message and error.hint
            refused += 1
    assert refused > 300


# -- what opening costs -----------------------------------------------------------------------------------------------


def test_opening_imports_neither_tvm_nor_transformers_and_executes_nothing(suite: Path) -> None:
    code = """
import sys
from tapml.suite import Suite
forbidden = ("exec", "compile", "subprocess.Popen", "os.system", "import", "pickle.find_class")
seen = []
for _ in range(2):  # the second time, nothing is left to be imported lazily
    suite = Suite.open(sys.argv[1])
    list(suite.cases())
    if not seen:
        sys.addaudithook(lambda event, arguments: seen.append((event, arguments)))
        seen.append(("start", ()))
found = [entry for entry in seen if entry[0] in forbidden]
assert not found, found
assert not {"tvm", "transformers"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code, str(suite)], check=True)


def test_opening_a_thousand_cases_is_quick(tmp_path: Path) -> None:
    import time

    shared = [torch.randn(8, n + 1) for n in range(250)]
    cases = [tensors_case(torch.randn(2, 8), w, mutated=[0], number=n) for w in shared for n in range(4)]
    write_suite(tmp_path / "s", cases)
    elapsed = []
    for _ in range(3):
        start = time.perf_counter()
        Suite.open(tmp_path / "s")
        elapsed.append(time.perf_counter() - start)
    assert min(elapsed) < 0.5, "0.08 s on an idle core"
