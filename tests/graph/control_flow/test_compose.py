"""mx.sym.contrib.foreach, while_loop and cond: the nodes made of Python functions, MXNet's files read and written, errors."""

import copy
import json
import pickle

import pytest
import tritium as mx
from tritium.errors import FileError, GraphError

sym, v = mx.sym, mx.sym.Variable

#: What MXNet 1.9.1 writes for foreach(lambda d, s: (d + s, d * s), var("data"), var("q")), its results added.
WRITTEN = """{
  "nodes": [
    {
      "op": "null", 
      "name": "data", 
      "inputs": []
    }, 
    {
      "op": "null", 
      "name": "q", 
      "inputs": []
    }, 
    {
      "op": "_foreach", 
      "name": "_foreach0", 
      "attrs": {
        "in_data_locs": "[0]", 
        "in_state_locs": "[1]", 
        "num_args": "3", 
        "num_out_data": "1", 
        "num_outputs": "2", 
        "remain_locs": "[]"
      }, 
      "inputs": [[0, 0, 0], [1, 0, 0]], 
      "subgraphs": [
        {
          "nodes": [
            {
              "op": "null", 
              "name": "data-0", 
              "attrs": {"__subgraph_name__": "foreach0"}, 
              "inputs": []
            }, 
            {
              "op": "null", 
              "name": "q-0", 
              "attrs": {"__subgraph_name__": "foreach0"}, 
              "inputs": []
            }, 
            {
              "op": "elemwise_add", 
              "name": "_plus0", 
              "attrs": {"__subgraph_name__": "foreach0"}, 
              "inputs": [[0, 0, 0], [1, 0, 0]]
            }, 
            {
              "op": "elemwise_mul", 
              "name": "_mul0", 
              "attrs": {"__subgraph_name__": "foreach0"}, 
              "inputs": [[0, 0, 0], [1, 0, 0]]
            }
          ], 
          "arg_nodes": [0, 1], 
          "node_row_ptr": [0, 1, 2, 3, 4], 
          "heads": [[2, 0, 0], [3, 0, 0]]
        }
      ]
    }
  ], 
  "arg_nodes": [0, 1], 
  "node_row_ptr": [0, 1, 2, 4], 
  "heads": [[2, 0, 0], [2, 1, 0]], 
  "attrs": {"mxnet_version": ["int", 10901]}
}"""  # noqa: W291  MXNet's line ends


def simple():
    return sym.Group(list(sym.contrib.foreach(lambda d, s: (d + s, d * s), v("data"), v("q"))))


def test_files_are_mxnets_to_the_byte_and_come_back():
    assert simple().tojson() == WRITTEN
    read = sym.fromjson(WRITTEN)
    assert read.tojson() == WRITTEN and read.list_outputs() == ["_foreach0_output0", "_foreach0_output1"]
    for other in (pickle.loads(pickle.dumps(read)), copy.deepcopy(read), read(data=v("other"))):
        assert other.infer_shape_partial(q=(2,))[1] == [(0, 2), (2,)]
    assert read._outputs[0][0].params == simple()._outputs[0][0].params, "equal graphs share their kernels"


@pytest.mark.parametrize("change, says", [
    (lambda n: n["subgraphs"].clear(), r"node 2 \('_foreach0', _foreach\): _foreach: 0 subgraphs, not 1"),
    (lambda n: n.update(subgraphs=3), r"node 2 \('_foreach0', _foreach\): 'subgraphs' is not a list"),
    (lambda n: n["subgraphs"][0]["heads"].pop(), r"do not fit a subgraph with 2 inputs and 1 results"),
    (lambda n: n["attrs"].update(num_args="9"), r"do not fit"),
    (lambda n: n["inputs"].pop(), r"num_args says 2 inputs, there are 1"),
    (lambda n: n["subgraphs"][0]["nodes"][2]["inputs"].append([7, 0, 0]), r"subgraph 0: node 2 .*reads node 7"),
])
def test_damaged_files_are_refused_by_name(change, says):
    graph = json.loads(WRITTEN)
    change(graph["nodes"][2])
    with pytest.raises(FileError, match=says):
        sym.fromjson(json.dumps(graph))


