"""Loading data: transforms, worker processes and threads, a batch function of one's own, the last batch, an error in a sample."""

import numpy as np
import tritium as mx
from formula import noise
from tritium import gluon
from tritium.gluon.data import ArrayDataset, DataLoader
from tritium.gluon.data.vision import transforms


def pad(samples):
    """Return the rows of a batch, padded with zeros to the longest, and their lengths."""
    lengths = [len(s) for s in samples]
    rows = np.zeros((len(samples), max(lengths)), "float32")
    for row, sample in zip(rows, samples):
        row[:len(sample)] = sample
    return mx.nd.array(rows), mx.nd.array(lengths)


class Broken(gluon.data.Dataset):
    """A data set with one bad sample."""

    def __len__(self):
        return 8

    def __getitem__(self, idx):
        if idx == 5:
            raise ValueError("the file of this sample is empty")
        return np.float32(idx)


def main():
    images = ((noise((20, 16, 16, 3)) + 1) * 127).astype("uint8")
    labels = np.arange(20) % 4
    preprocess = transforms.Compose([transforms.Resize(12), transforms.CenterCrop(10), transforms.ToTensor(),
                                     transforms.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))])
    data = ArrayDataset(mx.nd.array(images, dtype="uint8"), labels).transform_first(preprocess)
    for given in ({}, {"num_workers": 2}, {"num_workers": 2, "thread_pool": True}):
        loader = DataLoader(data, batch_size=8, last_batch="keep", **given)
        for _ in range(2):
            sums = [(x.shape[0], float(x.sum().asscalar()), int(y.sum().asscalar())) for x, y in loader]
        print(given, *(f"{n} {s:.2f} {y}" for n, s, y in sums))
    texts = [noise((3 + i % 5,), i) for i in range(10)]
    for rows, lengths in DataLoader(texts, batch_size=4, batchify_fn=pad, num_workers=2, last_batch="discard"):
        print(rows.shape, lengths.asnumpy().astype(int).tolist(), f"{rows.sum().asscalar():.3f}")
    loader = DataLoader(list(range(7)), batch_size=3, last_batch="rollover")
    print([[b.asnumpy().tolist() for b in loader] for _ in range(2)])
    try:
        for _ in DataLoader(Broken(), batch_size=2, num_workers=1):
            print("a batch")
    except ValueError as e:
        print("error:", e)


if __name__ == "__main__":
    main()
