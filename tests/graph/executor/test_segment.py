"""Short segments without a user's code run in the thread that pushes them."""

import math

import numpy as np
import tritium as mx
from tritium.graph.executor.segment import SHORT


class Twice(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * 2)


@mx.operator.register("twice_in_a_segment")
class TwiceProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Twice()


def bound(symbol):
    executor = symbol.simple_bind(mx.cpu(), x=(3,), grad_req="null")
    executor.arg_dict["x"][:] = 1
    executor.forward()
    mx.nd.waitall()
    compiled = executor._compile(False)
    return executor, compiled, compiled.forward[0]


def pushed_inline(compiled, segment, took):
    """Return whether the segment may run in the pushing thread if its shortest run took so many nanoseconds."""
    pushes, on = [], compiled.on

    class Engine:
        def push(self, opr, ctx, inline):
            pushes.append(inline)
            on.push(opr, ctx, inline=inline)

    segment.shortest = took
    segment.push(Engine(), compiled.oprs[id(segment)])
    mx.nd.waitall()
    (inline,) = pushes
    return inline


def test_a_short_segment_runs_where_it_is_pushed():
    executor, compiled, segment = bound(mx.sym.exp(mx.sym.var("x")))
    assert 0 < segment.shortest < math.inf
    assert pushed_inline(compiled, segment, SHORT)
    np.testing.assert_allclose(executor.outputs[0].asnumpy(), np.full(3, np.e, np.float32), rtol=1e-6)  # closer than the table


def test_a_long_segment_does_not_run_where_it_is_pushed():
    _executor, compiled, segment = bound(mx.sym.exp(mx.sym.var("x")))
    assert not pushed_inline(compiled, segment, SHORT + 1)


def test_a_segment_with_a_users_code_never_runs_where_it_is_pushed():
    executor, compiled, segment = bound(mx.sym.Custom(mx.sym.var("x"), op_type="twice_in_a_segment"))
    assert not pushed_inline(compiled, segment, 1)
    assert executor.outputs[0].asnumpy().tolist() == [2, 2, 2]