def test_graphs_within_graphs_have_a_limit():
    graph = json.loads(WRITTEN)
    for _ in range(20):
        node = copy.deepcopy(graph["nodes"][2])
        node["subgraphs"] = [{"nodes": copy.deepcopy(graph["nodes"]), "heads": graph["heads"]}]
        graph["nodes"][2] = node
    with pytest.raises(FileError, match="more than 16 graphs lie within one another"):
        sym.fromjson(json.dumps(graph))


def test_symbols_from_outside_become_inputs():
    outer = sym.exp(v("z"))
    outs, last = sym.contrib.foreach(lambda d, s: (d * v("w") + outer, s + d), v("data"), v("q"), name="loop")
    symbol = sym.Group([outs, last])
    assert symbol.list_arguments() == ["data", "q", "w", "z"]
    node = outs._outputs[0][0]
    assert [n.name for n, _ in node.inputs] == ["data", "q", "w", outer.name]
    assert node.params.subgraphs[0].inputs == ("data-0", "w", f"{outer.name}_output", "q-0")
    assert all(n.attrs["__subgraph_name__"] == "loop0" for n in node.params.subgraphs[0].order if n.op and n.op.name != "_copy")


def test_a_symbol_that_was_there_before_can_be_composed_into_the_body():
    net = sym.tanh(v("x")) * v("w")
    outs, last = sym.contrib.foreach(lambda d, s: (net(x=d), s + d), v("data"), v("q"))
    symbol = sym.Group([outs, last])
    assert symbol.list_arguments() == ["data", "q", "w"] and symbol.infer_shape(data=(4, 2))[1] == [(4, 2), (2,)]


def test_branches_share_inputs_and_unused_inputs_are_left_out():
    a, b = v("a"), v("b")
    out = sym.contrib.cond(a < b, lambda: a * 2, lambda: a + b)
    node = out._outputs[0][0]
    assert [n.name for n, _ in node.inputs] == ["_lesser0", "a", "b"]
    assert node.attrs["then_input_locs"] == "[1]" and node.attrs["else_input_locs"] == "[1, 2]"


def test_structure_is_kept():
    outs, states = sym.contrib.foreach(lambda d, s: ([d[0], [d[1] * 2]], [s[0] + d[1], s[1] * 2]),
                                       [v("a"), v("b")], [v("s"), v("t")])
    assert [type(outs), type(outs[1]), len(states)] == [list, list, 2]
    outs, last = sym.contrib.while_loop(lambda i: i < 3, lambda i: (None, i + 1), v("i"), 5)
    assert outs == [] and isinstance(last, sym.Symbol)


@pytest.mark.parametrize("call, says", [
    (lambda: sym.contrib.foreach(lambda d, s: (s, s), v("a"), v("s")), "foreach: body does not use data 0"),
    (lambda: sym.contrib.foreach(lambda d, s: (d, d), v("a"), v("s")), "foreach: body does not use state 0"),
    (lambda: sym.contrib.foreach(lambda d, s: (d, [s, s]), v("a"), [v("s")]), "given 1 states and returned 2"),
    (lambda: sym.contrib.foreach(lambda d, s: (3, s), v("a"), v("s")), "what body returns: 3 is neither a Symbol"),
    (lambda: sym.contrib.while_loop(lambda i: i, lambda i: (i, i), v("a")), "max_iterations is None"),
    (lambda: sym.contrib.while_loop(lambda: 0, lambda: (), [], 3), "loop_vars is empty"),
    (lambda: sym.contrib.while_loop(lambda i: i, lambda i: (i, [i, i]), [v("a")], 3), "given 1 variables and returned 2"),
    (lambda: sym.contrib.while_loop(lambda i: i, lambda i: (v("b"), v("b")), v("a"), 3), "func does not use variable 0"),
    (lambda: sym.contrib.cond(v("a"), lambda: [v("b"), v("c")], lambda: v("b")), "then_func gives 2 symbols and else_func 1"),
])
def test_refusals(call, says):
    with pytest.raises(GraphError, match=says):
        call()
