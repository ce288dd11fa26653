"""Images and record files for the tests of tritium.io."""

import numpy as np
from tritium import recordio
from tritium.io.image.codec import encode


def picture(number, height=40, width=50, channels=3):
    """A smooth picture that no other number has, uint8[height, width(, 3)]."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [(np.sin(x / (5 + number % 7) + c) + np.cos(y / (4 + number % 5)) + 2) * 60 + number % 13 for c in range(channels)]
    pixels = np.stack(planes, axis=2).clip(0, 255).astype(np.uint8)
    return pixels[:, :, 0] if channels == 1 else pixels


def write_records(path, payloads, labels=None):
    """A record file of payloads (encoded images); record i has id i and, unless given, the label i. Offsets int64[N]."""
    offsets = []
    with recordio.MXRecordIO(path, "w") as records:
        for i, payload in enumerate(payloads):
            offsets.append(records.tell())
            label = float(i) if labels is None else labels[i]
            records.write(recordio.pack(recordio.IRHeader(0, label, i, 0), payload))
    return offsets


def write_pictures(path, count, height=40, width=50, form=".jpg", quality=90):
    """A record file of `count` pictures; their offsets."""
    return write_records(path, [encode(picture(i, height, width), quality if form == ".jpg" else 1, form) for i in range(count)])
