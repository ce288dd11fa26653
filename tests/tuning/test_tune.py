"""Tuning a user's operators: in this process, and by the command with --import. Oracle: NumPy, and kernels without a choice."""

import json
import sys

import numpy as np
import pytest
import tritium as mx
from click.testing import CliRunner
from tritium.cli import commands
from tritium.cli.tune import NOTHING
from tritium.kernels.configs import active
from tritium.kernels.configs.store import Store
from tritium.kernels.cpu.numpy_printer import TILE
from tritium.lang import exp
from tritium.tuning import tune, use
from tritium.tuning.collect import TuningRequest, collect, import_operators

MODULE = """
import tritium as mx
from tritium.lang import exp

@mx.simple_op(replace=True)
def _test_bell(x, *, width: float = 1.0):
    return exp(-(x / width) * (x / width))

@mx.reduction(combine="add", replace=True)
def _test_energy(x):
    return x * x
"""


@pytest.fixture(autouse=True)
def _own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITIUM_TUNE_STORE", str(tmp_path / "tune.sqlite"))
    monkeypatch.delenv("TRITIUM_TUNED", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_test_ops.py").write_text(MODULE)
    yield
    active.use(None)
    sys.modules.pop("my_test_ops", None)
    while str(tmp_path) in sys.path:
        sys.path.remove(str(tmp_path))


@pytest.fixture
def bell():
    @mx.simple_op(name="_test_curve", replace=True)
    def curve(x, *, width: float = 1.0):
        return exp(-(x / width) * (x / width))

    return curve


def run(*arguments):
    result = CliRunner().invoke(commands.main, ["tune", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def templates(name, text, **more):
    work = collect(TuningRequest(cases=[(name, text)], **more))
    return [(i.task.key.template, i.task.key.layout) for i in work.items], work.without


# ---- which kernels have something to tune ----------------------------------------------------------------------------
@pytest.mark.parametrize("name, text, params, layouts", [
    ("sum", "300x400", {"axis": "1"}, {"fold", "broadcast"}), ("norm", "300x400", {}, {"fold", "broadcast"}),
    ("L2Normalization", "40x30x20", {}, {"row"}), ("LayerNorm", "300x400@400@400", {}, {"row"}),
    ("LeakyReLU", "300x400", {"act_type": "elu"}, {"flat"})])
def test_rows_folds_and_chosen_operators_have_a_space_on_a_cpu(name, text, params, layouts, cpu_code):
    """Those that NumPy computes: functions in C cut their work by its size."""
    cpu_code("numpy")
    found, without = templates(name, text, params=params)
    assert {t for t, _ in found} == {"cpu tile"} and {lay for _, lay in found} >= layouts and not without


def test_a_composite_is_tuned_by_its_parts():
    found, _ = templates("_linalg_gemm2", "64x256@256x128", train=False)
    assert found == [("cpu gemm", "")]


@pytest.mark.parametrize("name, text, reason", [
    ("exp", "4x4", "its largest array has 16 elements, and a kernel is divided from 8,193 on"),
    ("exp", "1", "its largest array has 1 element, and"),
    ("Flatten", "300x400", "it only gives the same memory another shape"),
    ("_linalg_syevd", "200x200", "NumPy computes it on the host, in one piece"),
    ("transpose", "300x400", "its CPU code has no blocks to choose")])
def test_where_nothing_can_be_tuned_the_reason_is_said(name, text, reason):
    found, without = templates(name, text, train=False)
    assert not found and reason in without[f"{name} {text}"]
    result = run("--op", name, "--shapes", text, "--inference", "--json")
    assert result.exit_code == NOTHING and f"{name} {text}: nothing to tune: {reason}" in " ".join(result.output.split())
    report = json.loads(result.output.splitlines()[-1])
    assert report["tasks"] == 0 and report["finished"]


def test_a_layer_of_a_user_says_that_its_code_is_its_own():
    class Doubler(mx.operator.Operator):
        def forward(self, ctx, in_data, req, out_data, aux):
            mx.operator.assign(out_data[0], req[0], 2 * in_data[0].numpy())

    @mx.operator.register_operator("_test_doubler", replace=True)
    class DoublerProperty(mx.operator.OperatorProperty):
        gradient_arguments = ()

        def create_operator(self, target, in_shapes, in_dtypes):
            return Doubler()

    assert "nothing to tune: its Operator computes it with code of its own" in repr(tune(DoublerProperty, (300, 400)))


# ---- in this process -------------------------------------------------------------------------------------------------
def test_a_declared_operator_tunes_itself_and_its_results_are_used(bell, tmp_path, capsys):
    found = bell.tune((100, 200), budget=60, dtype="float64")
    assert [k.name for k in found.kernels] == ["_test_curve 100x200 backward", "_test_curve 100x200"]
    assert found.summary.finished and all(k.default_s > 0 and k.best_s > 0 for k in found.kernels)
    assert capsys.readouterr().out.count("_test_curve 100x200") == 2 == str(found).count("_test_curve")
    assert repr(found).startswith(f"{found.summary.improved} of 2 kernels ha")
    html = found._repr_html_()
    assert html.count("<tr>") == 3 and "2 kernels ha" in html and "<script" not in html
    with Store() as store:
        assert {r.dtype for r in store.rows()} == {"float64"} and len(store.rows()) == found.summary.rows
    x = mx.nd.array(np.linspace(-1, 1, 20_000).reshape(100, 200), dtype="float64")
    before = mx.nd._test_curve(x).asnumpy()
    asked = []
    use()
    with active.observed(lambda key, default: asked.append(active._current().lookup(key))):
        assert np.array_equal(mx.nd._test_curve(x).asnumpy(), before)
    assert asked and asked[0] is not None, "the kernel was made anew, and found a result"
    again = tune("_test_curve", [(100, 200)], dtype="float64", progress=False)
    assert again.summary.timed == 0 and again.summary.known == found.summary.rows and not capsys.readouterr().out


def test_the_budget_of_a_call_holds(bell):
    found = bell.tune((100, 200), budget=0.0, progress=False)
    assert found.summary.timed == 0 and not found.summary.finished
    assert str(found).endswith("The time ran out. Call it again to go on, or give a larger budget.")
    assert "_test_curve 100x200: not timed" in str(found)


def test_only_one_kernel_of_several_is_given_the_configuration_on_trial():
    """A norm is a fold and a square root; the tile of the fold is on trial, and the root keeps its default."""
    fold, root = [active.Key("cpu tile", "float32", lies, 16, (("elements", n),)) for lies, n in (("fold", 9), ("flat", 7))]
    with active.forced(fold, {"tile": 7}):
        assert active.choice(fold, {"tile": TILE}) == {"tile": 7} and active.choice(root, {"tile": TILE}) == {"tile": TILE}


@pytest.mark.parametrize("wrong, kind, message", [
    (lambda op: op.tune(), mx.errors.ParameterError, r"is neither a shape nor a list.*Give \(512, 512\), or \[\(512, 64\)"),
    (lambda op: op.tune((3, 0)), mx.errors.ParameterError, "with sizes of at least 1"),
    (lambda op: op.tune((3, 4), (3, 4)), mx.errors.ParameterError, r"_test_curve: 2 shapes for 1 inputs \(x\)"),
    (lambda op: op.tune((3, 4), device="tpu"), mx.errors.ContextError, "device 'tpu' is neither a cpu nor a gpu"),
    (lambda op: tune("_test_curv", (3, 4)), mx.errors.OperatorError, "no such operator. Did you mean '_test_curve'"),
    (lambda op: tune(3, (3, 4)), mx.errors.OperatorError, "3 is not an operator. Give what its declaration returned"),
    (lambda op: op.tune((3, 4), params={"with": 1}), mx.errors.ParameterError, "with")])
def test_what_cannot_be_tuned_is_an_error_that_says_what_to_give(wrong, kind, message, bell):
    with pytest.raises(kind, match=message):
        wrong(bell)


@pytest.mark.skipif(mx.context.GPU_MODE != "interpret", reason="an interpreted GPU has no times")
def test_an_interpreted_gpu_is_not_timed(bell):
    with pytest.raises(mx.errors.ContextError, match="kernels are interpreted here"):
        bell.tune((3, 4), device=mx.gpu())


# ---- by the command --------------------------------------------------------------------------------------------------
def test_the_command_tunes_operators_of_a_module(cpu_code):
    cpu_code("numpy")
    result = run("--import", "my_test_ops", "--op", "_test_energy", "--shapes", "100x100", "--param", "axis=1", "--inference",
                 "--budget", "90s", "--json")
    report = json.loads(result.output.splitlines()[-1])
    assert result.exit_code == 0 and report["finished"] and report["timed"] > 1 and not report["failed"], result.output
    assert "1/1 _test_energy 100x100 (100.0%)" in result.output
    left = run("--import", "my_test_ops", "--explain", "_test_energy", "100x100", "--param", "axis=1").output
    assert "cpu tile, float32, layout fold" in left and "rounds" in left


def test_the_command_runs_a_python_file_of_another_folder(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "my_test_ops.py").rename(tmp_path / "deep" / "my_test_ops.py")
    result = run("--import", "deep/my_test_ops.py", "--op", "_test_bell", "--shapes", "300x100", "--dry-run")
    assert result.exit_code == 0 and "_test_bell 300x100: cpu tile float32" in result.output, result.output


def test_a_case_without_a_choice_among_others_is_named():
    result = run("--import", "my_test_ops", "--op", "_test_bell", "--shapes", "300x100,2x2", "--inference", "--dry-run")
    assert result.exit_code == 0 and "_test_bell 2x2: nothing to tune: its largest array has 4 elements" in result.output


@pytest.mark.parametrize("arguments, text", [
    (["--op", "_test_nowhere", "--shapes", "4"], "_test_nowhere: no such operator."),
    (["--op", "_test_nowhere", "--shapes", "4"], "If a module of yours declares it, name the module: --import my_ops."),
    (["--import", "no_such_ops", "--op", "exp", "--shapes", "4"], "there is no module no_such_ops in"),
    (["--import", "no_such_ops.py", "--op", "exp", "--shapes", "4"], "there is no file"),
    (["--import", "broken_ops", "--op", "exp", "--shapes", "4"], "importing broken_ops failed: ZeroDivisionError"),
    (["--import", "needy_ops", "--op", "exp", "--shapes", "4"], "No module named 'no_such_library'. Install what it needs"),
    (["--import", "my_test_ops"], "is not a file of results, so it names operators to tune: give --op NAME"),
    (["--op", "exp", "--shapes", "4", "--param", "7"], "'7' is not a name and a value. Write axis=1."),
])
def test_a_module_that_cannot_be_imported_is_named(arguments, text, tmp_path):
    (tmp_path / "broken_ops.py").write_text("1 / 0\n")
    (tmp_path / "needy_ops.py").write_text("import no_such_library\n")
    result = run(*arguments)
    assert result.exit_code in (1, 2) and text in " ".join(result.output.split()), result.output


def test_a_file_that_fails_is_not_left_half_imported(tmp_path):
    (tmp_path / "half_ops.py").write_text("import tritium\n1 / 0\n")
    for _ in range(2):
        with pytest.raises(mx.errors.OperatorError, match=r"importing half_ops\.py failed: ZeroDivisionError"):
            import_operators("half_ops.py")
    assert "half_ops" not in sys.modules
