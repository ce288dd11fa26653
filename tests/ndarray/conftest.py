"""Fixtures of this folder."""

from support.lagging_devices import devices as devices
