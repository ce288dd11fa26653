"""gluon.data's DataLoader with two worker processes beside MXNet's, and beam search by small steps.

    python perf/bench_gluon_data.py [--mxnet PYTHON] [--case TEXT] [--pairs 3]

A case of the loader is an epoch over images in memory: float32 arrays of 3 x 32 x 32 and 3 x 224 x 224 that are only stacked and
sent to this process, and uint8 images of 32 x 32 with transforms, which both packages compute by operators. `beam search` is the
one of examples/gluon/seq2seq_attention.py: 3 sentences, 4 beams, hybridized and not.
"""

from __future__ import annotations

import argparse
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import numpy as np

EXAMPLES = Path(__file__).parents[1] / "examples" / "gluon"


def loaders(mx: Any) -> dict[str, Callable[[], Any]]:
    """{case: a loader with two processes}."""
    data, transforms = mx.gluon.data, mx.gluon.data.vision.transforms
    rng = np.random.default_rng(0)
    small, large = rng.random((2048, 3, 32, 32), np.float32), rng.random((96, 3, 224, 224), np.float32)
    images = mx.nd.array(rng.integers(0, 256, (1024, 32, 32, 3)), dtype="uint8")
    labels = np.arange(2048, dtype="int32")
    tensor = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))])
    augment = transforms.Compose([transforms.RandomResizedCrop(28), transforms.RandomFlipLeftRight(), transforms.ToTensor(),
                                  transforms.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))])

    def made(dataset: Any, batch_size: int) -> Callable[[], Any]:
        return lambda: data.DataLoader(dataset, batch_size=batch_size, num_workers=2)

    return {
        "loader: stack 128 of 3x32x32": made(data.ArrayDataset(small, labels), 128),
        "loader: stack 16 of 3x224x224": made(data.ArrayDataset(large, labels[:96]), 16),
        "loader: tensor of 32x32": made(data.ArrayDataset(images, labels[:1024]).transform_first(tensor), 64),
        "loader: augment 32x32": made(data.ArrayDataset(images, labels[:1024]).transform_first(augment), 64),
    }


def epoch_of(loader: Any) -> Callable[[], None]:
    def epoch() -> None:
        for parts in loader:
            for part in parts:
                part.wait_to_read()
    return epoch


def beam_search(package: str, hybrid: bool) -> Callable[[], Any]:
    """The beam search of the example, with its own first weights."""
    sys.path.insert(0, str(EXAMPLES))
    text = (EXAMPLES / "seq2seq_attention.py").read_text()
    module = types.ModuleType("seq2seq")
    exec(compile(re.sub(r"\btritium\b", package, text), "seq2seq_attention.py", "exec"), module.__dict__)
    encoder, decoder = module.Encoder(), module.Decoder()
    for net in (encoder, decoder):
        net.initialize()
        module.fill(net, module.mx.nd.array)
        if hybrid:
            net.hybridize()
    sentences = np.arange(15).reshape(3, 5) % 10
    return lambda: module.beam_search(encoder, decoder, sentences)


def here(package: str, case: str) -> None:
    """Measure the cases whose name contains `case` in this process."""
    mx = __import__(package)
    for name, make in loaders(mx).items():
        if case in name:
            common.emit("gluon_data", common.rounds_of(epoch_of(make()), calls=2, warmup=1), case=name, package=package)
    for hybrid in (False, True):
        name = f"beam search{', hybridized' if hybrid else ''}"
        if case in name:
            common.emit("gluon_data", common.rounds_of(beam_search(package, hybrid), calls=20), case=name, package=package)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mxnet", metavar="PYTHON", help="an interpreter that has MXNet")
    parser.add_argument("--case", default="", metavar="TEXT", help="only cases whose name contains this")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--here", metavar="PACKAGE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        here(given.here, given.case)
        return
    common.say(common.machine())
    ours: dict[str, list[dict[str, Any]]] = {}
    peers: dict[str, list[dict[str, Any]]] = {}
    for _ in range(given.pairs if given.mxnet else 1):
        for package, python, lines in (("tritium", sys.executable, ours), ("mxnet", given.mxnet, peers)):
            for line in common.run_peer(python, __file__, "--here", package, "--case", given.case) if python else ():
                lines.setdefault(line["case"], []).append(line)
    for case in ours.keys() & peers.keys():
        common.ratio("gluon_data", ours[case], peers[case], case=case)


if __name__ == "__main__":
    main()
