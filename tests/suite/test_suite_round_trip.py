"""What is written is read: values, views, aliases, and everything that is said of a case."""

from __future__ import annotations

import pickle
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from suite_making import (
    as_case,
    assert_same,
    assert_same_case,
    bits,
    edit_manifest,
    make_case,
    records_of,
    tensors_case,
    write_suite,
)
from torch._subclasses.fake_tensor import FakeTensorMode

from tapml.errors import SuiteError, UnsupportedError, UsageError
from tapml.suite import Suite, SuiteWriter
from tapml.suite.call import execute
from tapml.suite.record import DTYPES, STORED_AS


def random_tensor(dtype: torch.dtype, size: int, seed: int = 0) -> torch.Tensor:
    """``dtype[size]`` of random bits, NaNs and subnormals included."""
    generator = torch.Generator().manual_seed(seed)
    high = 2 if dtype == torch.bool else 256
    return torch.randint(0, high, (size * dtype.itemsize,), dtype=torch.uint8, generator=generator).view(dtype)


# -- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_every_dtype_comes_back_bit_by_bit(tmp_path: Path, name: str) -> None:
    flat = random_tensor(DTYPES[name], 24)
    views = [flat, flat.view(4, 6), flat.view(4, 6).t(), flat.view(4, 6)[:, 1:3], flat[:0], flat[3], flat[::2]]
    case = tensors_case(*views)
    assert_same_case(write_suite(tmp_path / "s", [case]).case(case.id), case)


def test_the_dtypes_are_all_that_pytorch_computes_with() -> None:
    computing = {torch.tensor([], dtype=d).dtype for d in vars(torch).values() if _is_numeric(d)}
    assert computing <= STORED_AS.keys()


def _is_numeric(value: object) -> bool:
    exotic = (
        "q",
        "bits",
        "int1",
        "int2",
        "int3",
        "int4",
        "int5",
        "int6",
        "int7",
        "uint1",
        "uint2",
        "complex32",
        "bcomplex",
    )
    name = str(value).removeprefix("torch.")
    plain = name in ("int16", "int32", "int64", "uint16") or not name.removeprefix("u").startswith(exotic)
    return isinstance(value, torch.dtype) and plain


@st.composite
def views(draw: st.DrawFn) -> torch.Tensor:
    """A view of random bits: any shape with up to four dimensions, any strides, overlapping and broadcast included."""
    dtype = draw(st.sampled_from(sorted(DTYPES.values(), key=str)))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    strides = [draw(st.integers(0, 9)) for _ in shape]
    offset = draw(st.integers(0, 5))
    base = random_tensor(dtype, 200, draw(st.integers(0, 3)))
    return base.as_strided(shape, strides, offset)


@settings(max_examples=100, deadline=None)
@given(st.lists(views(), min_size=1, max_size=3), st.data())
def test_any_view_comes_back(tensors: list[torch.Tensor], data: st.DataObject) -> None:
    case = tensors_case(*tensors)
    with tempfile.TemporaryDirectory() as folder:
        suite = write_suite(Path(folder) / "s", [case], pack_bytes=data.draw(st.sampled_from([1, 64, 1 << 20])))
        assert_same_case(suite.case(case.id), case)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_alias_group_shares_storage_after_reading(data: st.DataObject) -> None:
    base = random_tensor(torch.uint8, 160)
    members = []
    for _ in range(data.draw(st.integers(2, 4))):
        flat = base.view(data.draw(st.sampled_from([torch.float32, torch.int16, torch.uint8, torch.complex64])))
        shape = data.draw(st.lists(st.integers(1, 2), max_size=2))
        strides = [data.draw(st.integers(0, 5)) for _ in shape]
        members.append(flat.as_strided(shape, strides, data.draw(st.integers(0, 8))))
    stranger = random_tensor(torch.float32, 7)
    case = tensors_case(stranger, *members, mutated=[1])
    with tempfile.TemporaryDirectory() as folder:
        read = write_suite(Path(folder) / "s", [case]).case(case.id)
    assert_same_case(read, case)
    for before, after in zip(members, read.tensors[1:], strict=True):
        assert after.untyped_storage().data_ptr() == read.tensors[1].untyped_storage().data_ptr()
        assert after.data_ptr() - read.tensors[1].data_ptr() == before.data_ptr() - members[0].data_ptr()
    assert read.tensors[0].untyped_storage().data_ptr() != read.tensors[1].untyped_storage().data_ptr()


