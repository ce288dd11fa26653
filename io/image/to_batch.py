"""BatchRowWriter: writes an image into its row of a batch: resize, mirror, normalise, and separate the channels.

Where possible one C function does all of it for float32 and uint8 (`to_batch_c.py`). Otherwise each channel is normalised by
a table of 256 results, since a pixel has 256 values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import ParameterError
from .codec import opencv
from .record_augmenter import Draw, between
from .to_batch_c import CRowWriter, row_writer

_LEVELS = np.arange(256, dtype=np.float32)
_BY_OPENCV = ("float32", "float64", "int32", "int8")
_Light = tuple[np.float32, np.float32]  # contrast, illumination
_UNCHANGED = np.float32(1), np.float32(0)


class BatchRowWriter:
    """Writes uint8[any, any, channels] as dtype[channels, height, width], resized bilinearly if needed.

    Floating dtypes:  (pixel - mean) * scale * contrast / std + illumination * scale / std, computed in float32.
    int8:             pixel - mean, clipped to -128 .. 127.   uint8: the pixel.   As in MXNet.
    mean, std:        per channel.
    mean_image:       float32[channels, height, width]; replaces mean.
    divide:           divide by std instead of multiplying by its inverse: the last bit differs (as in MXNet's detection).
    contrast is drawn from 1 ± max_random_contrast, illumination from ± max_random_illumination.
    """

    def __init__(self, dtype: np.dtype, shape: tuple[int, int, int], mean: Sequence[float], std: Sequence[float], scale: float,
                 mirror: bool, rand_mirror: bool, max_random_contrast: float, max_random_illumination: float,
                 mean_image: np.ndarray | None = None, divide: bool = False):
        self._by_opencv = dtype.name in _BY_OPENCV
        self.divide, self.dtype, self.mirror, self.rand_mirror = divide, dtype, mirror, rand_mirror
        if min(std) <= 0:
            raise ParameterError(f"ImageRecordIter: a standard deviation is {min(std)}. Give more than 0.")
        self._mean, self._std = np.asarray(mean, np.float32), np.asarray(std, np.float32)
        self._scale = np.float32(scale)
        self._contrast, self._illumination = max_random_contrast, max_random_illumination
        self._image = mean_image
        self._tables = self._make_tables(_UNCHANGED)
        c_applies = dtype.name in ("float32", "uint8") and shape[0] == 3 and mean_image is None and not divide
        self._write_in_c: CRowWriter | None = row_writer() if c_applies else None
        self._flat = self._flat_factors(_UNCHANGED)

    @property
    def is_random(self) -> bool:
        """True if it takes random numbers."""
        return bool(self.rand_mirror or self._contrast or self._illumination)

    def __call__(self, pixels: np.ndarray, row: np.ndarray, draw: Draw) -> None:
        """Write pixels of any size to row."""
        mirrored, light = self.mirror or (self.rand_mirror and draw() < 0.5), _UNCHANGED
        if self._contrast or self._illumination:
            light = (np.float32(1 + between(draw, -self._contrast, self._contrast)),
                     np.float32(between(draw, -self._illumination, self._illumination)))
        if self._write_in_c is not None:
            flat = self._flat if light is _UNCHANGED else self._flat_factors(light)
            if self._write_in_c(pixels, row, mirrored, flat):
                return
        self._write_in_steps(pixels, row, mirrored, light)

    def _write_in_steps(self, pixels: np.ndarray, row: np.ndarray, mirrored: bool, light: _Light) -> None:
        cv2 = opencv("ImageRecordIter")
        _, height, width = row.shape
        if pixels.shape[:2] != (height, width):
            resized = np.empty((height, width, pixels.shape[2]), np.uint8)
            cv2.resize(pixels, (width, height), resized, interpolation=cv2.INTER_LINEAR)
            pixels = resized
        planes = self._planes(pixels, mirrored, row if self.dtype == np.uint8 else None)
        if self.dtype == np.uint8:
            return
        if self._image is not None:
            image = self._image[:, :, ::-1] if mirrored else self._image
            factor, bias = self._factors(light)
            row[...] = (planes - image) * factor[:, None, None] + bias[:, None, None]
            return
        for plane, out, table in zip(planes, row, self._tables if light is _UNCHANGED else self._make_tables(light)):
            if self._by_opencv:
                cv2.LUT(plane, table, out)
            else:
                table.take(plane, out=out, mode="clip")

    def _planes(self, pixels: np.ndarray, mirrored: bool, out: np.ndarray | None) -> np.ndarray:
        """Return the channels of pixels as uint8[channels, height, width], in out if it is given.

        OpenCV gets the memory to write to: to allocate an array it would take the GIL.
        """
        height, width, channels = pixels.shape
        shape = channels, height, width
        assert out is None or out.shape == shape, f"{pixels.shape} does not fit into {shape}"
        cv2 = opencv("ImageRecordIter")
        split = out if out is not None and not mirrored else np.empty(shape, np.uint8)
        cv2.split(pixels, list(split))
        if not mirrored:
            return split
        flipped = np.empty(shape, np.uint8) if out is None else out
        cv2.flip(split.reshape(-1, width), 1, flipped.reshape(-1, width))
        return flipped

    def _factors(self, light: _Light) -> tuple[np.ndarray, np.ndarray]:
        contrast, illumination = light
        return contrast * self._scale / self._std, illumination * self._scale / self._std

    def _flat_factors(self, light: _Light) -> np.ndarray:
        """Return mean, factor and bias of each channel for the C function."""
        return np.concatenate([self._mean, *self._factors(light)])

    def _make_tables(self, light: _Light) -> list[np.ndarray]:
        if self.dtype == np.int8:
            return [np.clip(_LEVELS - mean, -128, 127).astype(np.int8) for mean in self._mean]
        if self.divide:
            contrast, illumination = light
            return [(((_LEVELS - mean) * contrast + illumination) / std * self._scale).astype(self.dtype)
                    for mean, std in zip(self._mean, self._std)]
        return [((_LEVELS - mean) * factor + bias).astype(self.dtype)
                for mean, factor, bias in zip(self._mean, *self._factors(light))]
