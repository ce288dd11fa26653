"""Operators of object detection and spatial sampling."""