def test_a_group_at_the_ragged_end_of_its_storage(tmp_path: Path) -> None:
    base = random_tensor(torch.uint8, 11)
    case = tensors_case(base[:8].view(torch.int64), base[9:], mutated=[1])
    assert_same_case(write_suite(tmp_path / "s", [case]).case(case.id), case)


def test_lazy_conjugates_negatives_and_zeros_are_recorded_as_values(tmp_path: Path) -> None:
    z = torch.randn(3, 4, dtype=torch.complex64)
    case = tensors_case(
        z.conj(), z.conj().imag, z.conj().t(), z.conj()[:1].expand(3, 4), torch._efficientzerotensor((2, 3))
    )
    assert_same_case(write_suite(tmp_path / "s", [case]).case(case.id), case)


def test_a_copy_of_an_expanded_argument_is_recorded_as_expanded(tmp_path: Path) -> None:
    for expanded in (
        torch.randn(5, 1).expand(5, 7),
        torch.arange(10.0).as_strided((4, 3), (2, 1)),
        torch.randn(3, 4).t(),
    ):
        case = tensors_case(expanded)
        copied = as_case(case.signature.operator, case.signature.template, [expanded])
        object.__setattr__(copied, "tensors", (expanded.clone(memory_format=torch.contiguous_format),))
        suite = write_suite(tmp_path / "s", [copied], force=True)
        assert_same_case(suite.case(case.id), case)
        assert suite.nbytes < 600


def test_parameters_and_tensors_that_require_gradients(tmp_path: Path) -> None:
    case = tensors_case(torch.nn.Parameter(torch.randn(3)), torch.randn(3, requires_grad=True) * 2)
    read = write_suite(tmp_path / "s", [case]).case(case.id)
    assert_same_case(read, case)
    assert not any(t.requires_grad for t in read.tensors)


REFUSED = {
    "layout sparse_coo": lambda: torch.eye(3).to_sparse(),
    "a meta tensor": lambda: torch.empty(3, device="meta"),
    "dtype qint8": lambda: torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.qint8),
    "the tensor subclass FakeTensor": lambda: FakeTensorMode().from_tensor(torch.randn(3)),
    "a nested tensor": lambda: torch.nested.nested_tensor([torch.randn(2), torch.randn(3)]),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:torch.quantize_per_tensor")
def test_what_has_no_plain_values_is_refused_and_the_writer_goes_on(tmp_path: Path, kind: str) -> None:
    tensor = REFUSED[kind]()
    good, bad = tensors_case(torch.randn(3)), tensors_case(torch.randn(4))
    object.__setattr__(bad, "results", (("out0", tensor),))
    with SuiteWriter(tmp_path / "s") as writer:
        with pytest.raises(UnsupportedError, match=kind) as caught:
            writer.add_case(bad)
        assert "bfloat16" in caught.value.hint
        writer.add_case(good)
        writer.commit(records_of([good]), info={})
    assert Suite.open(tmp_path / "s").case_ids == (good.id,)


# -- how it is stored -------------------------------------------------------------------------------------------------


def test_a_weight_its_transpose_and_an_equal_tensor_share_one_buffer(tmp_path: Path) -> None:
    weight = torch.randn(64, 64)
    cases = [
        make_case("aten.mm.default", torch.randn(2, 64), weight.t()),
        tensors_case(weight, weight.clone().view(-1)),
    ]
    suite = write_suite(tmp_path / "s", cases)
    first, second = suite.entry(cases[0].id), suite.entry(cases[1].id)
    assert {first.tensors[1].buffer} == {second.tensors[0].buffer, second.tensors[1].buffer}
    assert suite.nbytes < weight.nbytes + 3000


def test_broadcast_and_sparse_views_are_stored_compactly(tmp_path: Path) -> None:
    cache = torch.randn(1, 8, 4096, 16)
    case = tensors_case(torch.randn(1).expand(1000, 1000), cache[:, :, 17], cache[:, :, :1].expand(1, 8, 9, 16))
    suite = write_suite(tmp_path / "s", [case])
    assert suite.nbytes < 4000
    assert [record.packed for record in suite.entry(case.id).tensors] == [False, True, True]
    assert_same_case(suite.case(case.id), case)


