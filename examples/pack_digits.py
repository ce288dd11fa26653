"""Write digits.rec and digits.idx from scikit-learn's copy of the UCI handwritten digits.

    python -m tritium.examples.pack_digits FOLDER

Needs scikit-learn. The bundled files were written by this program; it writes the same bytes again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from ..io.records.recordio import IRHeader, MXIndexedRecordIO, pack


def write_digits(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    """Write a record for each image: label and number in the header, then 64 pixels as bytes 0 to 16, row by row.

    folder:  created if it does not exist.
    images:  integers [N, 8, 8].
    labels:  [N].
    """
    folder.mkdir(parents=True, exist_ok=True)
    with MXIndexedRecordIO(folder / "digits.idx", folder / "digits.rec", "w") as records:
        for number, (image, label) in enumerate(zip(images, labels)):
            header = IRHeader(0, float(label), number, 0)
            records.write_idx(number, pack(header, image.astype(np.uint8).tobytes()))


def main() -> None:
    """Write both files to the folder named on the command line."""
    from sklearn.datasets import load_digits  # optional dependency

    digits = load_digits()
    write_digits(Path(sys.argv[1]), digits.images, digits.target)


if __name__ == "__main__":
    main()
