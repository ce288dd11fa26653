"""mx.viz: the summary's numbers, the drawing's labels."""

import pytest
import tritium as mx
from tritium.errors import GraphError, MissingLibraryError


def net():
    x = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=4, name="conv")
    x = mx.sym.Activation(mx.sym.BatchNorm(x, name="bn"), act_type="relu", name="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=10, name="fc"), name="softmax")


def test_summary(capsys):
    mx.viz.print_summary(net(), {"data": (1, 3, 8, 8)})
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split("(")[0]: line for line in lines}
    assert lines[1] == "Layer (type)".ljust(52) + "Output Shape".ljust(24) + "Param #".ljust(12) + "Previous Layer".ljust(32)
    assert rows["conv"] == "conv(Convolution)".ljust(52) + "4x6x6".ljust(24) + "112".ljust(12) + "data".ljust(32)
    assert lines[2] == "=" * 120 and lines[4] == "_" * 120 and lines[-3] == "=" * 120  # as MXNet rules its lines
    assert " 8 " in rows["bn"] and " 1450 " in rows["fc"] and "Total params: 1570" in lines
    mx.viz.print_summary(net())
    with pytest.raises(GraphError, match=r"print_summary: the shape of data cannot be inferred"):
        mx.viz.print_summary(net(), {"data": (0, 3, 8, 8)})


def test_a_shared_weight_counts_once(capsys):
    w = mx.sym.Variable("w")
    x = mx.sym.FullyConnected(mx.sym.Variable("data"), weight=w, num_hidden=4, no_bias=True, name="a")
    x = mx.sym.FullyConnected(x, weight=w, num_hidden=4, no_bias=True, name="b")
    mx.viz.print_summary(x, {"data": (2, 4)})
    assert "Total params: 16" in capsys.readouterr().out


def test_plot(tmp_path):
    drawing = mx.viz.plot_network(net(), title="net", shape={"data": (1, 3, 8, 8)})
    assert "4x6x6" in drawing.svg and "conv_weight" not in drawing.svg and "Convolution 3x3 4" in drawing.svg
    assert "conv_weight" in mx.viz.plot_network(net(), hide_weights=False)._repr_svg_()
    drawing.format = "svg"
    assert drawing.render("net", str(tmp_path)) == str(tmp_path / "net.svg") and (tmp_path / "net.svg").read_text() == drawing.svg
    assert (tmp_path / "net").read_text() == drawing.source
    drawing.save(str(tmp_path / "own.svg"))
    assert (tmp_path / "own.svg").read_text() == drawing.svg
    with pytest.raises(GraphError, match=r"plot_network: int is not a Symbol"):
        mx.viz.plot_network(3)


#: Printed by MXNet 1.9.1 with the package graphviz 0.8.4.
SOURCE = """digraph "my net" {
\tdata [label=data fillcolor="#8dd3c7" fixedsize=true height=0.8034 shape=oval style=filled width=1.3]
\tc [label="Convolution
3x3/1, 4" fillcolor="#fb8072" fixedsize=true height=0.8034 shape=box style=filled width=1.3]
\tsm [label=sm fillcolor="#fccde5" fixedsize=true height=0.8034 shape=box style=filled width=1.3]
\tc -> data [label="3x8x8" arrowtail=open dir=back]
\tsm -> c [label="4x6x6" arrowtail=open dir=back]
}"""


def test_the_source_is_that_of_mxnet():
    x = mx.sym.softmax(mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), num_filter=4, name="c"), name="sm")
    assert mx.viz.plot_network(x, title="my net", shape={"data": (1, 3, 8, 8)}).source == SOURCE


def test_other_formats_than_svg_need_graphviz(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingLibraryError, match="plot_network: pdf is drawn by Graphviz"):
        mx.viz.plot_network(net()).render(str(tmp_path / "net"))