def test_packs_are_files_that_safetensors_reads_the_same(tmp_path: Path) -> None:
    tensors = [random_tensor(DTYPES[name], size) for name in sorted(DTYPES) for size in (0, 3, 64)]
    suite = write_suite(tmp_path / "s", [tensors_case(*tensors)], pack_bytes=700)
    packs = sorted((tmp_path / "s" / "tensors").iterdir())
    assert len(packs) > 2
    loaded = {name: tensor for pack in packs for name, tensor in load_file(pack).items()}
    for record, tensor in zip(suite.entry(suite.case_ids[0]).tensors, tensors, strict=True):
        assert bits(loaded[record.buffer]) == bits(tensor)
        assert loaded[record.buffer].dtype == STORED_AS[tensor.dtype]


def test_every_tensor_that_is_read_is_aligned_as_tvm_wants_it(tmp_path: Path) -> None:
    tensors = [random_tensor(DTYPES[name], size) for name in sorted(DTYPES) for size in (1, 3, 5, 64)]
    case = tensors_case(*tensors, torch.randn(4, 4)[:, :2])
    assert all(t.data_ptr() % 64 == 0 for t in write_suite(tmp_path / "s", [case]).case(case.id).tensors)


def test_writing_to_what_was_read_reaches_neither_the_disk_nor_another_case(tmp_path: Path) -> None:
    x = torch.randn(64)
    cases = [make_case("aten.add_.Tensor", x.clone(), x), make_case("aten.relu.default", x)]
    suite = write_suite(tmp_path / "s", cases)
    first, second = suite.case(cases[0].id), suite.case(cases[1].id)
    for tensor in (*first.tensors, *second.tensors, *(t for _, t in first.results)):
        tensor.fill_(7)
    for case in cases:
        assert_same_case(suite.case(case.id), case)
    assert_same_case(Suite.open(tmp_path / "s").case(cases[0].id), cases[0])


def test_a_mutated_argument_shares_nothing_with_an_equal_one(tmp_path: Path) -> None:
    x = torch.randn(64)
    case = tensors_case(x.clone(), x, mutated=[0])
    read = write_suite(tmp_path / "s", [case]).case(case.id)
    read.tensors[0].fill_(7)
    assert_same(read.tensors[1], x)
    assert_same(dict(read.results)["arg0"], x)


# -- the rest of a case -----------------------------------------------------------------------------------------------


def test_a_suite_of_real_calls(tmp_path: Path) -> None:
    x = torch.randn(4, 8)
    cases = [
        make_case("aten.mm.default", x, torch.randn(3, 8).t()),
        make_case("aten.add_.Tensor", x.clone(), torch.randn(4, 1).expand(4, 8), alpha=2.5),
        make_case("aten.split.Tensor", torch.randn(24, 2), 2),
        make_case("aten.index.Tensor", x, [None, torch.tensor([1, 2])]),
        make_case("aten.full.default", [2, 2], float("-inf"), dtype=torch.bfloat16, device=torch.device("cpu")),
        make_case("aten.native_layer_norm.default", x, [8], torch.ones(8), None, 1e-5),
    ]
    outputs = {"z": torch.randn(3), "a": torch.randn(2, 2).t()}
    suite = write_suite(tmp_path / "s", cases, outputs=outputs, info={"seed": 3, "notes": ["ü", float("nan")]})
    assert suite.case_ids == tuple(case.id for case in cases)
    assert suite.signatures == tuple(records_of(cases))
    for case, read in zip(cases, suite.cases(), strict=True):
        assert_same_case(read, case)
        for (name, expected), (_, found) in zip(case.results, execute(read.signature, read.tensors), strict=True):
            assert torch.equal(found, expected), name
    read_outputs = suite.reference_outputs()
    assert list(read_outputs) == ["z", "a"]
    for name, tensor in outputs.items():
        assert_same(read_outputs[name], tensor)
    assert suite.info["seed"] == 3 and suite.info["notes"][0] == "ü" and suite.info["created"].endswith("+00:00")
    assert suite.info["notes"][1] != suite.info["notes"][1]


def test_several_cases_of_one_signature(tmp_path: Path) -> None:
    cases = [make_case("aten.relu.default", torch.randn(3), number=n) for n in (0, 4, 11)]
    suite = write_suite(tmp_path / "s", cases)
    signature_id = cases[0].signature.id
    assert [case.id for case in suite.cases(signature_id)] == [f"{signature_id}/{n}" for n in (0, 4, 11)]
    assert suite.signature(signature_id).calls == 6


def test_an_empty_suite(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "s", [])
    assert (suite.signatures, suite.case_ids, suite.reference_outputs(), suite.nbytes) == ((), (), {}, 0)


def test_a_suite_goes_to_another_process(tmp_path: Path) -> None:
    case = make_case("aten.relu.default", torch.randn(3))
    suite = pickle.loads(pickle.dumps(write_suite(tmp_path / "s", [case])))
    assert_same_case(suite.case(case.id), case)


