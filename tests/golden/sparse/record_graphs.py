"""Record what executors with sparse arguments give: `python record_graphs.py`, with MXNet 1.9.1 installed."""

import json
from pathlib import Path

import numpy as np

#: Of symbols with sparse arguments: c and k are csr, r and q row-sparse, [3, 3]; d [3, 3] and row [1, 3] are dense.
GRAPHS = """
sym.abs(r); sym.sqrt(c); sym.exp(r); r * 2; r / 2; r + 2; sym.elemwise_add(r, q); sym.elemwise_add(r, d); sym.elemwise_mul(r, q)
sym.elemwise_sub(c, k); sym.elemwise_mul(c, d); sym.elemwise_mul(d, c); sym.broadcast_mul(c, row); sym.broadcast_div(c, row + 1)
sym.dot(c, d); sym.dot(c, d, transpose_a=True); sym.dot(d, c); sym.dot(c, r); sym.dot(c, r, transpose_a=True)
sym.dot(c, d, transpose_a=True, forward_stype="default"); sym.add_n(r, q); sym.sum(c, axis=0); sym.slice(c, begin=(0,), end=(2,))
sym.clip(r, a_min=-1, a_max=1); sym.Concat(c, k, dim=0); sym.cast_storage(d, stype="row_sparse")
sym.cast_storage(c, stype="default"); sym.cast_storage(d, stype="csr"); sym.zeros_like(r); sym.identity(r); sym.relu(r)
sym.sqrt(sym.abs(r)) * 3; sym.Group([sym.abs(r), sym.exp(r)]); sym._internal._square_sum(r, axis=1, keepdims=True); sym.norm(c)
c > 1; c < 1; sym.sin(c) / 2; sym.BlockGrad(r); sym.dot(sym.abs(c), d); sym.FullyConnected(c, d, no_bias=True, num_hidden=3)
"""


def arrays(mx):
    """Return the arrays by name."""
    c, k, r, q = ([[1, 0, 2], [0, 0, 0], [0, 3, 0]], [[0, 0, 0], [1, 0, 4], [0, 0, 0]], [[1, -2, 0.5], [0, 0, 0], [0, 3, 0]],
                  [[0, 0, 0], [0, 0, 0], [1, 1, 1]])
    dense = {"d": np.arange(9).reshape(3, 3), "row": np.array([[1, 2, 3]])}
    return {**{n: mx.nd.array(a).tostype("csr") for n, a in (("c", c), ("k", k))},
            **{n: mx.nd.array(a).tostype("row_sparse") for n, a in (("r", r), ("q", q))},
            **{n: mx.nd.array(a) for n, a in dense.items()}}


def results(mx):
    """Return [graph, [[storage type, values] of each output]] of all."""
    given = arrays(mx)
    names = {"sym": mx.sym, **{n: mx.sym.var(n, stype=a.stype) for n, a in given.items()}}
    found = []
    for graph in GRAPHS.replace("\n", ";").split(";"):
        if graph.strip():
            symbol = eval(graph.strip(), names)
            executor = symbol.bind(mx.cpu(), {n: given[n] for n in symbol.list_arguments()}, grad_req="null")
            found.append([graph.strip(), [[o.stype, o.asnumpy().tolist()] for o in executor.forward()]])
    return found


if __name__ == "__main__":
    import mxnet

    Path(__file__).with_name("graphs.json").write_text(json.dumps(results(mxnet)) + "\n")
