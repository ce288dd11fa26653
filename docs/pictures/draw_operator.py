"""Draw operator.svg, the README's picture: an operator's formula, and the code that follows from it.

    python docs/pictures/draw_operator.py

`tests/test_readme.py` fails where the file is not what this program draws.
"""

import inspect
from html import escape
from pathlib import Path

from tritium import Float, simple_op
from tritium.lang import exp

FILE = Path(__file__).with_name("operator.svg")
SIZE, LINE, MARGIN = 12, 16, 14  # of the text, in pixels
STYLE = """
text { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 12px; }
text { fill: #1f2328; }
.title { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 13px; font-weight: 600; }
.panel { fill: #f6f8fa; stroke: #d1d9e0; } .own { fill: #ddf4ff; stroke: #54aeff; } .arrow { stroke: #59636e; fill: none; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; } .panel { fill: #151b23; stroke: #3d444d; } .own { fill: #0c2d4d; stroke: #388bfd; }
  .arrow { stroke: #9198a1; }
}
"""


@simple_op
def swish(x: Float) -> Float:
    return x / (1 + exp(-x))


def panels() -> dict[str, tuple[str, list[str]]]:
    """Return the texts by place: (title, lines)."""
    triton = swish.triton_source((4096, 1024)).splitlines()
    start = next(i for i, line in enumerate(triton) if "def k_" in line) - 1
    end = next(i for i, line in enumerate(triton) if line.strip() == "else:")
    c = swish.cpu_source((4096, 1024), code="c").splitlines()
    first = max(i for i, line in enumerate(c) if line.startswith("void kernel_"))
    return {
        "formula": ("You write the formula", inspect.getsource(swish.body).splitlines()),
        "gradient": ("Its gradient is derived", swish.gradient_source().rstrip().splitlines()),
        "triton": ("The kernel for the GPU: Triton", [*triton[start:end], "    else: ...  # the last block, masked"]),
        "c": ("The kernel for the CPU: C", ["void swish(void *const *arrays, int64_t begin, int64_t end)",
                                            *c[first + 1:]]),
    }


def panel(x: float, y: float, width: float, title: str, lines: list[str], kind: str) -> tuple[str, float]:
    """Return the drawing of a panel at (x, y), and its height."""
    height = 2 * MARGIN + LINE * (len(lines) + 1) + 2
    rows = [f'<text x="{x + MARGIN}" y="{y + MARGIN + 8}" class="title">{escape(title)}</text>']
    rows += [f'<text x="{x + MARGIN}" y="{y + MARGIN + 12 + LINE * (i + 1)}" xml:space="preserve">{escape(line)}</text>'
             for i, line in enumerate(lines)]
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>' + "\n".join(rows), height


def draw() -> str:
    """Return the picture as SVG."""
    texts = panels()
    wide = {name: max(len(line) for line in lines) * SIZE * 0.602 + 2 * MARGIN for name, (_, lines) in texts.items()}
    left, right = max(wide["formula"], wide["gradient"], wide["triton"]), wide["c"]
    parts, y = [], 8.0
    for name in ("formula", "gradient", "triton"):
        drawn, height = panel(8, y, left, *texts[name], kind="own" if name == "formula" else "panel")
        parts.append(drawn)
        y += height + 18
        if name != "triton":
            parts.append(f'<path class="arrow" d="M{8 + left / 2} {y - 16} v12 m-4 -4 l4 4 l4 -4"/>')
    drawn, height = panel(left + 34, 8, right, *texts["c"], kind="panel")
    parts += [drawn, f'<path class="arrow" d="M{left + 12} 40 h18 m-4 -4 l4 4 l-4 4"/>']
    total = left + right + 42, max(y - 10, height + 16)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total[0]:.0f} {total[1]:.0f}" width="{total[0]:.0f}" '
            f'height="{total[1]:.0f}" role="img"><title>An operator as a formula, its gradient, and its kernels</title>'
            f'<style>{STYLE}</style>\n' + "\n".join(parts) + "\n</svg>\n")


if __name__ == "__main__":
    FILE.write_text(draw(), encoding="utf-8")