def test_unknown_ids_are_named_with_the_nearest(tmp_path: Path) -> None:
    case = make_case("aten.relu.default", torch.randn(3))
    suite = write_suite(tmp_path / "s", [case])
    with pytest.raises(UsageError, match=f"has no case '{case.signature.id}/1'") as caught:
        suite.case(f"{case.signature.id}/1")
    assert f"did you mean {case.id}?" in caught.value.hint
    with pytest.raises(UsageError, match="has no signature 'x'"):
        list(suite.cases("x"))


def test_the_digest_is_the_content_and_not_the_moment(tmp_path: Path) -> None:
    def write(name: str, value: float, **info: object) -> Suite:
        case = make_case("aten.relu.default", torch.full((3,), value))
        return write_suite(tmp_path / name, [case], info={"seed": 1, **info})

    first = write("a", 1.0, created="2020-01-01", timing={"carve": 1.0}, host="here")
    again = write("b", 1.0, timing={"carve": 2.0}, host="there")
    assert first.digest == again.digest
    assert first.info["created"] == "2020-01-01"
    assert len({first.digest, write("c", 2.0).digest, write("d", 1.0, seed=2).digest}) == 3
    packs = [(tmp_path / name / "tensors" / "pack-0000.safetensors").read_bytes() for name in "ab"]
    assert packs[0] == packs[1]
    edit_manifest(tmp_path / "a", lambda data: data["info"].update(timing={}))
    assert Suite.open(tmp_path / "a").digest == again.digest


# -- what a writer refuses --------------------------------------------------------------------------------------------


def test_cases_that_contradict_themselves(tmp_path: Path) -> None:
    case = tensors_case(torch.randn(3), torch.randn(3))
    wrong_id, wrong_shape, wrong_stress = (tensors_case(*case.tensors) for _ in range(3))
    object.__setattr__(wrong_id, "id", "0123456789ab/0")
    object.__setattr__(wrong_shape, "tensors", (torch.randn(3), torch.randn(4)))
    object.__setattr__(wrong_stress, "stress", {"kept": object()})
    with SuiteWriter(tmp_path / "s") as writer:
        with pytest.raises(SuiteError, match=f"expected a case id {case.signature.id}/<n>, found '0123456789ab/0'"):
            writer.add_case(wrong_id)
        with pytest.raises(SuiteError, match=r"found float32\[3\], float32\[4\]"):
            writer.add_case(wrong_shape)
        with pytest.raises(SuiteError, match=r"expected namespace.name.overload at signature.operator, found 'while'"):
            writer.add_case(as_case("while", [[{"tensor": 0}], {}], [torch.randn(3)]))
        with pytest.raises(SuiteError, match="expected a JSON value, found object"):
            writer.add_case(wrong_stress)
        with pytest.raises(SuiteError, match=r"expected indices of 2 tensors as mutated, found \(2,\)"):
            writer.add_case(case, mutated=[2])
        writer.add_case(case)
        with pytest.raises(SuiteError, match="expected each case once"):
            writer.add_case(case)
        with pytest.raises(SuiteError, match="an id that a signature lists"):
            writer.commit([], info={})
        with pytest.raises(SuiteError, match="expected JSON as info"):
            writer.commit(records_of([case]), info={"device": torch.device("cpu")})
        writer.close()
        with pytest.raises(UsageError, match="is closed"):
            writer.add_case(case)
    assert not list(tmp_path.iterdir())


def test_a_commit_that_was_refused_can_be_repeated(tmp_path: Path) -> None:
    case = tensors_case(torch.randn(3))
    with SuiteWriter(tmp_path / "s") as writer:
        writer.add_case(case)
        with pytest.raises(SuiteError, match="an id that a signature lists"):
            writer.commit([], info={})
        writer.commit(records_of([case]), info={})
    assert_same_case(Suite.open(tmp_path / "s").case(case.id), case)


def test_a_signature_of_a_dtype_that_no_case_can_have(tmp_path: Path) -> None:
    record = records_of([as_case("aten.int_repr.default", [[{"tensor": 0}], {}], [torch.randn(3)])])[0]
    signature = replace(record.signature, tensors=(replace(record.signature.tensors[0], dtype="qint8"),))
    record = replace(record, signature=signature, cases=())
    with SuiteWriter(tmp_path / "s") as writer:
        writer.commit([record], info={})
    assert Suite.open(tmp_path / "s").signatures == (record,)
