"""The cases of which record.py stores what MXNet computes: layers, losses and networks, under `mx`, which is either framework.

No random generator is used: inputs and parameters are a formula of their index.
"""

import json

import numpy as np


def noise(shape, seed=0):
    """Numbers between -1 and 1 that look random, the same everywhere: a hash of each index."""
    with np.errstate(over="ignore"):
        x = np.arange(int(np.prod(shape)), dtype=np.uint32) * np.uint32(2654435761) + np.uint32(seed * 97 + 13)
        for _ in range(2):
            x = (x ^ (x >> np.uint32(16))) * np.uint32(0x45D9F3B)
    return ((x ^ (x >> np.uint32(16))) / 2.0 ** 31 - 1).astype("float32").reshape(shape)


def fill(mx, net, scale_by_fan_in=False):
    """Give every parameter of an initialized net values by its name's end, its shape and its position."""
    for i, (name, p) in enumerate(net.collect_params().items()):
        x = noise(p.shape, i + 1)
        if name.endswith("running_var"):
            x = 1 + 0.5 * np.abs(x)
        elif name.endswith("gamma"):
            x = 1 + 0.2 * x
        elif name.endswith("weight") and scale_by_fan_in and len(p.shape) > 1:
            x = x * np.sqrt(6 / np.prod(p.shape[1:]))
        else:
            x = x * (0.1 if scale_by_fan_in else 0.5)
        p.set_data(mx.nd.array(x.astype("float32")))


