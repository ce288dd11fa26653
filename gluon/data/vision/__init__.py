"""Datasets of images, and transforms."""
