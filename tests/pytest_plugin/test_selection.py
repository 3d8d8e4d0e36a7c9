"""Which cases run: suites are left alone without a target; words, node ids, processes; what is wrong with a request."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tapml.migration.settings import Settings
from tapml.pytest_plugin.explain import described_call
from tapml.pytest_plugin.judging import Judging
from tapml.pytest_plugin.scheduling import SignatureScheduling
from tapml.suite.call import Signature, TensorSpec
from tests.pytest_plugin.conftest import CONVERTERS, Run, properties

pytest_plugins = ("pytester",)

LLVM = ("--tapml-target", "llvm")


def test_the_plugin_imports_nothing_heavy() -> None:
    """It is loaded wherever tapml is installed."""
    heavy = ("torch", "tvm", "numpy", "rich", "click", "safetensors")
    code = f"import sys, tapml.pytest_plugin; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_suite_without_a_target_is_an_error_that_says_what_to_add(run: Run) -> None:
    run.suite("silu")
    for given in ("suite", "suite/manifest.json", "suite/manifest.json::aten.silu.default"):
        ran = run(given)
        assert ran.ret == pytest.ExitCode.USAGE_ERROR
        ran.stderr.fnmatch_lines(
            ["ERROR: expected --tapml-target with the suite *", f"hint: such as `pytest {given} --tapml-target llvm`*"]
        )


def test_suites_that_lie_about_are_left_alone_without_a_target(run: Run) -> None:
    run.suite("silu", "tests/suites/silu")
    (run.path / "tests" / "suites" / "silu" / "manifest.json").write_text("damaged")
    run.pytester.makepyfile(**{"tests/test_other": "def test_other(): pass"})
    for given in ((), ("tests",)):
        ran = run(*given)
        assert ran.ret == 0
        ran.assert_outcomes(passed=1)
        assert "tapml:" not in ran.stdout.str()


def test_suites_below_a_directory_are_found_and_other_tests_run_too(run: Run) -> None:
    run.suite("silu", "tests/suites/silu")
    run.suite("places", "tests/suites/places")
    (run.path / "tests" / "manifest.json").write_text('{"name": "a web extension"}')
    run.pytester.makepyfile(**{"tests/test_other": "def test_other(): pass"})
    ran = run("tests", *LLVM, "--collect-only", "-q")
    assert ran.ret == 0
    lines = [line for line in ran.outlines if "::" in line]
    assert [line for line in lines if line.startswith("tests/suites/silu/manifest.json::aten.silu.default::")]
    assert [line for line in lines if line.startswith("tests/suites/places/manifest.json::aten.index_put")]
    assert [line for line in lines if line.startswith("tests/test_other.py::test_other")]
    assert not [line for line in lines if line.startswith("tests/manifest.json")]


def test_a_target_without_a_suite_is_said(run: Run) -> None:
    run.pytester.makepyfile(test_other="def test_other(): pass")
    ran = run(*LLVM)
    ran.assert_outcomes(passed=1)
    ran.stdout.fnmatch_lines(["tapml: no case of a suite in *: a suite is a directory that `tapml carve` writes"])


def test_cases_are_chosen_by_operator_module_signature_and_node_id(run: Run) -> None:
    run.suite("waves")

    def chosen(*arguments: str) -> list[str]:
        ran = run(*arguments, *LLVM, "--collect-only", "-q")
        return [line for line in ran.outlines if "::" in line]

    every = chosen("suite")
    assert len(every) == len(set(every))
    sin = [n for n in every if "::aten.sin.default::" in n]
    assert len(sin) == 3 and chosen("suite/manifest.json", "-k", "aten.sin.default") == sin
    signature = sin[0].split("::")[2]
    assert chosen("suite", "-k", signature) == sin
    assert chosen("suite/manifest.json::aten.sin.default") == sin
    assert chosen(sin[1]) == [sin[1]]
    modules = chosen("suite", "-k", "steps.2")
    assert set(sin) < set(modules) and not [n for n in modules if "tanh" in n]


def test_a_verdict_does_not_depend_on_what_else_is_chosen(run: Run) -> None:
    run.suite("waves")
    given = ("suite", *LLVM, f"--tapml-with={CONVERTERS}/taylor_sin.py")
    assert run(*given, "-k", "sin").ret == 1
    wrong = next(n for n, s in run.statuses.items() if s == "failure")
    texts = {n: c.findtext("failure") for n, c in run.cases.items()}
    (name,) = [n for n in run.cases if n.startswith("aten.sin") and n.endswith(f".{wrong[-1]}")]
    alone = run("suite/manifest.json::" + "::".join(name.rsplit(".", 2)), *given[1:])
    assert alone.ret == 1
    assert {n: c.findtext("failure") for n, c in run.cases.items()} == {name: texts[name]}


def test_the_cases_of_a_signature_go_to_one_process() -> None:
    scope = SignatureScheduling._split_scope
    for nodeid in (
        "a/manifest.json::aten.mm.default::123456789abc::0",
        "a/manifest.json::aten.mm.default::123456789abc::1",
    ):
        assert scope(None, nodeid) == "a/manifest.json::aten.mm.default::123456789abc"
    for nodeid in ("test_a.py::Test::test_b::0", "test_a.py::test_a", "a/manifest.json::three::of::another::plugin"):
        assert scope(None, nodeid) == nodeid


def test_another_process_judges_in_the_same_way() -> None:
    settings, info = Settings("llvm", extensions=(str(CONVERTERS / "taylor_sin.py"),), seconds=7).resolved()
    judging = Judging(settings, info, sharing=1)
    sent = json.loads(json.dumps(judging.to_json()))
    received = Judging.from_json(sent, sharing=2)
    assert (received.settings, received.info) == (settings, info)


@pytest.mark.slow
def test_xdist_gives_the_same_with_each_signature_in_one_process(run: Run) -> None:
    run.suite("waves")
    run.pytester.makepyfile(test_other="import pytest\n@pytest.mark.parametrize('i', [1, 2])\ndef test_other(i): pass")
    given = ("suite", "test_other.py", *LLVM, f"--tapml-with={CONVERTERS}/taylor_sin.py", "-v", "-k", "sin or other")
    alone = run(*given)
    expected = {name: [child.get("message") for child in case] for name, case in run.cases.items()}
    ran = run(*given, "-n", 2, subprocess=True)
    assert ran.ret == alone.ret == 1
    assert {name: [child.get("message") for child in case] for name, case in run.cases.items()} == expected
    alone.assert_outcomes(passed=3, failed=2)
    ran.assert_outcomes(passed=3, failed=2)
    assert {properties(c)["mode"] for n, c in run.cases.items() if "sin" in n} == {"native"}
    ran.stdout.fnmatch_lines(
        [
            "tapml: target llvm, device llvm:cpu (native): *",
            "scheduling tests via SignatureScheduling",
            "3 cases of 1 signature: 1 passed, 2 failed",
            "FAILED suite/manifest.json::aten.sin.default::????????????::? - failed: max*",
        ]
    )
    finished = [line.split() for line in ran.outlines if line.startswith("[gw") and "aten.sin" in line]
    assert len(finished) == 3 and len({words[0] for words in finished}) == 1


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("--tapml-target", "abacus"), "expected a target out of *llvm*, found 'abacus'", "hint: `tapml devices` *"),
        ((*LLVM, "--tapml-device", "x"), "expected device 'x' for target llvm, found llvm:cpu", "hint: *"),
        ((*LLVM, "--tapml-with", "x.py"), "expected a readable Python file with converters, found none *", "hint: *"),
        ((*LLVM, "--tapml-timeout", "0"), "*--tapml-timeout: expected a number above 0, found '0'", "*"),
        ((*LLVM, "--tapml-memory-limit", "9"), "*expected a whole number of megabytes, at least 256, found '9'", "*"),
    ],
)
def test_a_bad_option_is_a_usage_error(run: Run, arguments: tuple[str, ...], message: str, hint: str) -> None:
    run.suite("silu")
    ran = run("suite", *arguments)
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines([f"*{message}", hint])


def test_a_damaged_suite_is_an_error_that_names_the_file(run: Run) -> None:
    manifest = run.suite("silu") / "manifest.json"
    text = manifest.read_text()
    for damaged in (text[: len(text) // 2], text.replace('"calls":1', '"calls":-1')):
        manifest.write_text(damaged)
        ran = run("suite", *LLVM)
        assert ran.ret == pytest.ExitCode.INTERRUPTED
        ran.stdout.fnmatch_lines(["*suite/manifest.json: expected *", "hint: *"])
        ran.assert_outcomes(errors=1)


def test_damaged_values_fail_their_signature_only(run: Run) -> None:
    (pack,) = (run.suite("mlp") / "tensors").iterdir()
    data = bytearray(pack.read_bytes())
    data[-1] ^= 1
    pack.write_bytes(bytes(data))
    ran = run("suite", *LLVM)
    assert ran.ret == 1
    found = ran.parseoutcomes()
    assert found["failed"] and found["passed"]
    ran.stdout.fnmatch_lines(["not judged: *pack-*", "hint: *"])


def test_converters_that_cannot_be_loaded_end_the_run(run: Run) -> None:
    run.suite("mlp")
    (run.path / "broken.py").write_text("import no_such_module")
    ran = run("suite", *LLVM, "--tapml-with", "broken.py")
    assert ran.ret == 1
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(["not judged: *broken.py*no_such_module*", "!* *broken.py:1 raised *no_such_module* !*"])


def test_two_suites_of_one_node_id_are_refused(run: Run, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Outside of its root directory pytest names both ``manifest.json``, and pytest-xdist would run one of the two."""
    one, two = run.suite("silu", "a/one"), run.suite("places", "a/two")
    elsewhere = tmp_path_factory.mktemp("root")
    ran = run(one, two, *LLVM, "--rootdir", elsewhere)
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines(["expected suites with different node ids, *", "hint: give pytest --rootdir *"])
    run(one, two, *LLVM, "--rootdir", run.path)
    assert {n.partition("/")[0] for n in run.statuses} > {"aten.silu.default"}