def layers(mx):
    """Name -> (function that makes the layer, shapes of the inputs)."""
    nn, contrib, cnn = mx.gluon.nn, mx.gluon.contrib.nn, mx.gluon.contrib.cnn

    def stack(kind, *blocks):
        def make():
            net = kind()
            with net.name_scope():
                for block in blocks:
                    net.add(block())
            return net
        return make

    image, line, cube = (2, 4, 5, 6), (2, 4, 7), (1, 2, 4, 5, 4)
    return {
        "dense": (lambda: nn.Dense(3), [(2, 5)]),
        "dense_act": (lambda: nn.Dense(3, activation="tanh", in_units=6), [(2, 2, 3)]),
        "dense_no_bias": (lambda: nn.Dense(3, use_bias=False), [(2, 5)]),
        "dense_no_flatten": (lambda: nn.Dense(3, flatten=False), [(2, 3, 5)]),
        "dropout": (lambda: nn.Dropout(0.5), [(2, 3)]),
        "dropout_zero": (lambda: nn.Dropout(0, axes=(1,)), [(2, 3)]),
        "flatten": (lambda: nn.Flatten(), [(2, 3, 4)]),
        "batchnorm": (lambda: nn.BatchNorm(), [image]),
        "batchnorm_last": (lambda: nn.BatchNorm(axis=-1, epsilon=1e-3, momentum=0.8), [(3, 4, 5)]),
        "batchnorm_fixed": (lambda: nn.BatchNorm(center=False, scale=False, in_channels=4), [image]),
        "batchnorm_global": (lambda: nn.BatchNorm(use_global_stats=True), [(3, 4)]),
        "batchnorm_relu": (lambda: nn.BatchNormReLU(), [image]),
        "instancenorm": (lambda: nn.InstanceNorm(), [image]),
        "instancenorm_last": (lambda: nn.InstanceNorm(axis=3, scale=True, epsilon=1e-3), [image]),
        "layernorm": (lambda: nn.LayerNorm(), [(3, 5)]),
        "layernorm_axis": (lambda: nn.LayerNorm(axis=1, epsilon=1e-3, scale=False, in_channels=4), [(2, 4, 3)]),
        "groupnorm": (lambda: nn.GroupNorm(), [image]),
        "groupnorm_groups": (lambda: nn.GroupNorm(num_groups=2, epsilon=1e-3, center=False), [image]),
        "activation_relu": (lambda: nn.Activation("relu"), [(3, 4)]),
        "activation_sigmoid": (lambda: nn.Activation("sigmoid"), [(3, 4)]),
        "activation_softrelu": (lambda: nn.Activation("softrelu"), [(3, 4)]),
        "activation_softsign": (lambda: nn.Activation("softsign"), [(3, 4)]),
        "leakyrelu": (lambda: nn.LeakyReLU(0.1), [(3, 4)]),
        "prelu": (lambda: nn.PReLU(), [(3, 4)]),
        "prelu_channels": (lambda: nn.PReLU(in_channels=4), [image]),
        "elu": (lambda: nn.ELU(0.7), [(3, 4)]),
        "selu": (lambda: nn.SELU(), [(3, 4)]),
        "gelu": (lambda: nn.GELU(), [(3, 4)]),
        "swish": (lambda: nn.Swish(1.5), [(3, 4)]),
        "lambda": (lambda: nn.Lambda("tanh"), [(3, 4)]),
        "lambda_function": (lambda: nn.Lambda(lambda x: x * 2), [(3, 4)]),
        "hybridlambda": (lambda: nn.HybridLambda("tanh"), [(3, 4)]),
        "hybridlambda_function": (lambda: nn.HybridLambda(lambda F, x: F.square(x)), [(3, 4)]),
        "conv1d": (lambda: nn.Conv1D(3, 3, strides=2, padding=1, dilation=2), [line]),
        "conv2d": (lambda: nn.Conv2D(3, 3), [image]),
        "conv2d_all": (lambda: nn.Conv2D(6, (3, 2), (2, 1), (1, 2), (1, 2), groups=2, activation="relu", in_channels=4), [image]),
        "conv2d_no_bias": (lambda: nn.Conv2D(3, kernel_size=1, use_bias=False), [image]),
        "conv3d": (lambda: nn.Conv3D(3, 2, padding=(1, 0, 1)), [cube]),
        "conv1d_transpose": (lambda: nn.Conv1DTranspose(3, 3, strides=2, output_padding=1), [line]),
        "conv2d_transpose": (lambda: nn.Conv2DTranspose(4, 3, strides=(2, 1), padding=1, groups=2, in_channels=4,
                                                        output_padding=(1, 0), activation="tanh"), [image]),
        "conv3d_transpose": (lambda: nn.Conv3DTranspose(2, 2, use_bias=False), [(1, 2, 3, 2, 3)]),
        "maxpool1d": (lambda: nn.MaxPool1D(), [line]),
        "maxpool2d": (lambda: nn.MaxPool2D(3, 2, 1, ceil_mode=True), [image]),
        "maxpool3d": (lambda: nn.MaxPool3D(2, 1), [cube]),
        "avgpool1d": (lambda: nn.AvgPool1D(3, 2, 1), [line]),
        "avgpool2d": (lambda: nn.AvgPool2D((3, 2), padding=(1, 0), count_include_pad=False), [image]),
        "avgpool3d": (lambda: nn.AvgPool3D(), [cube]),
        "globalmaxpool1d": (lambda: nn.GlobalMaxPool1D(), [line]),
        "globalmaxpool2d": (lambda: nn.GlobalMaxPool2D(), [image]),
        "globalmaxpool3d": (lambda: nn.GlobalMaxPool3D(), [cube]),
        "globalavgpool1d": (lambda: nn.GlobalAvgPool1D(), [line]),
        "globalavgpool2d": (lambda: nn.GlobalAvgPool2D(), [image]),
        "globalavgpool3d": (lambda: nn.GlobalAvgPool3D(), [cube]),
        "reflectionpad2d": (lambda: nn.ReflectionPad2D(2), [(1, 2, 4, 3)]),
        "reflectionpad2d_eight": (lambda: nn.ReflectionPad2D((0, 0, 0, 0, 1, 2, 0, 1)), [(1, 2, 4, 3)]),
        "sequential": (stack(nn.Sequential, lambda: nn.Dense(4, activation="relu"), lambda: nn.Dense(2)), [(3, 5)]),
        "hybridsequential": (stack(nn.HybridSequential, lambda: nn.Conv2D(3, 3), lambda: nn.BatchNorm(),
                                   lambda: nn.Activation("relu"), lambda: nn.Dense(2)), [image]),
        "concurrent": (stack(contrib.Concurrent, lambda: nn.Dense(4), lambda: nn.Dense(2)), [(3, 5)]),
        "hybridconcurrent": (stack(lambda: contrib.HybridConcurrent(axis=1), lambda: nn.Dense(2), lambda: contrib.Identity()),
                             [(3, 5)]),
        "identity": (lambda: contrib.Identity(), [(3, 4)]),
        "syncbatchnorm": (lambda: contrib.SyncBatchNorm(num_devices=1), [image]),
        "pixelshuffle1d": (lambda: contrib.PixelShuffle1D(2), [(2, 4, 3)]),
        "pixelshuffle2d": (lambda: contrib.PixelShuffle2D((2, 3)), [(1, 12, 2, 2)]),
        "pixelshuffle3d": (lambda: contrib.PixelShuffle3D((1, 2, 3)), [(1, 12, 2, 1, 2)]),
        "deformable": (lambda: cnn.DeformableConvolution(3, 3, padding=1, num_deformable_group=2), [image]),
        "deformable_no_bias": (lambda: cnn.DeformableConvolution(4, (3, 2), 2, use_bias=False, offset_use_bias=False, groups=2,
                                                                 in_channels=4, activation="relu"), [image]),
        "modulated": (lambda: cnn.ModulatedDeformableConvolution(3, 3, padding=1, strides=2), [image]),
    }


