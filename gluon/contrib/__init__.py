"""Parts of gluon that MXNet calls experimental."""

from . import cnn as cnn
from . import nn as nn
