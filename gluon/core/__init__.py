"""Blocks and their parameters: what `mx.gluon.block` and `mx.gluon.parameter` name."""