def embeddings(mx):
    """Name -> (function that makes the layer, integers)."""
    nn = mx.gluon.nn
    return {"embedding": (lambda: nn.Embedding(6, 3), [[0, 5, 2], [2, 2, 1]]),
            "embedding_sparse_grad": (lambda: nn.Embedding(6, 3, sparse_grad=True), [[0, 5, 2], [2, 2, 1]]),
            "sparseembedding": (lambda: mx.gluon.contrib.nn.SparseEmbedding(6, 3), [[0, 5, 2], [2, 2, 1]])}


def losses(mx):
    """Name -> (function that makes the loss, inputs as NumPy arrays; the gradients of all those of floats are wanted)."""
    loss = mx.gluon.loss
    x, y, weights = 2 * noise((3, 4), 1), noise((3, 4), 2), np.abs(noise((3, 1), 3))
    signs, bits = np.sign(noise((3, 4), 4)), (noise((3, 4), 5) > 0).astype("float32")
    p = np.abs(noise((3, 4), 6)) * 0.8 + 0.1
    classes = np.array([0, 3, 1], "float32")
    probabilities = p / p.sum(1, keepdims=True)
    counts = np.array([[0, 1, 2, 5], [3, 0, 1, 7], [2, 2, 0, 4]], "float32")
    time = noise((2, 6, 5), 7)
    label = np.array([[0, 2, -1], [1, 1, 3]], "float32")
    return {
        "l2": (lambda: loss.L2Loss(), [x, y]),
        "l2_weighted": (lambda: loss.L2Loss(weight=0.7, batch_axis=1), [x, y, weights]),
        "l2_reshaped": (lambda: loss.L2Loss(), [x, y.reshape(4, 3)]),
        "l1": (lambda: loss.L1Loss(), [x, y]),
        "l1_weighted": (lambda: loss.L1Loss(weight=0.7), [x, y, weights]),
        "sigmoid_bce": (lambda: loss.SigmoidBCELoss(), [x, bits]),
        "sigmoid_bce_weighted": (lambda: loss.SigmoidBinaryCrossEntropyLoss(weight=2), [x, bits, weights]),
        "sigmoid_bce_positive": (lambda: loss.SigmoidBCELoss(), [x, bits, weights, np.abs(noise((1, 4), 8))]),
        "sigmoid_bce_from_sigmoid": (lambda: loss.SigmoidBCELoss(from_sigmoid=True), [p, bits]),
        "sigmoid_bce_from_sigmoid_positive": (lambda: loss.SigmoidBCELoss(from_sigmoid=True),
                                              [p, bits, weights, np.abs(noise((1, 4), 8))]),
        "softmax_ce": (lambda: loss.SoftmaxCELoss(), [x, classes]),
        "softmax_ce_weighted": (lambda: loss.SoftmaxCrossEntropyLoss(weight=0.3), [x, classes, weights]),
        "softmax_ce_dense": (lambda: loss.SoftmaxCELoss(sparse_label=False), [x, probabilities]),
        "softmax_ce_logits": (lambda: loss.SoftmaxCELoss(from_logits=True), [np.log(probabilities), classes]),
        "softmax_ce_axis": (lambda: loss.SoftmaxCELoss(axis=1), [noise((2, 4, 3), 9), np.array([[0, 3, 1], [2, 2, 0]], "f4")]),
        "kldiv": (lambda: loss.KLDivLoss(), [np.log(p), probabilities]),
        "kldiv_not_logits": (lambda: loss.KLDivLoss(from_logits=False, weight=2), [x, probabilities, weights]),
        "kldiv_axis": (lambda: loss.KLDivLoss(from_logits=False, axis=1), [noise((2, 4, 3), 9), np.abs(noise((2, 4, 3), 10))]),
        "ctc": (lambda: loss.CTCLoss(), [time, label]),
        "ctc_layouts": (lambda: loss.CTCLoss(layout="TNC", label_layout="TN", weight=0.5), [time.transpose(1, 0, 2), label.T]),
        "ctc_lengths": (lambda: loss.CTCLoss(), [time, label, np.array([6, 4], "float32"), np.array([2, 1], "float32")]),
        "huber": (lambda: loss.HuberLoss(), [x, y]),
        "huber_rho": (lambda: loss.HuberLoss(rho=0.3, weight=2), [x, y, weights]),
        "hinge": (lambda: loss.HingeLoss(), [x, signs]),
        "hinge_margin": (lambda: loss.HingeLoss(margin=0.4, weight=2), [x, signs, weights]),
        "squared_hinge": (lambda: loss.SquaredHingeLoss(), [x, signs]),
        "squared_hinge_margin": (lambda: loss.SquaredHingeLoss(margin=0.4, weight=2), [x, signs, weights]),
        "logistic": (lambda: loss.LogisticLoss(), [x, signs]),
        "logistic_binary": (lambda: loss.LogisticLoss(label_format="binary", weight=2), [x, bits, weights]),
        "triplet": (lambda: loss.TripletLoss(), [x, y, noise((3, 4), 11)]),
        "triplet_margin": (lambda: loss.TripletLoss(margin=3, weight=0.5), [x, y, noise((3, 4), 11)]),
        "poisson": (lambda: loss.PoissonNLLLoss(), [x, counts]),
        "poisson_not_logits": (lambda: loss.PoissonNLLLoss(from_logits=False, weight=2), [p, counts, weights]),
        "poisson_full": (lambda: loss.PoissonNLLLoss(compute_full=True), [x, counts + 1]),
        "cosine": (lambda: loss.CosineEmbeddingLoss(), [x, y, np.array([1, -1, -1], "float32")]),
        "cosine_margin": (lambda: loss.CosineEmbeddingLoss(margin=0.2, weight=2),
                          [x, y, np.array([-1, 1, -1], "float32"), weights]),
        "sdml": (lambda: loss.SDMLLoss(), [x, y]),
        "sdml_smoothing": (lambda: loss.SDMLLoss(smoothing_parameter=0.1), [x, y]),
    }


