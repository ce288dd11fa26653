"""The cost in Python of running a bound graph, per node: the kernels do nothing, so that only the replay is measured.

    python perf/bench_replay.py                        both lengths, one JSON line each
    python perf/bench_replay.py --nodes 1000 --rounds 9
    python perf/bench_replay.py --plan                 planning: ResNet-110 with gradients, a chain of 10⁵ nodes

Lines: `replay` is seconds per node of a whole forward pass, pushed and waited for, in segments as the executor cuts them;
`inside` is seconds per node of the segment's own loop. A promise is held against `inside`: at most 1 µs.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import common


def nothing(run: Any) -> None:
    """A kernel that does nothing, bound to its arrays."""


def chain(mx: Any, nodes: int) -> Any:
    """x + 1 + 1 + ..."""
    y = mx.sym.Variable("x")
    for _ in range(nodes):
        y = y + 1
    return y


def replay(nodes: int, rounds: int) -> None:
    """Print the two lines for a chain of this many nodes."""
    import tritium as mx
    from tritium import engine
    from tritium.graph import options

    with options(fuse=False):
        executor = chain(mx, nodes).simple_bind(mx.cpu(), "null", x=(8,))
    executor.forward()[0].asnumpy()
    compiled = executor._compile(False)
    for segment in compiled.forward:
        segment.ready = [nothing] * len(segment.ready)
    whole = common.rounds_of(executor.forward, calls=max(1, 20_000 // nodes), rounds=rounds,
                             finish=engine.current().wait_for_all)
    common.emit("replay", [s / nodes for s in whole], nodes=nodes, segments=len(compiled.forward), **common.machine())

    def inside() -> None:
        for segment in compiled.forward:
            segment.run(None)

    alone = common.rounds_of(inside, calls=max(1, 100_000 // nodes), rounds=rounds)
    common.emit("inside", [s / nodes for s in alone], nodes=nodes, **common.machine())


def planning() -> None:
    """Print how long it takes to compile ResNet-110 with gradients and a chain of 10⁵ nodes, without allocating arrays."""
    import tritium as mx
    from tritium.graph import compile as compiling
    from tritium.graph.options import current
    from tritium.graph.program import specs_of
    from tritium.graph.symbol.node import topological

    for name, symbol, shapes in (("resnet110", resnet(mx, 110), {"data": (128, 3, 32, 32)}),
                                 ("chain", chain(mx, 100_000), {"x": (8, 8)})):
        start = time.perf_counter()
        order = topological(n for n, _ in symbol._outputs)
        specs = specs_of(order, shapes, {})
        inferred = time.perf_counter() - start
        reqs = {n: "write" for n in symbol.list_arguments() if n not in ("data", "softmax_label")}
        start, processor = time.perf_counter(), time.process_time()
        program, plan = compiling.compile_program(symbol._outputs, specs, True, reqs, current())
        seconds, processor = time.perf_counter() - start, time.process_time() - processor
        common.say({"bench": "plan", "net": name, "steps": len(program.steps), "infer_s": round(inferred, 3),
                    "compile_s": round(seconds, 3), "processor_s": round(processor, 3),
                    "over_bound": round(plan.planned_bytes / plan.lower_bound_bytes, 4)})


def resnet(mx: Any, depth: int, filters: tuple[int, ...] = (16, 16, 32, 64)) -> Any:
    """The CIFAR ResNet with pre-activation, depth = 6 n + 2."""
    sym = mx.sym
    x = sym.Convolution(sym.Variable("data"), num_filter=filters[0], kernel=(3, 3), pad=(1, 1), no_bias=True)
    for stage in range(3):
        for unit in range((depth - 2) // 6):
            stride = (2, 2) if stage and not unit else (1, 1)
            a = y = sym.Activation(sym.BatchNorm(x, fix_gamma=False), act_type="relu")
            for k, step in enumerate((stride, (1, 1))):
                y = sym.Convolution(y, num_filter=filters[stage + 1], kernel=(3, 3), stride=step, pad=(1, 1), no_bias=True)
                if not k:
                    y = sym.Activation(sym.BatchNorm(y, fix_gamma=False), act_type="relu")
            x = y + (x if unit else sym.Convolution(a, num_filter=filters[stage + 1], kernel=(1, 1), stride=stride, no_bias=True))
    x = sym.Activation(sym.BatchNorm(x, fix_gamma=False), act_type="relu")
    x = sym.Flatten(sym.Pooling(x, global_pool=True, kernel=(7, 7), pool_type="avg"))
    return sym.SoftmaxOutput(sym.FullyConnected(x, num_hidden=10), name="softmax")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="1000,10000", help="lengths of the chain, separated by commas")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--plan", action="store_true", help="measure planning instead")
    a = parser.parse_args()
    if a.plan:
        planning()
        return
    for nodes in a.nodes.split(","):
        replay(int(nodes), a.rounds)


if __name__ == "__main__":
    main()
