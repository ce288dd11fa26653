"""Contributed convolutional layers: `mx.gluon.contrib.cnn`."""

from .conv_layers import DeformableConvolution as DeformableConvolution
from .conv_layers import ModulatedDeformableConvolution as ModulatedDeformableConvolution