def in_files(mx):
    """A small network whose files MXNet wrote, net.params, net-symbol.json and net-0000.params, and its input."""
    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(3, 3, activation="relu"), nn.BatchNorm(), nn.PReLU(), nn.Dense(4, use_bias=False), nn.LayerNorm())
    x = mx.nd.array(noise((2, 2, 5, 4), 3))
    net.initialize()
    net(x)
    fill(mx, net)
    return net, x


#: Whose backward MXNet has for GPUs alone, or not at all.
FORWARD_ALONE = ("modulated", "poisson_full")


def run(mx, net, arrays, parameters=True, backward=True):
    """Forward and backward of net in training, then forward at inference. Returns {"out", "infer", "in0", ..., "p0", ...}.

    The head of the derivative is `noise` too. Parameters without a gradient are stored as they are afterwards.
    """
    inputs = [mx.nd.array(a) for a in arrays]
    for a in inputs:
        a.attach_grad()
    if not backward:
        return {"out": net(*inputs).asnumpy()}
    with mx.autograd.record():
        out = net(*inputs)
    out.backward(mx.nd.array(noise(out.shape, 99)))
    found = {"out": out.asnumpy(), **{f"in{i}": a.grad.asnumpy() for i, a in enumerate(inputs)}}
    if parameters:
        for i, p in enumerate(net.collect_params().values()):
            found[f"p{i}"] = p.data().asnumpy() if p.grad_req == "null" else p.grad().asnumpy()
        found["infer"] = net(*inputs).asnumpy()
    return found


def write(path, arrays):
    """Store named float32 arrays in one vector, with a list of their names and shapes: many small files in one cost more."""
    index = [[name, list(a.shape)] for name, a in arrays.items()]
    np.savez_compressed(path, index=json.dumps(index), values=np.concatenate([a.ravel() for a in arrays.values()]))


def read(path):
    """Return the arrays of a file that `write` wrote."""
    with np.load(path) as f:
        index, values = json.loads(str(f["index"])), f["values"]
    ends = np.cumsum([int(np.prod(shape)) for _, shape in index])
    return {name: part.reshape(shape) for (name, shape), part in zip(index, np.split(values, ends[:-1]))}


def zoo():
    """Names of the networks of `get_model`."""
    return [*(f"resnet{n}_v{v}" for v in (1, 2) for n in (18, 34, 50, 101, 152)),
            *(f"vgg{n}{bn}" for bn in ("", "_bn") for n in (11, 13, 16, 19)), "alexnet",
            *(f"densenet{n}" for n in (121, 161, 169, 201)), "squeezenet1.0", "squeezenet1.1", "inceptionv3",
            *(f"mobilenet{m}" for m in ("1.0", "0.75", "0.5", "0.25")),
            *(f"mobilenetv2_{m}" for m in ("1.0", "0.75", "0.5", "0.25"))]


#: Network -> height and width of the image of which record.py stores the output, for 10 classes.
OUTPUTS = {"resnet18_v1": 32, "resnet50_v1": 32, "resnet18_v2": 32, "resnet50_v2": 32, "vgg11": 32, "vgg11_bn": 32,
           "alexnet": 64, "mobilenet0.25": 32, "mobilenetv2_0.5": 32, "squeezenet1.1": 224, "densenet121": 224,
           "inceptionv3": 299}


def parameters(net):
    """[name without the network's prefix, name in files, shape, grad_req] of each parameter, in order."""
    in_files = {id(p): name for name, p in net._collect_params_with_prefix().items()}
    return [[name[len(net.prefix):], in_files[id(p)], list(p.shape), p.grad_req] for name, p in net.collect_params().items()]
