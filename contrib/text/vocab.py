"""`mx.contrib.text.vocab`: tokens and their indices."""

from ...train.vocabulary import UNKNOWN_INDEX as UNKNOWN_INDEX
from ...train.vocabulary import Vocabulary as Vocabulary
