"""The census of declarations: what it counts as one declaration, and the counts that docs/architecture.md states."""

from pathlib import Path

import pytest
from support.census import PAGE, Census, counts, stated, take, write
from support.census import __file__ as census_file
from tritium.kernels import op as registry
from tritium.kernels.declare.composite import DeclaredComposite, ops
from tritium.kernels.declare.host_op import HostOp
from tritium.kernels.declare.operator_property import OperatorProperty, assign, gpu_module
from tritium.kernels.declare.property_op import PropertyOp
from tritium.kernels.declare.row_kernel import row_kernel
from tritium.kernels.ir.strided import whole
from tritium.kernels.op import Req
from tritium.kernels.ops.tensor.data_movement import Move, MoveProperty


class Once(OperatorProperty):
    """x + 1, one body for both devices."""

    name = "once"
    gradient_arguments = ()

    def forward_kernel(self, ins, outs, reqs, target, train):
        shapes = [s.shape for s in ins]
        return row_kernel(lambda x: x + 1, shapes, shapes, (2, 3), ins, outs, reqs, target, "once")


class Moved(MoveProperty):
    """x, by one move: the copy on a GPU is a Triton kernel, and that of all who move."""

    name = "moved"
    gradient_arguments = ()

    def moves(self, ins, outs):
        return [Move(0, whole, 0, whole)]


class Twice(OperatorProperty):
    """Running sums of all elements: by a Triton kernel and by NumPy."""

    name = "twice"
    gradient_arguments = ()

    def forward_kernel(self, ins, outs, reqs, target, train):
        if target == "gpu":
            return lambda run, inputs, outputs: gpu_module("tensor.triton_cumsum").cumsum(
                run, (1, ins[0].size, 1), inputs[0], outputs[0], back=False, add=False)
        return lambda run, inputs, outputs: assign(outputs[0], Req.WRITE, inputs[0].cumsum().reshape(ins[0].shape))


class Aside(Once):
    """x + 1, and a function that runs for the CPU alone."""

    name = "aside"

    def forward_kernel(self, ins, outs, reqs, target, train):
        if target == "gpu":
            return super().forward_kernel(ins, outs, reqs, target, train)
        return self._by_numpy

    def _by_numpy(self, run, inputs, outputs):
        assign(outputs[0], Req.WRITE, inputs[0] + 1)


class OnHost(HostOp):
    name = "on_host"
    gradient_arguments = ()


class Idle(OperatorProperty):
    """Does nothing on a GPU, and does not say that the host computes it."""

    name = "idle"
    gradient_arguments = ()

    def forward_kernel(self, ins, outs, reqs, target, train):
        return lambda run, inputs, outputs: None


def kind_of(op):
    census = Census(own=Path(__file__))
    with census.watch():
        return census.look(op, [([(2, 3)], {}, "float32")])


@pytest.fixture(scope="module")
def found():
    return take()


@pytest.mark.parametrize("cls, kind", [(Once, "one"), (Moved, "one"), (Twice, "template"), (Aside, "template"), (OnHost, "host")])
def test_a_layer_is_of_its_kind(cls, kind):
    assert kind_of(PropertyOp(cls.name, cls)).kind == kind


def test_a_template_is_charged_with_its_triton_module_and_its_lone_functions():
    assert kind_of(PropertyOp("twice", Twice)).modules == {"tensor.triton_cumsum"}
    lone = kind_of(PropertyOp("aside", Aside)).lone
    assert "cpu: test_census.py:Aside._by_numpy" in lone
    assert any("gpu: test_census.py:Once.forward_kernel" in f for f in lone)


def test_a_composite_is_not_charged_with_what_it_calls():
    softmax = DeclaredComposite(lambda x: ops.softmax(x), "calls_softmax", gives=())
    softmax.input_names, softmax.params = ("x",), ()
    assert kind_of(softmax).kind == "one"


def test_an_operator_that_launches_nothing_must_say_that_the_host_computes_it():
    with pytest.raises(AssertionError, match="idle: launched nothing on the GPU in its uses, and says nowhere that the host"):
        kind_of(PropertyOp("idle", Idle))


def test_watching_leaves_everything_as_it_was():
    before = {c: vars(c)["kernel"] for c in (PropertyOp, DeclaredComposite.__mro__[1])}
    with Census().watch():
        assert vars(PropertyOp)["kernel"] is not before[PropertyOp]
    assert {c: vars(c)["kernel"] for c in before} == before


def test_every_builtin_is_counted_once(found):
    names = {o.name for o in registry._builtin.values() if not o.name.startswith("_test_")}
    assert sum(counts(found).values()) == len(found) == len(names)


def test_the_page_states_the_counts(found):
    fresh, page = {"all": len(found), **counts(found)}, stated(PAGE.read_text())
    assert page == fresh, f"docs/architecture.md states {page}. Let {Path(census_file).name} --write state what is so: {fresh}."


def test_fewer_single_declarations_are_not_written_to_the_page(found, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("".join(f"| {k} | {n} | x |\n" for k, n in {"all": 1, "one": 1000, "template": 0, "host": 0,
                                                                "control flow": 0}.items()))
    monkeypatch.setattr("support.census.PAGE", page)
    with pytest.raises(SystemExit, match="`one` would go from 1000 to"):
        write(found)
    page.write_text(page.read_text().replace("1000", "2").replace("| host | 0", "| host | 99"))
    write(found)
    assert stated(page.read_text()) == {"all": len(found), **counts(found)}
