"""The picture of a recording. Oracle: boxes written down, and the places they must have."""

import re
from types import SimpleNamespace

import pytest
import tritium as mx
from tritium.engine.profiler.picture import draw

MS = 1_000_000


def operation(name, thread, start, end, layer=""):
    return SimpleNamespace(name=name, thread=thread, start=start * MS, end=end * MS, layer=layer)


def part(name, thread, start, end, run):
    return name, thread, start * MS, end * MS, 1, (run[0], run[1] * MS)


PARTS = [part("conv (Convolution)", 7, 0, 4, (7, 0)), part("conv_backward (_backward_Convolution)", -1, 6, 9, (7, 0))]
RAN = [operation("net forward", 7, 0, 9), operation("copy", 8, 9, 10, "a<b>")]


def boxes(svg):
    found = re.findall(r'<rect x="([\d.]+)" y="(\d+)" width="([\d.]+)" height="21" rx="1" fill="(#\w+)"><title>(.*?):', svg)
    return {name: (float(x), int(y), float(width), colour) for x, y, width, colour, name in found}


def test_kernels_have_their_places_and_an_operation_of_kernels_is_drawn_as_those():
    picture = draw(RAN, PARTS, None, {7: "worker", -1: "helper"})
    assert str(picture) == "Timeline(3 kernels on 3 threads, 10.000 ms)"
    found = boxes(picture.svg())
    first, last, copied = found["conv (Convolution)"], found["conv_backward (_backward_Convolution)"], found["copy"]
    assert (first[0], first[2]) == (150, 336) and (last[0], last[2]) == (654, 252) and (copied[0], copied[2]) == (906, 84)
    assert first[3] == last[3] != copied[3]  # one layer has one colour
    assert (first[1], copied[1], last[1]) == (26, 52, 78)  # threads in C are below the others
    assert ">worker<" in picture.svg() and ">helper<" in picture.svg() and ">thread 8<" in picture.svg()
    assert "conv, 7.000 ms" in picture.svg() and "a&lt;b&gt;, 1.000 ms" in picture.svg() and "<b>" not in picture.svg()


def test_the_end_of_a_recording():
    picture = draw(RAN, PARTS, 2.5, {})
    assert [(b.name.partition(" ")[0], (b.end - b.start) / MS) for b in picture.boxes] == [("conv_backward", 1.5), ("copy", 1.0)]


def test_a_large_recording_leaves_out_the_shortest():
    many = draw([operation(f"op{i}", 1, 2 * i, 2 * i + (2 if i == 4200 else 1)) for i in range(4500)], [], None, {})
    assert len(many.boxes) == 4000 and many.left_out == 500 and any(b.name == "op4200" for b in many.boxes)
    assert "500 shorter ones are not drawn" in many.svg()


def test_an_empty_recording():
    assert "<svg" in draw([], [], None, {}).svg()


def test_a_recording_of_work(tmp_path):
    mx.profiler.set_config(filename=str(tmp_path / "profile.json"))
    a = mx.nd.ones((300, 300))
    mx.nd.dot(a, a).wait_to_read()
    mx.profiler.set_state("run")
    mx.nd.dot(a, a).wait_to_read()
    mx.profiler.set_state("stop")
    picture = mx.profiler.timeline()
    mx.profiler.dumps(reset=True)
    assert [b.name for b in picture.boxes] == ["dot"] and "<script" not in picture._repr_html_()
    picture.save(str(tmp_path / "step.svg"))
    assert (tmp_path / "step.svg").read_text().startswith("<svg viewBox=")
    with pytest.raises(mx.errors.FileError):
        picture.save(str(tmp_path / "no" / "folder" / "step.svg"))
