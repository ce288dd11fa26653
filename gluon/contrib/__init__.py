"""Parts of gluon that MXNet calls experimental."""
