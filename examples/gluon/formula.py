"""Data and weights without random generators: numbers that look random, computed from their index."""

import numpy as np


def noise(shape, seed=0):
    """Return float32 numbers between -1 and 1 of a shape; another seed gives others."""
    with np.errstate(over="ignore"):
        x = np.arange(int(np.prod(shape)), dtype=np.uint32) * np.uint32(2654435761) + np.uint32(seed * 97 + 13)
        for _ in range(2):
            x = (x ^ (x >> np.uint32(16))) * np.uint32(0x45D9F3B)
    return ((x ^ (x >> np.uint32(16))) / 2.0**31 - 1).astype("float32").reshape(shape)


def fill(net, array, scale=1.0):
    """Set all weights, and all beta, of an initialized network whose shapes are known; array makes an NDArray.

    scale: of the weights, next to the square root of 3 over their number of inputs.
    """
    for seed, (name, p) in enumerate(net.collect_params().items()):
        if name.endswith("weight"):
            p.set_data(array(noise(p.shape, seed) * np.float32(scale * np.sqrt(3 / np.prod(p.shape[1:])))))
        elif name.endswith("beta"):  # not 0, where the derivative of a rectifier jumps
            p.set_data(array(noise(p.shape, seed) * np.float32(0.3)))


def classes_of(x, count, seed=100):
    """Return a class for each item of x, as float32: the largest of `count` fixed projections."""
    flat = x.reshape(len(x), -1)
    return (flat @ noise((flat.shape[1], count), seed)).argmax(axis=1).astype("float32")
