"""The networks of networks.py in PyTorch."""

from __future__ import annotations

from networks import CLASSES, HIDDEN, STEPS, WORDS
from torch import nn, stack


class Unit(nn.Module):
    """A unit of ResNet-20, with pre-activation."""

    def __init__(self, before, filters, stride):
        super().__init__()
        self.first = nn.Sequential(nn.BatchNorm2d(before), nn.ReLU(inplace=True))
        self.rest = nn.Sequential(nn.Conv2d(before, filters, 3, stride, 1, bias=False), nn.BatchNorm2d(filters),
                                  nn.ReLU(inplace=True), nn.Conv2d(filters, filters, 3, 1, 1, bias=False))
        self.aside = nn.Conv2d(before, filters, 1, stride, bias=False) if stride > 1 else None

    def forward(self, x):
        a = self.first(x)
        return self.rest(a) + (x if self.aside is None else self.aside(a))


class Bottleneck(nn.Module):
    """A unit of ResNet-50."""

    def __init__(self, before, filters, stride):
        super().__init__()
        after = 4 * filters
        self.rest = nn.Sequential(nn.Conv2d(before, filters, 1, bias=False), nn.BatchNorm2d(filters), nn.ReLU(inplace=True),
                                  nn.Conv2d(filters, filters, 3, stride, 1, bias=False), nn.BatchNorm2d(filters),
                                  nn.ReLU(inplace=True), nn.Conv2d(filters, after, 1, bias=False), nn.BatchNorm2d(after))
        self.aside = None if before == after else nn.Sequential(
            nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        return (self.rest(x) + (x if self.aside is None else self.aside(x))).relu_()


class Repeated(nn.Module):
    """Small elementwise operators, two hundred of them."""

    def __init__(self, tanh):
        super().__init__()
        self.tanh = tanh

    def forward(self, x):
        for _ in range(100):
            x = (x * 1.01 + 0.01).tanh() if self.tanh else x * 1.001 + 0.001
        return x


class LanguageModel(nn.Module):
    """Two LSTM layers, fused or cell by cell."""

    def __init__(self, fused):
        super().__init__()
        self.embed, self.out = nn.Embedding(WORDS, HIDDEN), nn.Linear(HIDDEN, WORDS)
        self.layers = nn.LSTM(HIDDEN, HIDDEN, 2, batch_first=True) if fused else None
        self.cells = None if fused else nn.ModuleList([nn.LSTMCell(HIDDEN, HIDDEN) for _ in range(2)])

    def forward(self, x):
        x = self.embed(x)
        if self.layers is not None:
            return self.out(self.layers(x)[0].flatten(0, 1))
        outputs, states = [], [None] * 2
        for step in range(STEPS):
            y = x[:, step]
            for i, cell in enumerate(self.cells):
                states[i] = cell(y, states[i])
                y = states[i][0]
            outputs.append(y)
        return self.out(stack(outputs, 1).flatten(0, 1))


def layers(net):
    """Return the layers of a network."""
    if net == "mlp":
        return [nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, CLASSES)]
    if net == "lenet":
        return [nn.Conv2d(1, 20, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.Tanh(), nn.MaxPool2d(2),
                nn.Flatten(), nn.Linear(800, 500), nn.Tanh(), nn.Linear(500, CLASSES)]
    if net.startswith("lstm"):
        return [LanguageModel(net == "lstm")]
    if net == "resnet20":
        units = [Unit(b, f, s) for b, f, s in ((16, 16, 1), (16, 16, 1), (16, 16, 1), (16, 32, 2), (32, 32, 1), (32, 32, 1),
                                               (32, 64, 2), (64, 64, 1), (64, 64, 1))]
        return [nn.Conv2d(3, 16, 3, 1, 1, bias=False), *units, nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                nn.Flatten(), nn.Linear(64, CLASSES)]
    if net == "resnet50":
        units, before = [], 64
        for stage, number in enumerate((3, 4, 6, 3)):
            for unit in range(number):
                units.append(Bottleneck(before, 64 << stage, 2 if stage and not unit else 1))
                before = 256 << stage
        return [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *units,
                nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, CLASSES)]
    return [nn.Flatten(), nn.Linear(64, 32), Repeated(net == "tiny_deep"), nn.Linear(32, CLASSES)]
