"""Estimator, which trains a network, and its event handlers."""

from . import batch_processor as batch_processor
from . import estimator as estimator
from . import event_handler as event_handler
from .batch_processor import BatchProcessor as BatchProcessor
from .estimator import Estimator as Estimator
from .event_handler import BatchBegin as BatchBegin
from .event_handler import BatchEnd as BatchEnd
from .event_handler import EpochBegin as EpochBegin
from .event_handler import EpochEnd as EpochEnd
from .event_handler import GradientUpdateHandler as GradientUpdateHandler
from .event_handler import LoggingHandler as LoggingHandler
from .event_handler import MetricHandler as MetricHandler
from .event_handler import StoppingHandler as StoppingHandler
from .event_handler import TrainBegin as TrainBegin
from .event_handler import TrainEnd as TrainEnd
from .event_handler import ValidationHandler as ValidationHandler
from .monitor_handler import CheckpointHandler as CheckpointHandler
from .monitor_handler import EarlyStoppingHandler as EarlyStoppingHandler
