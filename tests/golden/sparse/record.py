"""Record what MXNet gives for expressions with sparse arrays: `python record.py`, with MXNet 1.9.1 installed."""

import json
from pathlib import Path

EXPRESSIONS = """
a; rs; a[1]; a[1:3]; a[-1]; a[:]; a.tostype("default"); e.tostype("csr"); e.tostype("row_sparse"); nd.cast_storage(e, "csr")
nd.cast_storage(a, "default"); nd.dot(a, d); nd.sparse.dot(a, d); nd.dot(a, e, transpose_a=True); nd.dot(ones(2, 4), a)
nd.dot(a, d.tostype("row_sparse")); nd.dot(ones(2, 3), a, transpose_b=True); nd.dot(a, rs, transpose_a=True)
nd.dot(a, e, transpose_a=True, forward_stype="default"); nd.dot(ones(2, 4), a, forward_stype="default")
a + a; a + 1; a * 2; a / 2; a * a; 2 * a; -a; a**2; abs(a); nd.abs(a); nd.exp(a); nd.sqrt(a); a.sum(); nd.sum(a, axis=0)
a.mean(); nd.sparse.add(a, a); nd.sparse.multiply(a, 2); nd.sparse.subtract(rs, rs2); nd.sparse.add(rs, rs2); rs + rs2; rs * 2
rs * rs2; rs + e; e + rs; a + ones(4, 3); nd.elemwise_mul(a, ones(4, 3)); a * ones(4, 3); nd.sparse.retain(rs, nd.array([2, 3]))
rs[:]; rs.indices; rs.data; a.data; a.indices; a.indptr; rs.copy(); a.copy(); a.astype("float16"); a.astype("int32").data
rs.astype("float64"); nd.sparse.array(a); nd.sparse.zeros("csr", (2, 3)); nd.sparse.zeros("row_sparse", (2, 3))
nd.zeros((2, 3), stype="csr"); nd.sparse.empty("csr", (2, 3)); nd.empty((2, 3), stype="row_sparse"); csr((2, 3)); csr(e)
csr([[1, 0], [0, 2]]); csr(([1, 2], ([0, 1], [1, 0])), shape=(2, 2)); csr(a); csr(np.array([[1, 0.0]]))
csr(([1, 2, 3], [1, 0, 2], [0, 1, 2, 2, 3])); csr(([1, 2, 3], [1, 0, 2], [0, 1, 2, 2, 3]), shape=(4, 3), dtype="float64")
nd.zeros_like(a); nd.sparse.zeros_like(rs); nd.ones_like(a); a.as_in_context(mx.cpu(0)); a.copyto(nd.zeros((4, 3))); a == a; a.T
nd.concat(a, a, dim=0); nd.square(a); nd.sparse.square(rs); nd.norm(a); nd.sparse.clip(a, 0, 2); nd.slice(a, begin=(1,), end=(3,))
nd.slice(a, begin=(1, 0), end=(3, 2)); a.slice(begin=(0, 1), end=(4, 3)); nd.sparse.where(a, ones(4, 3), nd.zeros((4, 3)))
nd.add_n(rs, rs2); nd.add_n(a, a); nd.broadcast_mul(a, nd.array([[1, 2, 3]])); nd.broadcast_mul(a, nd.array([[1], [2], [3], [4]]))
nd.broadcast_div(a, nd.array([[1], [2], [3], [4]])); nd.maximum(a, 1); a > 1; a.broadcast_to((4, 3)); a.expand_dims(0); a.detach()
sum_of(a, d); into(a.copy(), ones(4, 3).tostype("csr")); into(a.copy(), np.eye(4, 3)); into(rs2.copy(), ones(4, 2))
into(rs2.copy(), 3)
"""


def results(mx, np):
    """Return [[class, storage type, shape, dtype, values], ...] of the expressions."""
    nd = mx.nd
    a = nd.sparse.csr_matrix(([1, 2, 3], [1, 0, 2], [0, 1, 2, 2, 3]), shape=(4, 3))
    d = nd.array([[1, 2], [3, 4], [5, 6]])
    e = nd.array([[1.0, 0], [2, 3], [0, 0], [4, 5]])
    rs = nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [0, 2]), shape=(4, 2))
    rs2 = nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [1, 2]), shape=(4, 2))

    def sum_of(sparse, w):
        """The derivative of the sum of a product by its dense factor."""
        w.attach_grad()
        with mx.autograd.record():
            y = nd.dot(sparse, w)
        y.backward()
        return w.grad

    def into(target, value):
        target[:] = value
        return target

    names = {"mx": mx, "nd": nd, "np": np, "a": a, "d": d, "e": e, "rs": rs, "rs2": rs2, "sum_of": sum_of, "into": into,
             "csr": nd.sparse.csr_matrix, "ones": lambda *shape: nd.ones(shape)}
    for expression in EXPRESSIONS.replace("\n", ";").split(";"):
        if expression.strip():
            r = eval(expression.strip(), names)
            yield [type(r).__name__, r.stype, list(r.shape), np.dtype(r.dtype).name, r.asnumpy().tolist()]


def saved(mx):
    """Return the arrays of sparse.params."""
    sparse = mx.nd.sparse
    return {"a": sparse.csr_matrix(([1, 2, 3], [1, 0, 2], [0, 1, 2, 2, 3]), shape=(4, 3)), "dense": mx.nd.ones((2,)),
            "r": sparse.row_sparse_array(([[1, 2], [3, 4]], [1, 2]), shape=(4, 2), dtype="float64"),
            "no rows": sparse.zeros("row_sparse", (2, 3)), "no elements": sparse.zeros("csr", (2, 3))}


if __name__ == "__main__":
    import mxnet
    import numpy

    mxnet.nd.save(str(Path(__file__).with_name("sparse.params")), saved(mxnet))
    Path(__file__).with_name("results.json").write_text("[\n" + ",\n".join(map(json.dumps, results(mxnet, numpy))) + "\n]\n")
