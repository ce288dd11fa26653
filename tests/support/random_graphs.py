"""Random small networks as symbols, to compare ways of running a graph."""

import numpy as np
import tritium as mx
import tritium.graph as g
from hypothesis import strategies as st
from tritium.graph import options
from tritium.graph.passes.gradient import add_gradients
from tritium.graph.program import lower, specs_of
from tritium.graph.symbol.node import topological

sym = g.namespace


ELEMENTWISE = {
    "add": lambda x, y: x + y, "mul": lambda x, y: x * y, "sub": lambda x, y: x - y, "twice": lambda x, y: x * x + x,
    "tanh": lambda x, y: sym.tanh(x), "relu": lambda x, y: sym.relu(x), "square": lambda x, y: sym.square(x),
    "half": lambda x, y: x * 0.5, "minus": lambda x, y: -1.5 * x,
    "gate": lambda x, y: sym.Activation(x, act_type="sigmoid") * y,
}  # fmt: skip

#: Bodies that sum rows or choose between arrays, each in the middle of elementwise work.
ROWS = {
    "softmax": lambda x, y: sym.softmax(x * 2 + y), "log_softmax": lambda x, y: sym.log_softmax(x - y),
    "mean": lambda x, y: sym.broadcast_sub(x, sym.mean(y * y, axis=1, keepdims=True)),
    "largest": lambda x, y: sym.broadcast_add(x, sym.max(sym.tanh(y), axis=-1, keepdims=True)),
    "length": lambda x, y: sym.broadcast_mul(x, sym.norm(y + 2, axis=1, keepdims=True)),
    "column": lambda x, y: sym.broadcast_mul(x, sym.mean(sym.tanh(y), axis=0, keepdims=True)),
    "choice": lambda x, y: sym.where(x > y, x * y, sym.tanh(y)),
}  # fmt: skip


GROUPS = ("one", "two", None)  # ctx_group of a node


@st.composite
def networks(draw, most=14, groups=False):
    """(symbol, {argument: shape}): elementwise runs with fan-out, products, broadcasts, sums, norms, splits, several outputs.

    groups: put nodes into ctx_groups "one" and "two", or into none.
    """
    rows, cols = draw(st.integers(1, 4)), draw(st.integers(1, 5)) * 2
    with g.NameManager():
        pool = [sym.Variable("a", shape=(rows, cols)), sym.Variable("b", shape=(rows, cols))]
        shapes = {"a": (rows, cols), "b": (rows, cols)}
        for k in range(draw(st.integers(1, most))):
            x, y = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
            kind = draw(st.sampled_from([*ELEMENTWISE, *ROWS, "dense", "broadcast", "split", "sum", "norm", "layer norm"]))
            if kind == "largest":
                y = pool[0]  # no ties: MXNet gives the whole derivative to each, which is no slope
            group = draw(st.sampled_from(GROUPS)) if groups else None
            with g.AttrScope(**({} if group is None else {"ctx_group": group})):
                if kind == "dense":
                    pool.append(sym.FullyConnected(x, num_hidden=cols, name=f"fc{k}"))
                    shapes[f"fc{k}_weight"], shapes[f"fc{k}_bias"] = (cols, cols), (cols,)
                elif kind == "broadcast":
                    pool.append(sym.broadcast_add(x, sym.Variable(f"v{k}", shape=(1, cols)), name=f"bc{k}"))
                    shapes[f"v{k}"] = (1, cols)
                elif kind == "split":
                    parts = sym.SliceChannel(x, num_outputs=2, axis=1, name=f"split{k}")
                    pool.append(sym.Concat(parts[draw(st.integers(0, 1))], parts[1], dim=1, name=f"cat{k}"))
                elif kind == "sum":
                    pool.append(sym.broadcast_mul(x, sym.sum(sym.tanh(y), axis=1, keepdims=True), name=f"scaled{k}"))
                elif kind == "norm":
                    pool.append(sym.Activation(sym.BatchNorm(x, fix_gamma=False, eps=0.1, name=f"bn{k}"), act_type="relu"))
                    shapes[f"bn{k}_gamma"] = shapes[f"bn{k}_beta"] = (cols,)
                elif kind == "layer norm":
                    pool.append(sym.LayerNorm(x, eps=0.1, name=f"ln{k}") * y)
                    shapes[f"ln{k}_gamma"] = shapes[f"ln{k}_beta"] = (cols,)
                else:
                    pool.append({**ELEMENTWISE, **ROWS}[kind](x, y))
        heads = draw(st.lists(st.sampled_from(pool[2:]), min_size=1, max_size=3))
        symbol = g.Group(heads)
    used = symbol.list_arguments()
    return symbol, {n: s for n, s in shapes.items() if n in used}