def test_a_call_is_described_with_all_that_makes_it() -> None:
    plain, turned = TensorSpec((3, 8), "float32", (8, 1)), TensorSpec((8, 4), "float32", (1, 8))
    arguments = '[[{"tensor":0},{"tensor":1},{"float":"inf"}],{"dtype":{"dtype":"float16"},"dims":[1,2]}]'
    text = described_call(Signature("aten.x.default", arguments, (plain, turned)))
    assert text == (
        "aten.x.default(float32[3, 8], float32[8, 4] strides (1, 8), inf, dtype=torch.float16, dims=[1, 2])"
    )


def test_options_are_in_the_help(pytester: pytest.Pytester) -> None:
    text = pytester.runpytest_inprocess("--help").stdout.str()
    for name in ("--tapml-target", "--tapml-device", "--tapml-with", "--tapml-timeout", "--tapml-memory-limit"):
        assert name in text
    assert "pytest SUITE --tapml-target llvm" in text


def test_a_plugin_turned_off_is_off(run: Run) -> None:
    run.suite("silu")
    assert Path("suite").is_dir()
    assert run("suite", "-p", "no:tapml").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_pytest_may_be_called_where_tapml_is_imported(run: Run) -> None:
    """Its own warning that a plugin's package is imported already would end a strict run."""
    run.pytester.makepyfile(test_other="def test_other(): pass")
    code = "import sys, pytest, tapml; sys.exit(pytest.main(['test_other.py', '-W', 'error']))"
    ran = run.pytester.run(sys.executable, "-c", code)
    assert ran.ret == 0
    ran.assert_outcomes(passed=1)
