"""`mx.metric`: all metrics, and `create`, which makes one from its name."""

from __future__ import annotations

from .base import CompositeEvalMetric, CustomMetric, EvalMetric, alias, check_label_shapes, create, register
from .base import from_function as np
from .classification import F1, MCC, PCC, Accuracy, CrossEntropy, NegativeLogLikelihood, Perplexity, TopKAccuracy
from .regression import MAE, MSE, RMSE, Caffe, Loss, PearsonCorrelation, Torch

__all__ = [
    "Accuracy", "Caffe", "CompositeEvalMetric", "CrossEntropy", "CustomMetric", "EvalMetric", "F1", "Loss", "MAE", "MCC",
    "MSE", "NegativeLogLikelihood", "PCC", "PearsonCorrelation", "Perplexity", "RMSE", "TopKAccuracy", "Torch",
    "alias", "check_label_shapes", "create", "np", "register",
]
