"""`mx.contrib.text.utils`: count tokens."""

from ...train.vocabulary import count_tokens_from_str as count_tokens_from_str
