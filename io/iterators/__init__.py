"""The iterators of mx.io."""
