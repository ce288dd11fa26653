"""`mx.contrib.text`: vocabularies, and embeddings of tokens from local files."""

from . import embedding as embedding
from . import utils as utils
from . import vocab as vocab
