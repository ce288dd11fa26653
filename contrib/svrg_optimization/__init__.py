"""`mx.contrib.svrg_optimization`: training with stochastic variance-reduced gradients."""

from . import svrg_module as svrg_module
from .svrg_module import SVRGModule as SVRGModule