def values(shapes, seed):
    """Return small float32 arrays for the arguments."""
    rng = np.random.default_rng(seed)
    return {n: rng.normal(scale=0.5, size=s).astype("float32") for n, s in shapes.items()}


def program(symbol, grad_req, **shapes):
    """Return the program of symbol with gradients, before fusion and plan."""
    order = topological(n for n, _ in symbol._outputs)
    specs = specs_of(order, shapes, {})
    forward = lower(symbol._outputs, specs, True)
    return add_gradients(forward, grad_req)


def _softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _layer_norm(p, x, gamma, beta):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + p.eps) * gamma + beta


def _normalised(x, gamma, beta, *_):
    return (x - x.mean(0)) / np.sqrt(x.var(0) + 0.1) * gamma + beta


ORACLE = {
    "elemwise_add": lambda p, x, y: x + y, "elemwise_sub": lambda p, x, y: x - y, "elemwise_mul": lambda p, x, y: x * y,
    "tanh": lambda p, x: np.tanh(x), "relu": lambda p, x: np.maximum(x, 0), "square": lambda p, x: x * x,
    "_mul_scalar": lambda p, x: x * p.scalar, "Activation": lambda p, x: 1 / (1 + np.exp(-x)) if p.act_type == "sigmoid"
    else np.maximum(x, 0), "FullyConnected": lambda p, x, w, b: x @ w.T + b, "broadcast_add": lambda p, x, y: x + y,
    "broadcast_mul": lambda p, x, y: x * y, "sum": lambda p, x: x.sum(1, keepdims=True),
    "SliceChannel": lambda p, x: np.split(x, 2, axis=1), "Concat": lambda p, x, y: np.concatenate([x, y], 1),
    "BatchNorm": lambda p, *a: [_normalised(*a), None, None], "_plus_scalar": lambda p, x: x + p.scalar,
    "softmax": lambda p, x: _softmax(x), "log_softmax": lambda p, x: np.log(_softmax(x)), "LayerNorm": _layer_norm,
    "mean": lambda p, x: x.mean(p.axis, keepdims=True), "max": lambda p, x: x.max(p.axis, keepdims=True),
    "norm": lambda p, x: np.sqrt((x * x).sum(p.axis, keepdims=True)), "where": lambda p, c, x, y: np.where(c != 0, x, y),
    "_greater": lambda p, x, y: (x > y) * 1.0, "broadcast_sub": lambda p, x, y: x - y,
}  # fmt: skip


def numpy_outputs(symbol, arrays, dtype="float64"):
    """Compute the outputs in training, node by node, each rounded to dtype: slow and obvious."""
    found = {}
    for node in topological(n for n, _ in symbol._outputs):
        if node.op is None:
            found[id(node)] = [np.asarray(arrays[node.name], dtype) if node.name in arrays else None]
        else:
            made = ORACLE[node.op.name](node.params, *(found[id(n)][i] for n, i in node.inputs))
            found[id(node)] = [np.asarray(m, dtype) for m in (made if isinstance(made, list) else [made])]
    return [found[id(n)][i] for n, i in symbol._outputs]


def states(symbol, args, ctx):
    found = symbol.infer_shape(**{k: v.shape for k, v in args.items()})[2]
    return [mx.nd.zeros(s, ctx) for s in found]


def run(symbol, args, ctx=None, **how):
    ctx = ctx or mx.cpu()
    with options(**how):
        ex = symbol.bind(ctx, {k: mx.nd.array(v, ctx, dtype=v.dtype) for k, v in args.items()},
                         {k: mx.nd.zeros(v.shape, ctx, dtype=v.dtype) for k, v in args.items()},
                         aux_states=states(symbol, args, ctx))
    outs = [o.asnumpy() for o in ex.forward(is_train=True)]
    ex.backward([mx.nd.array(np.cos(np.arange(o.size)).reshape(o.shape).astype(o.dtype), ctx, dtype=o.dtype) for o in outs])
    return outs + [g.asnumpy() for g in ex.grad_arrays]
