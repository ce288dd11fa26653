"""Symbols: graphs as values, their names, their JSON and the operators of mx.sym."""
