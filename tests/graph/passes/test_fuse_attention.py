"""Attention as one step: which graphs have it, which do not and why, and that results stay the same."""

import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.graph.passes.fuse_attention import Attention, find_attention
from tritium.graph.program import lower, specs_of
from tritium.graph.symbol.node import topological

S, C = mx.sym, mx.sym.contrib
SHAPES = {"x": (5, 2, 18), "q": (4, 2, 6), "kv": (5, 2, 12), "a": (3, 4, 8), "b": (3, 5, 8), "c": (3, 5, 6), "m": (1, 1, 5),
          "w": (6, 5, 5), "a4": (2, 3, 4, 8), "b4": (2, 3, 5, 8)}
x, q, kv, a, b, c, m, w, a4, b4 = map(S.var, SHAPES)


def selfatt(between=lambda s: s, after=lambda p: p, heads=3, values=x, **softmax):
    weights = S.softmax(between(C.interleaved_matmul_selfatt_qk(x, heads=heads, name="first")), name="soft", **softmax)
    return C.interleaved_matmul_selfatt_valatt(values, after(weights), heads=3, name="last")


def encdec():
    return C.interleaved_matmul_encdec_valatt(kv, S.softmax(C.interleaved_matmul_encdec_qk(q, kv, heads=3)), heads=3)


def products(between=lambda s: s, keys=None, values=c, first=a, **softmax):
    scores = S.batch_dot(first, b, transpose_b=True) if keys is None else S.batch_dot(first, keys)
    return S.batch_dot(S.softmax(between(scores), **softmax), values)


#: name -> (symbol, the operator, its parameters without the scale, the scale)
FUSED = {
    "selfatt": (selfatt(), "_attention_selfatt", {"heads": 3}, 2**-0.5),
    "selfatt, scaled": (selfatt(lambda s: s * 0.5 / 4), "_attention_selfatt", {"heads": 3}, 2**-0.5 / 8),
    "selfatt, mask": (selfatt(lambda s: S.broadcast_add(m, s * 2)), "_attention_selfatt", {"heads": 3, "use_mask": True},
                      2 * 2**-0.5),
    "selfatt, whole mask": (selfatt(lambda s: s + w), "_attention_selfatt", {"heads": 3, "use_mask": True}, 2**-0.5),
    "selfatt, temperature": (selfatt(temperature=4.0), "_attention_selfatt", {"heads": 3}, 2**-0.5 / 4),
    "encdec": (encdec(), "_attention_encdec", {"heads": 3}, 2**-0.5),
    "products": (products(axis=2), "_contrib_attention", {}, 1.0),
    "products, scaled, mask": (products(lambda s: S.broadcast_add(s * 0.25, m)), "_contrib_attention", {"use_mask": True}, 0.25),
    "products of four axes": (products(first=a4, keys=S.transpose(b4, axes=(0, 1, 3, 2)), values=b4), None,
                              "the rows of queries, keys or values lie along columns", 0),
    "another softmax": (selfatt(axis=1), None, "soft is not a softmax of all the keys in the dtype of the scores", 0),
    "an exponential between": (selfatt(S.exp), None, "(exp) is neither a scale nor a mask", 0),
    "two masks": (selfatt(lambda s: s + w + w), None, "is not the sum of scores and a mask", 0),
    "a temperature behind a mask": (selfatt(lambda s: s + w, temperature=2.0), None, "is neither a scale nor a mask", 0),
    "other values": (selfatt(values=x * 2), None, "first and last read different arrays, or other heads", 0),
    "scores that are needed": (S.Group([g := selfatt(), g.get_internals()["first_output"]]), None,
                               "first_output is needed elsewhere, too", 0),
    "weights that are needed": (S.Group([h := selfatt(), h.get_internals()["soft_output"]]), None,
                                "soft_output is needed elsewhere, too", 0),
    "no first product": (S.batch_dot(S.softmax(w), S.zeros((6, 5, 5))), None, "no product of queries and keys comes before", 0),
    "no softmax": (S.batch_dot(a, S.zeros((3, 8, 2))), None, "", 0),
}


def program_of(symbol, target="gpu"):
    heads = symbol._outputs
    order = topological(n for n, _ in heads)
    given = {n: SHAPES[n] for n in symbol.list_arguments()}
    return lower(heads, specs_of(order, given, {}), True, targets=(target,))


@pytest.mark.parametrize("name", FUSED)
def test_attention_is_found_or_the_reason_is_told(name):
    symbol, op, told, scale = FUSED[name]
    found, refusals = find_attention(program_of(symbol), {}, False)
    if op is None:
        assert found == [] and [told in r for r in refusals.values()] == ([True] if told else []), refusals
    else:
        (only,) = found
        params = dict(only.params)
        assert (only.op, params.pop("scale"), params, refusals) == (op, pytest.approx(scale), told, {})
        assert isinstance(only, Attention) and only.steps == tuple(sorted(only.steps))


def test_nothing_is_searched_for_on_a_cpu():
    assert find_attention(program_of(selfatt(), "cpu"), {}, False) == ([], {})


def test_a_mask_with_a_derivative_stays_apart():
    program = program_of(FUSED["selfatt, mask"][0])
    found, refusals = find_attention(program, {"x": "write", "m": "write"}, True)
    assert found == [] and list(refusals.values()) == ["they are not one attention: the mask m has a derivative"]
    for requests in ({"x": "write", "m": "null"}, {"x": "write"}):
        assert len(find_attention(program, requests, True)[0]) == 1


@pytest.mark.parametrize("name", [n for n, (_, op, *_) in FUSED.items() if op])
@pytest.mark.parametrize("train", [False, True])
def test_results_are_those_of_the_separate_steps(rng, name, train):
    symbol = FUSED[name][0]
    names = symbol.list_arguments()
    requests = {n: "null" if n in "mw" else "write" for n in names}
    arrays, head, results = {n: rng.normal(size=SHAPES[n]) for n in names}, None, []
    for ctx in (mx.cpu(), mx.gpu()):
        args, grads = ({n: mx.nd.array(v, ctx=ctx, dtype="float64") for n, v in arrays.items()} for _ in range(2))
        bound = symbol.bind(ctx, args, grads, requests)
        (y,) = bound.forward(is_train=train)
        head = rng.normal(size=y.shape) if head is None else head
        bound.backward(mx.nd.array(head, ctx=ctx, dtype="float64"))
        results.append([y, *(grads[n] for n in names if requests[n] == "write")])
        assert ("softmax" in str(bound.explain()).splitlines()[1]) == (ctx == mx.gpu())
    for got, want in zip(results[1], results[0]):
        assert_close(got, want)


def test_explain_names_the_operators_and_the_reason(rng):
    one = selfatt().simple_bind(mx.gpu(), x=SHAPES["x"], grad_req="null")
    assert "first (_contrib_interleaved_matmul_selfatt_qk) + soft (softmax) + last (_contrib_interleaved" in str(one.explain())
    apart = selfatt(axis=1).simple_bind(mx.gpu(), x=SHAPES["x"], grad_req="null")
    assert "apart from last: they are not one attention: soft is not a softmax of all the keys" in str(apart.explain())


def test_memory_is_that_of_no_scores():
    bound = [selfatt().simple_bind(ctx, grad_req="write", x=(256, 2, 18)) for ctx in (mx.cpu(), mx.gpu())]
    apart, together = (b.memory_plan().planned_bytes for b in bound)
    assert together < 6 * 256 * 256 * 4 < apart
