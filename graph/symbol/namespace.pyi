"""mx.sym for editors.

Written by `python -m tritium.ndarray.functions.stubs`; do not edit."""

# ruff: noqa
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Literal

from numpy.typing import DTypeLike

import inspect
from numpy.typing import DTypeLike
from ...kernels.op import Op
from ...kernels.op import ShapeLike
from ..executor.executor import Executor as Executor
from .naming import AttrScope as AttrScope
from .symbol import Group as Group
from .symbol import Symbol as Symbol
from .symbol import Variable as Variable
from .symbol import fromjson as fromjson
from .symbol import load as load
from .symbol import load_json as load_json
from .symbol import var as var
def function(name: str, called: str='') -> Callable[..., Symbol]: ...
def signature(op: Op) -> inspect.Signature:
    """Return the signature: inputs, then parameters, then name and attr. Inputs may be left out."""
random: Any
sparse: Any
op: Any
def zeros(shape: ShapeLike, dtype: DTypeLike=None, **kwargs: Any) -> Symbol:
    """A node that gives zeros [shape]."""
def ones(shape: ShapeLike, dtype: DTypeLike=None, **kwargs: Any) -> Symbol:
    """A node that gives ones [shape]."""
def full(shape: ShapeLike, val: float, dtype: DTypeLike=None, **kwargs: Any) -> Symbol:
    """A node that gives val everywhere [shape]."""
def arange(start: float, stop: float | None=None, step: float=1.0, repeat: int=1, dtype: DTypeLike=None, **kwargs: Any) -> Symbol:
    """A node that gives start, start + step, ... below stop, each `repeat` times."""
def linspace(start: float, stop: float, num: int, endpoint: bool=True, dtype: DTypeLike=None, **kwargs: Any) -> Symbol:
    """A node that gives num values from start to stop, at equal distances."""
def split_v2(ary: Symbol, indices_or_sections: ShapeLike, axis: int=0, squeeze_axis: bool=False, **kwargs: Any) -> Symbol:
    """Split ary along axis: into a number of equal parts, or at ascending positions."""
def histogram(a: Symbol, bins: int | Symbol=10, range: Sequence[float] | None=None, **kwargs: Any) -> Symbol:
    """Count the values of a in each bin, int64, and return the edges too. bins: a number of equal bins in range, or edges."""
def eye(N: int, M: int=0, k: int=0, dtype: DTypeLike=None, **kwargs: Any) -> Symbol:
    """A node that gives ones on diagonal k of [N, M], zeros elsewhere."""
def power(base: float | Symbol, exp: float | Symbol) -> Any:
    """base to the power exp, of symbols or numbers, element by element."""
pow: Any
maximum: Any
minimum: Any
hypot: Any
def __getattr__(name: str) -> Any: ...

def Activation(
    data: Symbol | None = None,
    *,
    act_type: Literal['relu', 'sigmoid', 'tanh', 'softrelu', 'softsign'],
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """An activation by name: relu max(x, 0), sigmoid 1/(1+e⁻ˣ), tanh, softrelu log(1+eˣ), softsign x/(1+|x|).

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    act_type: str, one of 'relu', 'sigmoid', 'tanh', 'softrelu', 'softsign', required. the function
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def BatchNorm(
    data: Symbol | None = None,
    gamma: Symbol | None = None,
    beta: Symbol | None = None,
    moving_mean: Symbol | None = None,
    moving_var: Symbol | None = None,
    eps: float = 0.001,
    momentum: float = 0.9,
    fix_gamma: bool = True,
    use_global_stats: bool = False,
    output_mean_var: bool = False,
    axis: int = 1,
    min_calib_range: float | None = None,
    max_calib_range: float | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """y = gamma · (x - mean) / √(var + eps) + beta, per channel.

    data: any shape; channels along `axis`. gamma, beta, moving_mean, moving_var: [channels] (float32 for half data).
    In training, mean and (biased) variance are those of the batch, and moving = momentum · moving + (1 - momentum) · batch.
    At inference, and with use_global_stats, the moving ones are used.
    fix_gamma: gamma is taken as 1 and gets no derivative. output_mean_var: also returns mean and 1 / √(var + eps).

    Arrays: data, gamma, beta, moving_mean (a state: changed in place), moving_var (a state: changed in place).
    eps: float, default 0.001.
    momentum: float, default 0.9.
    fix_gamma: bool, default True.
    use_global_stats: bool, default False.
    output_mean_var: bool, default False.
    axis: int, default 1.
    min_calib_range: float, default None.
    max_calib_range: float, default None.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def BilinearSampler(
    data: Symbol | None = None,
    grid: Symbol | None = None,
    cudnn_off: bool | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """data [n, c, h, w] interpolated along grid [n, 2, h', w'], zero outside.

    Returns: [n, c, h', w'].

    Arrays: data, grid.
    cudnn_off: bool, default None. ignored
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def BlockGrad(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """The input unchanged; its derivative is zero.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def CTCLoss(
    data: Symbol | None = None,
    label: Symbol | None = None,
    use_data_lengths: bool = False,
    use_label_lengths: bool = False,
    blank_label: Literal['first', 'last'] = 'first',
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """-log of the probability that data spells label, over all alignments.

    data: [time, n, classes], before softmax; label: [n, m]. blank_label "first": class 0 is the blank and 0 ends a label;
    "last": the last class is, and -1 ends a label. data_lengths, label_lengths: [n], given with
    use_data_lengths, use_label_lengths.
    Returns: [n].

    Arrays: data, label.
    use_data_lengths: bool, default False.
    use_label_lengths: bool, default False.
    blank_label: str, one of 'first', 'last', default 'first'.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def Cast(
    data: Symbol | None = None,
    *,
    dtype: DTypeLike,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The input in another dtype, like astype.

    Floats become integers by truncation. NaN and floats out of range of int32 (of int64 for int64 outputs) become the
        smallest
    int32 (int64), which then wraps in narrower dtypes: 3e9 is -2147483648 in int32 and 0 in int8. The derivative is cast
        back.

    Arrays: data.
    dtype: dtype, required.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def Concat(
    *data: Symbol | Sequence[Symbol],
    dim: int = 1,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The inputs joined along axis `dim`; all other axes must be equal.

    Arrays: any number, of one dtype, by position or as a list.
    dim: int, default 1.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def Convolution(
    data: Symbol | None = None,
    weight: Symbol | None = None,
    bias: Symbol | None = None,
    *,
    kernel: int | Sequence[int | None],
    stride: int | Sequence[int | None] = (),
    dilate: int | Sequence[int | None] = (),
    pad: int | Sequence[int | None] = (),
    num_filter: int,
    num_group: int = 1,
    no_bias: bool = False,
    layout: Literal['NCW', 'NCHW', 'NCDHW', 'NWC', 'NHWC', 'NDHWC'] | None = None,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Every output channel is a weighted sum over windows of the input channels of its group, plus a bias.

    data:    [n, c, w], [n, c, h, w] or [n, c, d, h, w]; with layout NWC, NHWC or NDHWC the channels are last.
    weight:  [num_filter, c / num_group, *kernel] (channels last: [num_filter, *kernel, c / num_group]).
    bias:    [num_filter], absent with no_bias.
    Returns: [n, num_filter, ...]; along an axis of size s the output has
             (s + 2 pad - dilate (kernel - 1) - 1) // stride + 1 positions.

    Arrays: data, weight, bias.
    kernel: shape (a tuple of ints, or one), required.
    stride: shape (a tuple of ints, or one), default ().
    dilate: shape (a tuple of ints, or one), default ().
    pad: shape (a tuple of ints, or one), default ().
    num_filter: int, required.
    num_group: int, default 1.
    no_bias: bool, default False.
    layout: str, one of 'NCW', 'NCHW', 'NCDHW', 'NWC', 'NHWC', 'NDHWC', default None.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def Correlation(
    data1: Symbol | None = None,
    data2: Symbol | None = None,
    kernel_size: int = 1,
    max_displacement: int = 1,
    stride1: int = 1,
    stride2: int = 1,
    pad_size: int = 0,
    is_multiply: bool = True,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Correlation of windows of data1 with displaced windows of data2: the mean product over window and channels, or the mean
    absolute difference if not is_multiply.

    data1, data2: [n, c, h, w], with pad_size zeros at each end. Returns: [n, displacements, h', w']; displacements of at most
    max_displacement positions, in row order, stride2 apart. Windows have kernel_size × kernel_size positions, stride1 apart.
    Source: Dosovitskiy et al. 2015, FlowNet, arXiv:1504.06852.

    Arrays: data1, data2.
    kernel_size: int, default 1.
    max_displacement: int, default 1.
    stride1: int, default 1.
    stride2: int, default 1.
    pad_size: int, default 0.
    is_multiply: bool, default True.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def Crop(
    *data: Symbol | Sequence[Symbol],
    offset: int | Sequence[int | None] = (0, 0),
    h_w: int | Sequence[int | None] = (0, 0),
    center_crop: bool = False,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """A window of size h_w of the planes of arg0 [n, c, h, w]; with num_args=2, of the size of arg1.

    offset: start of the window; center_crop: the window is in the middle. The derivative by arg1 is zero.

    Arrays: any number, of one dtype, by position or as a list.
    offset: shape (a tuple of ints, or one), default (0, 0).
    h_w: shape (a tuple of ints, or one), default (0, 0).
    center_crop: bool, default False.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: one array or a list, as the parameters say.
    """

def Custom(
    data: Symbol | None = None,
    *,
    op_type: str,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Run the custom operator registered as op_type (mx.operator.register) on arrays.

    data: the arrays its list_arguments() names, by position or name; then its auxiliary states.
    Other keywords go to the CustomOpProp as strings. Returns: one array per list_outputs().

    Arrays: data.
    op_type: str, required. the name given to mx.operator.register
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: one array or a list, as the parameters say.
    """

def Deconvolution(
    data: Symbol | None = None,
    weight: Symbol | None = None,
    *,
    kernel: int | Sequence[int | None],
    stride: int | Sequence[int | None] = (),
    dilate: int | Sequence[int | None] = (),
    pad: int | Sequence[int | None] = (),
    adj: int | Sequence[int | None] = (),
    target_shape: int | Sequence[int | None] = (),
    num_filter: int,
    num_group: int = 1,
    no_bias: bool = True,
    layout: Literal['NCW', 'NCHW', 'NCDHW'] | None = None,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Every element of data adds a weighted window to the output (transposed convolution).

    data:    [n, c, w], [n, c, h, w] or [n, c, d, h, w].
    weight:  [c, num_filter / num_group, *kernel].  bias: [num_filter], absent with no_bias (the default).
    Returns: [n, num_filter, ...]; along an axis of size s the output has
             stride (s - 1) + dilate (kernel - 1) + 1 - 2 pad + adj positions, adj < stride; or target_shape, from which
             pad and adj are computed.

    Arrays: data, weight.
    kernel: shape (a tuple of ints, or one), required.
    stride: shape (a tuple of ints, or one), default ().
    dilate: shape (a tuple of ints, or one), default ().
    pad: shape (a tuple of ints, or one), default ().
    adj: shape (a tuple of ints, or one), default ().
    target_shape: shape (a tuple of ints, or one), default ().
    num_filter: int, required.
    num_group: int, default 1.
    no_bias: bool, default True.
    layout: str, one of 'NCW', 'NCHW', 'NCDHW', default None. order of the axes; None: channels before positions
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def Dropout(
    data: Symbol | None = None,
    p: float = 0.5,
    mode: Literal['training', 'always'] = 'training',
    axes: int | Sequence[int | None] = (),
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """In training (with mode "always", at inference too) each element becomes 0 with probability p, else x / (1 - p).

    axes: axes along which all elements share one random draw.
    The mask is kept for backward, one byte per draw.

    Arrays: data.
    p: float, default 0.5.
    mode: str, one of 'training', 'always', default 'training'.
    axes: shape (a tuple of ints, or one), default ().
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def Embedding(
    data: Symbol | None = None,
    weight: Symbol | None = None,
    *,
    input_dim: int,
    output_dim: int,
    dtype: DTypeLike = ...,
    sparse_grad: bool = False,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The rows of weight [input_dim, output_dim] at the indices in data; indices out of range are clipped.

    Returns: data.shape + (output_dim,).

    Arrays: data, weight.
    input_dim: int, required.
    output_dim: int, required.
    dtype: dtype, default dtype('float32'). of the result
    sparse_grad: bool, default False.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def Flatten(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """[n, a, b, ...] to [n, a·b·...]; one axis [n] to [n, 1].

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def FullyConnected(
    data: Symbol | None = None,
    weight: Symbol | None = None,
    bias: Symbol | None = None,
    *,
    num_hidden: int,
    no_bias: bool = False,
    flatten: bool = True,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """y = x · weightᵀ + bias.

    data:    [n, ...], seen as [n, k]; with flatten=False [..., k].
    weight:  [num_hidden, k];  bias: [num_hidden], absent with no_bias.
    Returns: [n, num_hidden]; with flatten=False [..., num_hidden].
    Half precision is summed in float32, with the bias, and rounded once.

    Arrays: data, weight, bias.
    num_hidden: int, required.
    no_bias: bool, default False.
    flatten: bool, default True.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def GridGenerator(
    data: Symbol | None = None,
    *,
    transform_type: Literal['affine', 'warp'],
    target_shape: int | Sequence[int | None] = (0, 0),
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """A sampling grid [n, 2, h, w], by transform_type.

    "affine": from 2 × 3 matrices data [n, 6], of size target_shape. "warp": the regular grid displaced by data [n, 2, h, w],
        in
    elements: x, then y.

    Arrays: data.
    transform_type: str, one of 'affine', 'warp', required.
    target_shape: shape (a tuple of ints, or one), default (0, 0).
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def GroupNorm(
    data: Symbol | None = None,
    gamma: Symbol | None = None,
    beta: Symbol | None = None,
    num_groups: int = 1,
    eps: float = 1e-05,
    output_mean_var: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """y = gamma · (x - mean) / √(var + eps) + beta, with mean and variance over each of num_groups parts of a sample.

    data: [n, c, ...], c a multiple of num_groups; gamma, beta: [num_groups], as MXNet has them.
    output_mean_var: also returns mean and √(var + eps), [n, num_groups]. Source: Wu, He 2018, arXiv:1803.08494.

    Arrays: data, gamma, beta.
    num_groups: int, default 1.
    eps: float, default 1e-05.
    output_mean_var: bool, default False.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def IdentityAttachKLSparseReg(
    data: Symbol | None = None,
    moving_avg: Symbol | None = None,
    sparseness_target: float = 0.1,
    penalty: float = 0.001,
    momentum: float = 0.9,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The data unchanged; backward adds the derivative of a penalty on units that are often active.

    data: [n, c], between 0 and 1. The penalty is the Kullback-Leibler divergence between sparseness_target and the moving
        average
    of each unit's activation. backward first updates moving_avg [c]: momentum · moving_avg + (1 - momentum) · mean.

    Arrays: data, moving_avg (a state: changed in place).
    sparseness_target: float, default 0.1.
    penalty: float, default 0.001.
    momentum: float, default 0.9.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def InstanceNorm(
    data: Symbol | None = None,
    gamma: Symbol | None = None,
    beta: Symbol | None = None,
    eps: float = 0.001,
    output_mean_var: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """y = gamma · (x - mean) / √(var + eps) + beta, with mean and variance over the positions of each channel of each sample.

    data: [n, c, ...]; gamma, beta: [c]. Source: Ulyanov, Vedaldi, Lempitsky 2016, arXiv:1607.08022.

    Arrays: data, gamma, beta.
    eps: float, default 0.001.
    output_mean_var: bool, default False.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def L2Normalization(
    data: Symbol | None = None,
    eps: float = 1e-10,
    mode: Literal['channel', 'instance', 'spatial'] = 'instance',
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """x / √(Σ x² + eps).

    mode: "instance" sums over a sample, "channel" over axis 1, "spatial" over all axes after it.

    Arrays: data.
    eps: float, default 1e-10.
    mode: str, one of 'channel', 'instance', 'spatial', default 'instance'.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def LRN(
    data: Symbol | None = None,
    alpha: float = 0.0001,
    beta: float = 0.75,
    knorm: float = 2.0,
    *,
    nsize: int,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """x · (knorm + alpha / nsize · Σ x²)^-beta, with the sum over nsize neighbouring channels.

    data: [n, c, ...]; nsize is odd. Source: Krizhevsky, Sutskever, Hinton 2012, section 3.3.

    Arrays: data.
    alpha: float, default 0.0001.
    beta: float, default 0.75.
    knorm: float, default 2.0.
    nsize: int, required.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: one array or a list, as the parameters say.
    """

def LayerNorm(
    data: Symbol | None = None,
    gamma: Symbol | None = None,
    beta: Symbol | None = None,
    axis: int = -1,
    eps: float = 1e-05,
    output_mean_var: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """y = gamma · (x - mean) / √(var + eps) + beta, with mean and variance along axis.

    data: any shape; gamma, beta: [size of axis].
    output_mean_var: also returns mean and √(var + eps), with size 1 along axis; they have no derivative.
    Source: Ba, Kiros, Hinton 2016, arXiv:1607.06450.

    Arrays: data, gamma, beta.
    axis: int, default -1.
    eps: float, default 1e-05.
    output_mean_var: bool, default False.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def LeakyReLU(
    data: Symbol | None = None,
    act_type: Literal['elu', 'gelu', 'leaky', 'prelu', 'rrelu', 'selu'] = 'leaky',
    slope: float = 0.25,
    lower_bound: float = 0.125,
    upper_bound: float = 0.334,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """An activation with a slope below zero, by act_type.

    leaky: slope x. elu: slope (eˣ - 1). selu: elu with fixed slope and scale (below zero its derivative
    is scale (y + alpha), as in MXNet, where the slope of the formula is y + scale alpha). gelu: x Φ(x) everywhere.
    prelu: gamma x, gamma learned, one per channel (axis 1) or one for all.
    rrelu: s x, in training s uniform in [lower_bound, upper_bound) for each element, otherwise their middle.
    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    act_type: str, one of 'elu', 'gelu', 'leaky', 'prelu', 'rrelu', 'selu', default 'leaky'.
    slope: float, default 0.25.
    lower_bound: float, default 0.125.
    upper_bound: float, default 0.334.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def LinearRegressionOutput(
    data: Symbol | None = None,
    label: Symbol | None = None,
    grad_scale: float = 1.0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """y = data; derivative grad_scale · (y - label) / outputs per sample.

    Arrays: data, label.
    grad_scale: float, default 1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def LogisticRegressionOutput(
    data: Symbol | None = None,
    label: Symbol | None = None,
    grad_scale: float = 1.0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """y = 1 / (1 + exp(-data)); derivative grad_scale · (y - label) / outputs per sample.

    Arrays: data, label.
    grad_scale: float, default 1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def MAERegressionOutput(
    data: Symbol | None = None,
    label: Symbol | None = None,
    grad_scale: float = 1.0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """y = data; derivative ± grad_scale / outputs per sample, plus where y > label, minus also where they are equal.

    Arrays: data, label.
    grad_scale: float, default 1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def MakeLoss(
    data: Symbol | None = None,
    grad_scale: float = 1.0,
    valid_thresh: float = 0.0,
    normalization: Literal['null', 'batch', 'valid'] = 'null',
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The data as a loss: its derivative is grad_scale, and the head gradient is ignored.

    normalization: "batch" divides by the batch (all axes but the last), "valid" by the number of elements above
        valid_thresh (at least 1).

    Arrays: data.
    grad_scale: float, default 1.0.
    valid_thresh: float, default 0.0.
    normalization: str, one of 'null', 'batch', 'valid', default 'null'.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def Pad(
    data: Symbol | None = None,
    *,
    mode: Literal['constant', 'edge', 'reflect'],
    pad_width: int | Sequence[int | None],
    constant_value: float = 0.0,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """data [n, c, h, w] or [n, c, d, h, w] with a border.

    pad_width: (before, after) of each axis, flattened; 0 for the first two axes.
    mode: "constant": constant_value (a negative width crops); "edge": the outermost element; "reflect": the mirror image.

    Arrays: data.
    mode: str, one of 'constant', 'edge', 'reflect', required.
    pad_width: shape (a tuple of ints, or one), required.
    constant_value: float, default 0.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: one array or a list, as the parameters say.
    """

def Pooling(
    data: Symbol | None = None,
    kernel: int | Sequence[int | None] = (),
    pool_type: Literal['max', 'avg', 'sum', 'lp'] = 'max',
    global_pool: bool = False,
    cudnn_off: bool = False,
    pooling_convention: Literal['valid', 'full', 'same'] = 'valid',
    stride: int | Sequence[int | None] = (),
    pad: int | Sequence[int | None] = (),
    p_value: int | None = None,
    count_include_pad: bool | None = None,
    layout: Literal['NCW', 'NCHW', 'NCDHW', 'NWC', 'NHWC', 'NDHWC'] | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The maximum, mean, sum or p-norm (pool_type "lp", with p_value 1, 2 or 3) of every window, for each channel.

    data:    [n, c, w], [n, c, h, w] or [n, c, d, h, w]; with layout NWC, NHWC, NDHWC channels are last.
    Returns: [n, c, ...]; along an axis of size s there are (s + 2 pad - kernel) / stride + 1 windows, rounded down
             (pooling_convention "valid") or up ("full"); "same", for one axis, gives (s + 2 pad) / stride, up.
    stride, pad: more numbers than kernel has are not read.
    A window of padding alone gives 0, or the lowest finite value for a maximum. global_pool: one window of all elements.
    count_include_pad: include padding in the mean. Of equal maxima the first gets the derivative.

    Arrays: data.
    kernel: shape (a tuple of ints, or one), default ().
    pool_type: str, one of 'max', 'avg', 'sum', 'lp', default 'max'.
    global_pool: bool, default False.
    cudnn_off: bool, default False. ignored
    pooling_convention: str, one of 'valid', 'full', 'same', default 'valid'.
    stride: shape (a tuple of ints, or one), default ().
    pad: shape (a tuple of ints, or one), default ().
    p_value: int, default None.
    count_include_pad: bool, default None.
    layout: str, one of 'NCW', 'NCHW', 'NCDHW', 'NWC', 'NHWC', 'NDHWC', default None.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: one array or a list, as the parameters say.
    """

def Pooling_v1(
    data: Symbol | None = None,
    kernel: int | Sequence[int | None] = (),
    pool_type: Literal['max', 'avg', 'sum'] = 'max',
    global_pool: bool = False,
    pooling_convention: Literal['valid', 'full'] = 'valid',
    stride: int | Sequence[int | None] = (),
    pad: int | Sequence[int | None] = (),
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The maximum, mean or sum of every window of [n, c, h, w], for each channel.

    Unlike in Pooling, padding counts as zeros, in maxima too; a mean always divides by the size of the kernel; of equal
        maxima
    each gets the derivative. Returns: [n, c, *windows].

    Arrays: data.
    kernel: shape (a tuple of ints, or one), default ().
    pool_type: str, one of 'max', 'avg', 'sum', default 'max'. the number that a window becomes
    global_pool: bool, default False.
    pooling_convention: str, one of 'valid', 'full', default 'valid'.
    stride: shape (a tuple of ints, or one), default (). distance between windows, by axis; (): 1
    pad: shape (a tuple of ints, or one), default (). positions of zeros at both ends, by axis; (): 0
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: one array or a list, as the parameters say.
    """

def RNN(
    data: Symbol | None = None,
    parameters: Symbol | None = None,
    state: Symbol | None = None,
    *,
    state_size: int,
    num_layers: int,
    bidirectional: bool = False,
    mode: Literal['rnn_relu', 'rnn_tanh', 'lstm', 'gru'],
    p: float = 0.0,
    state_outputs: bool = False,
    projection_size: int | None = None,
    lstm_state_clip_min: float | None = None,
    lstm_state_clip_max: float | None = None,
    lstm_state_clip_nan: bool = False,
    use_sequence_length: bool = False,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """num_layers recurrent layers of state_size cells, each reading the outputs of the one below.

    data:        [steps, batch, inputs].
    parameters:  one vector. For every layer and direction: the weights of its input [gates · h, inputs] and of its previous
                 output [gates · h, h]; then in the same order the biases [gates · h] of both. Order of gates: lstm i, f, c,
        o;
                 gru r, z, n.
    state, state_cell:  [layers · directions, batch, h], the initial states; state_cell for lstm only.
    p:           dropout probability of the outputs of every layer but the last, in training.
    lstm_state_clip_min, lstm_state_clip_max:  bounds of the cell state of an lstm.
    Returns:     [steps, batch, directions · h]; with state_outputs also the states after the last step.

    Arrays: data, parameters, state.
    state_size: int, required.
    num_layers: int, required.
    bidirectional: bool, default False.
    mode: str, one of 'rnn_relu', 'rnn_tanh', 'lstm', 'gru', required.
    p: float, default 0.0.
    state_outputs: bool, default False.
    projection_size: int, default None.
    lstm_state_clip_min: float, default None.
    lstm_state_clip_max: float, default None.
    lstm_state_clip_nan: bool, default False.
    use_sequence_length: bool, default False. a further input gives the length of each sequence
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def ROIPooling(
    data: Symbol | None = None,
    rois: Symbol | None = None,
    *,
    pooled_size: int | Sequence[int | None],
    spatial_scale: float,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The largest element in each of pooled_size bins of each region, which is rounded to elements, the last one included.

    data: [n, c, h, w]; rois: [r, 5], image first; a region with an invalid image index and an empty bin give zeros.
    Returns: [r, c, *pooled_size]. Source: Girshick 2015, arXiv:1504.08083.

    Arrays: data, rois.
    pooled_size: shape (a tuple of ints, or one), required.
    spatial_scale: float, required. factor from the coordinates of boxes to positions of the data
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def Reshape(
    data: Symbol | None = None,
    shape: int | Sequence[int | None] = (),
    reverse: bool = False,
    target_shape: int | Sequence[int | None] = (),
    keep_highest: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The same elements in another shape.

    shape: sizes and codes: 0 keep this size, -1 infer it, -2 keep the rest, -3 merge two, -4 split in two.
    reverse: match the codes from the right.

    Arrays: data.
    shape: shape (a tuple of ints, or one), default ().
    reverse: bool, default False.
    target_shape: shape (a tuple of ints, or one), default ().
    keep_highest: bool, default False.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def SVMOutput(
    data: Symbol | None = None,
    label: Symbol | None = None,
    margin: float = 1.0,
    regularization_coefficient: float = 1.0,
    use_linear: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The data unchanged, as class scores; the derivative is that of the hinge loss. The head gradient is ignored.

    margin:      the score of the label must exceed it, all other scores must be below -margin.
    use_linear:  the hinge, else its square. The derivative is multiplied by regularization_coefficient.
    data: [n, c], label: [n]; further leading axes of data are axes of the label too. Source: Tang 2013, arXiv:1306.0239.

    Arrays: data, label.
    margin: float, default 1.0.
    regularization_coefficient: float, default 1.0.
    use_linear: bool, default False.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def SequenceLast(
    data: Symbol | None = None,
    use_sequence_length: bool = False,
    axis: int = 0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The last step of each sequence: the one at its length, or the last of data. Returns: data's shape without the steps.

    data:             [steps, batch, ...]; with axis 1 [batch, steps, ...].
    sequence_length:  [batch], with use_sequence_length.

    A length below 1 gives the first step (MXNet reads outside the array), a length above the number of steps gives the last.

    Arrays: data.
    use_sequence_length: bool, default False.
    axis: int, default 0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def SequenceMask(
    data: Symbol | None = None,
    use_sequence_length: bool = False,
    value: float = 0.0,
    axis: int = 0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """data with `value` in all steps beyond the length of each sequence. Without lengths: data unchanged.

    data:             [steps, batch, ...]; with axis 1 [batch, steps, ...].
    sequence_length:  [batch], with use_sequence_length.

    Arrays: data.
    use_sequence_length: bool, default False.
    value: float, default 0.0.
    axis: int, default 0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def SequenceReverse(
    data: Symbol | None = None,
    use_sequence_length: bool = False,
    axis: int = 0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Each sequence reversed within its length; later steps stay. Without lengths: all steps reversed.

    data:             [steps, batch, ...]; axis must be 0.
    sequence_length:  [batch], with use_sequence_length.

    Arrays: data.
    use_sequence_length: bool, default False.
    axis: int, default 0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def SliceChannel(
    data: Symbol | None = None,
    *,
    num_outputs: int,
    axis: int = 1,
    squeeze_axis: bool = False,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """num_outputs equal parts along axis. squeeze_axis: parts have size 1 along the axis, which is removed.

    Arrays: data.
    num_outputs: int, required.
    axis: int, default 1.
    squeeze_axis: bool, default False.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: one array or a list, as the parameters say.
    """

def SoftmaxActivation(
    data: Symbol | None = None,
    mode: Literal['instance', 'channel'] = 'instance',
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Softmax over the last axis (mode "instance"), or over axis 1 ("channel").

    The derivative is always taken along axis 1, as in MXNet. In mode "instance" with more than two axes that is wrong; use
    softmax(axis=-1) instead.

    Arrays: data.
    mode: str, one of 'instance', 'channel', default 'instance'.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def SoftmaxOutput(
    data: Symbol | None = None,
    label: Symbol | None = None,
    grad_scale: float = 1.0,
    ignore_label: float = -1.0,
    multi_output: bool = False,
    use_ignore: bool = False,
    preserve_shape: bool = False,
    normalization: Literal['null', 'batch', 'valid'] = 'null',
    out_grad: bool = False,
    smooth_alpha: float = 0.0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """p = softmax(data); the derivative is grad_scale · (p - onehot(label)). The head gradient is ignored.

    data:  [n, c], label [n], class indices, or [n, c], probabilities.
           multi_output: data [n, c, ...], label [n, ...], or probabilities [n, c, ...]; softmax over axis 1.
           preserve_shape: data [..., c], label [...]; softmax over the last axis.
    use_ignore:     rows whose label is ignore_label get no derivative.
    normalization:  "batch" divides by the number of labels (multi_output: by n), "valid" by how many labels are not
        ignore_label.
    smooth_alpha:   this much of the label's weight is spread over the other classes; not with multi_output.
    out_grad:       multiply by p, as MXNet 1.9.1 does (and not by the head gradient, as the name says).

    Arrays: data, label.
    grad_scale: float, default 1.0.
    ignore_label: float, default -1.0.
    multi_output: bool, default False.
    use_ignore: bool, default False.
    preserve_shape: bool, default False.
    normalization: str, one of 'null', 'batch', 'valid', default 'null'.
    out_grad: bool, default False.
    smooth_alpha: float, default 0.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def SpatialTransformer(
    data: Symbol | None = None,
    loc: Symbol | None = None,
    target_shape: int | Sequence[int | None] = (0, 0),
    *,
    transform_type: Literal['affine'],
    sampler_type: Literal['bilinear'],
    cudnn_off: bool | None = None,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """data [n, c, h, w] interpolated along the affine grid of the 2 × 3 matrices loc [n, 6].

    Returns: [n, c, *target_shape].

    Arrays: data, loc.
    target_shape: shape (a tuple of ints, or one), default (0, 0).
    transform_type: str, one of 'affine', required.
    sampler_type: str, one of 'bilinear', required.
    cudnn_off: bool, default None. ignored
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def SwapAxis(
    data: Symbol | None = None,
    dim1: int = 0,
    dim2: int = 0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Axes dim1 and dim2 exchanged.

    Arrays: data.
    dim1: int, default 0.
    dim2: int, default 0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def UpSampling(
    *data: Symbol | Sequence[Symbol],
    scale: int,
    sample_type: Literal['nearest', 'bilinear'],
    num_filter: int = 0,
    multi_input_mode: Literal['concat', 'sum'] = 'concat',
    workspace: int = 512,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The planes of arg0 [n, c, h, w], scale times as large.

    sample_type: "nearest": repeat each element; further arrays are enlarged to the same size, and concatenated along channels
    (multi_input_mode "concat") or added ("sum"). "bilinear": a Deconvolution with one group per channel; its weight is the
    second array [num_filter, 1, k, k], k = 2 scale - scale % 2.

    Arrays: any number, of one dtype, by position or as a list.
    scale: int, required.
    sample_type: str, one of 'nearest', 'bilinear', required.
    num_filter: int, default 0.
    multi_input_mode: str, one of 'concat', 'sum', default 'concat'.
    workspace: int, default 512. ignored
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def abs(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """|x|, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def adagrad_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    history: Symbol | None = None,
    *,
    lr: float,
    epsilon: float = 1e-07,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """history ← history + g²; weight - lr (g / √(history + ε) + wd weight), on dense arrays.

    Source: Duchi, Hazan, Singer 2011.

    Arrays: weight, grad, history (a state: changed in place).
    lr: float, required.
    epsilon: float, default 1e-07. added to a divisor, so that it is not 0
    wd: float, default 0.0.
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def adam_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mean: Symbol | None = None,
    var: Symbol | None = None,
    *,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-08,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """mean ← β₁ mean + (1-β₁) g; var ← β₂ var + (1-β₂) g²; weight - lr mean / (√var + ε), g with wd weight added.

    Source: Kingma and Ba 2015, arXiv:1412.6980; lr includes the bias correction.

    Arrays: weight, grad, mean (a state: changed in place), var (a state: changed in place).
    lr: float, required.
    beta1: float, default 0.9. share of the old mean of gradients
    beta2: float, default 0.999. share of the old mean of their squares
    epsilon: float, default 1e-08. added to a divisor, so that it is not 0
    wd: float, default 0.0.
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    lazy_update: bool, default True. with a row-sparse gradient: change only the rows that it has
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def add_n(*data: Symbol | Sequence[Symbol], name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """The sum of num_args arrays of one shape and dtype, added from the first to the last.

    Arrays: any number, of one dtype, by position or as a list.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def all_finite(
    data: Symbol | None = None,
    init_output: bool = True,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """1 if data holds no infinity and no NaN, else 0. Returns: float32 [1].

    init_output: False: the result is also 0 if out held 0 before.

    Arrays: data.
    init_output: bool, default True.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def amp_cast(
    data: Symbol | None = None,
    *,
    dtype: DTypeLike,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """data cast to dtype if it holds floats of at most 32 bits, else data unchanged.

    Arrays: data.
    dtype: dtype, required.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def amp_multicast(
    *data: Symbol | Sequence[Symbol],
    num_outputs: int,
    cast_narrow: bool = False,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Each array of floats of at most 32 bits cast to the widest dtype among these; with cast_narrow, to the narrowest.

    Arrays: any number, of one dtype, by position or as a list.
    num_outputs: int, required.
    cast_narrow: bool, default False.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: one array or a list, as the parameters say.
    """

def arccos(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """arccos x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def arccosh(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """arccosh x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def arcsin(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """arcsin x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def arcsinh(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """arcsinh x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def arctan(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """arctan x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def arctanh(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """arctanh x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def argmax(
    data: Symbol | None = None,
    axis: int | None = None,
    keepdims: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The index of the largest element along axis, the first of equals. axis None: in the flat data, shape (1,).

    keepdims: keep the axis with size 1. Returns: indices in the dtype of data, as in MXNet.

    Arrays: data.
    axis: int, default None.
    keepdims: bool, default False.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def argmax_channel(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """argmax along axis 1.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def argmin(
    data: Symbol | None = None,
    axis: int | None = None,
    keepdims: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The index of the smallest element along axis, the first of equals. Parameters as in argmax.

    Arrays: data.
    axis: int, default None.
    keepdims: bool, default False. keep the reduced axis, with size 1
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def argsort(
    data: Symbol | None = None,
    axis: Any = -1,
    is_ascend: bool = True,
    dtype: DTypeLike = ...,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The indices that sort data along axis. axis None: indices into the flattened data. dtype: of the indices.

    Arrays: data.
    axis: value, default -1.
    is_ascend: bool, default True. the smallest first
    dtype: dtype, default dtype('float32').
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def batch_dot(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    forward_stype: str | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """y[i] = lhs[i] · rhs[i]: [..., m, k] and [..., k, n] give [..., m, n].

    Arrays: lhs, rhs.
    transpose_a: bool, default False. transpose the matrices of the first input
    transpose_b: bool, default False. transpose the matrices of the second input
    forward_stype: str, default None. ignored
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def batch_take(
    a: Symbol | None = None,
    indices: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """a[i, indices[i]] for each row i; indices out of range are clipped. indices: int32, one per row. No derivative.

    Arrays: a, indices.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_add(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """lhs + rhs, with broadcasting.

    lhs, rhs: sizes equal or 1, axis by axis from the right.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_axis(
    data: Symbol | None = None,
    axis: int | Sequence[int | None] = (),
    size: int | Sequence[int | None] = (),
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """data repeated along each of `axis`, which have size 1, up to `size`.

    Arrays: data.
    axis: shape (a tuple of ints, or one), default ().
    size: shape (a tuple of ints, or one), default ().
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_div(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """lhs / rhs; of integers truncated, and 0 where rhs is 0, with broadcasting.

    lhs, rhs: sizes equal or 1, axis by axis from the right.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_equal(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """1 where lhs = rhs, else 0, in the dtype of the inputs, with broadcasting.

    lhs, rhs: sizes equal or 1, axis by axis from the right.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_greater(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """1 where lhs > rhs, else 0, in the dtype of the inputs, with broadcasting.

    lhs, rhs: sizes equal or 1, axis by axis from the right.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_greater_equal(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """1 where lhs ≥ rhs, else 0, in the dtype of the inputs, with broadcasting.

    lhs, rhs: sizes equal or 1, axis by axis from the right.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_hypot(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """√(lhs² + rhs²), with broadcasting.

    lhs, rhs: sizes equal or 1, axis by axis from the right.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_lesser(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """1 where lhs < rhs, else 0, in the dtype of the inputs, with broadcasting.

    lhs, rhs: sizes equal or 1, axis by axis from the right.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_lesser_equal(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """1 where lhs ≤ rhs, else 0, in the dtype of the inputs, with broadcasting.

    lhs, rhs: sizes equal or 1, axis by axis from the right.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_like(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    lhs_axes: int | Sequence[int | None] | None = None,
    rhs_axes: int | Sequence[int | None] | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """lhs repeated along its axes of size 1 up to the shape of rhs; or only its axes lhs_axes, to the sizes of rhs_axes.

    One of the two alone has no effect, as in MXNet.

    Arrays: lhs, rhs.
    lhs_axes: shape (a tuple of ints, or one), default None.
    rhs_axes: shape (a tuple of ints, or one), default None.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_logical_and(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """1 where lhs ≠ 0 and rhs ≠ 0, else 0, in the dtype of the inputs, with broadcasting.

    lhs, rhs: sizes equal or 1, axis by axis from the right.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_logical_or(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """1 where lhs ≠ 0 or rhs ≠ 0, else 0, in the dtype of the inputs, with broadcasting.

    lhs, rhs: sizes equal or 1, axis by axis from the right.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_logical_xor(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """1 where one of lhs and rhs is 0, the other not, else 0, in the dtype of the inputs, with broadcasting.

    lhs, rhs: sizes equal or 1, axis by axis from the right.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_maximum(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """the larger of lhs and rhs; of equal ones the derivative goes to lhs, with broadcasting.

    lhs, rhs: sizes equal or 1, axis by axis from the right.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_minimum(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """the smaller of lhs and rhs; of equal ones the derivative goes to lhs, with broadcasting.

    lhs, rhs: sizes equal or 1, axis by axis from the right.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_mod(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """lhs modulo rhs, with the sign of rhs; 0 where rhs is 0, with broadcasting.

    lhs, rhs: sizes equal or 1, axis by axis from the right.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_mul(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """lhs · rhs, with broadcasting.

    lhs, rhs: sizes equal or 1, axis by axis from the right.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_not_equal(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """1 where lhs ≠ rhs, else 0, in the dtype of the inputs, with broadcasting.

    lhs, rhs: sizes equal or 1, axis by axis from the right.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_power(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """lhs to the power rhs; integers wrap around, with broadcasting.

    lhs, rhs: sizes equal or 1, axis by axis from the right.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_sub(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """lhs - rhs, with broadcasting.

    lhs, rhs: sizes equal or 1, axis by axis from the right.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def broadcast_to(
    data: Symbol | None = None,
    shape: int | Sequence[int | None] = (),
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """data repeated along its axes of size 1 up to `shape`. A 0 in shape keeps the size.

    Arrays: data.
    shape: shape (a tuple of ints, or one), default ().
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def cast_storage(
    data: Symbol | None = None,
    stype: Literal['default', 'row_sparse', 'csr'] = 'default',
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """data itself: arrays of a graph are dense. `mx.nd.cast_storage` converts arrays.

    stype: the storage type, which MXNet's graphs would give the result.

    Arrays: data.
    stype: str, one of 'default', 'row_sparse', 'csr', default 'default'.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def cbrt(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """∛x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def ceil(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """⌈x⌉, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def clip(
    data: Symbol | None = None,
    *,
    a_min: float,
    a_max: float,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """a_max above it, else a_min below it, else data; NaN stays NaN. Bounds beyond the dtype become its nearest value.

    Arrays: data.
    a_min: float, required.
    a_max: float, required.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def col2im(
    data: Symbol | None = None,
    *,
    output_size: int | Sequence[int | None],
    kernel: int | Sequence[int | None],
    stride: int | Sequence[int | None] = (),
    dilate: int | Sequence[int | None] = (),
    pad: int | Sequence[int | None] = (),
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Add columns to the planes at their windows: the derivative of im2col. data: [n, c · kernel, windows].

    Returns: [n, c, *output_size].

    Arrays: data.
    output_size: shape (a tuple of ints, or one), required.
    kernel: shape (a tuple of ints, or one), required.
    stride: shape (a tuple of ints, or one), default (). distance between windows, by axis; (): 1
    dilate: shape (a tuple of ints, or one), default (). distance between the elements of a window, by axis; (): 1
    pad: shape (a tuple of ints, or one), default (). positions of zeros at both ends, by axis; (): 0
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def cos(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """cos x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def cosh(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """cosh x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def cumsum(
    a: Symbol | None = None,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Cumulative sums of a along axis. axis None: of the flattened array. dtype: of the sums; None: that of a.

    Arrays: a.
    axis: int, default None.
    dtype: dtype, default None.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def degrees(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """Convert radians to degrees.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def depth_to_space(
    data: Symbol | None = None,
    *,
    block_size: int,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """[n, b·b·c, h, w] to [n, c, h·b, w·b], b = block_size.

    Arrays: data.
    block_size: int, required.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def diag(
    data: Symbol | None = None,
    k: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The diagonal k of each matrix along axis1 and axis2, as the last axis. For one axis: the square matrix with that diagonal.

    k > 0: above the main diagonal. A diagonal just outside the matrix is empty, one further outside is an error.

    Arrays: data.
    k: int, default 0.
    axis1: int, default 0.
    axis2: int, default 1.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def digamma(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """the derivative of ln Γ(x), element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def dot(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    forward_stype: str | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Sum over the last axis of lhs and the first of rhs; two vectors give shape (1,).

    transpose_a sums over the first axis of lhs instead, transpose_b over the last of rhs.

    Arrays: lhs, rhs.
    transpose_a: bool, default False.
    transpose_b: bool, default False.
    forward_stype: str, default None. ignored
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def elemwise_add(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """lhs + rhs, element by element.

    lhs, rhs: one shape and dtype, which the result has.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def elemwise_div(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """lhs / rhs; of integers truncated, and 0 where rhs is 0, element by element.

    lhs, rhs: one shape and dtype, which the result has.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def elemwise_mul(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """lhs · rhs, element by element.

    lhs, rhs: one shape and dtype, which the result has.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def elemwise_sub(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """lhs - rhs, element by element.

    lhs, rhs: one shape and dtype, which the result has.

    Arrays: lhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def erf(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """2/√π ∫₀ˣ e^(-t²) dt, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def erfinv(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """the number whose erf is x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def exp(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """eˣ, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def expand_dims(
    data: Symbol | None = None,
    *,
    axis: int,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """A new axis of size 1 at position `axis` of the output; a negative one counts from the end.

    Arrays: data.
    axis: int, required.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def expm1(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """eˣ - 1, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def fft(
    data: Symbol | None = None,
    compute_size: int = 128,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Σ data[k] exp(-2πi jk/d) for each j. data: [..., d], real. Returns: [..., 2 d], complex.

    Arrays: data.
    compute_size: int, default 128.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def fill_element_0index(
    lhs: Symbol | None = None,
    mhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """lhs with the value mhs[i] at the index rhs[i] of each row i. lhs: [rows, n]. mhs, rhs: [rows].

    Arrays: lhs, mhs, rhs.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def fix(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """Round towards zero.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def floor(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """⌊x⌋, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def ftml_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    d: Symbol | None = None,
    v: Symbol | None = None,
    z: Symbol | None = None,
    *,
    lr: float,
    beta1: float = 0.6,
    beta2: float = 0.999,
    epsilon: float = 1e-08,
    t: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_grad: float = -1.0,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Follow the moving leader. t: the update count, from 1. Source: Zheng, Kwok 2017, ICML.

    Arrays: weight, grad, d (a state: changed in place), v (a state: changed in place), z (a state: changed in place).
    lr: float, required. learning rate
    beta1: float, default 0.6. share of the old mean of gradients
    beta2: float, default 0.999. share of the old mean of their squares
    epsilon: float, default 1e-08. added to a divisor, so that it is not 0
    t: float, required.
    wd: float, default 0.0. weight decay: wd · weight is added to the gradient
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_grad: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def ftrl_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    z: Symbol | None = None,
    n: Symbol | None = None,
    *,
    lr: float,
    lamda1: float = 0.01,
    beta: float = 1.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Follow the regularized leader, per coordinate; weights whose |z| is at most lamda1 are 0.

    Source: McMahan et al. 2013, "Ad click prediction: a view from the trenches".

    Arrays: weight, grad, z (a state: changed in place), n (a state: changed in place).
    lr: float, required. learning rate
    lamda1: float, default 0.01.
    beta: float, default 1.0.
    wd: float, default 0.0. weight decay: wd · weight is added to the gradient
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def gamma(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """Γ(x), element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def gammaln(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """ln |Γ(x)|, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def gather_nd(
    data: Symbol | None = None,
    indices: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The slices data[indices[0, i], indices[1, i], ...] for each i. indices: [axes, ...], truncated.

    Negative indices count from the end; an index out of range is an error on the CPU and clipped on a GPU. Derivatives of a
        slice
    that is taken several times add up. Returns: indices.shape[1:] + data.shape[axes:].

    Arrays: data, indices.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def group_adagrad_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    history: Symbol | None = None,
    *,
    lr: float,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    epsilon: float = 1e-05,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Adagrad with one history value per row: history ← history + mean of g² over the row; weight - lr g / √(history + ε).

    weight, grad: [n, ...]; history: [n, 1, ...] or [n], one number per row, changed in place. Returns: the new weight.

    Arrays: weight, grad, history (a state: changed in place).
    lr: float, required.
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    epsilon: float, default 1e-05. added to a divisor, so that it is not 0
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def hard_sigmoid(
    data: Symbol | None = None,
    alpha: float = 0.2,
    beta: float = 0.5,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """clip(alpha data + beta, 0, 1)

    Arrays: data.
    alpha: float, default 0.2.
    beta: float, default 0.5.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def identity(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """data unchanged.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def ifft(
    data: Symbol | None = None,
    compute_size: int = 128,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The real part of Σ data[k] exp(2πi jk/d) for each j; divide by d for the inverse of fft.

    data: [..., 2 d], complex. Returns: [..., d].

    Arrays: data.
    compute_size: int, default 128.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def im2col(
    data: Symbol | None = None,
    *,
    kernel: int | Sequence[int | None],
    stride: int | Sequence[int | None] = (),
    dilate: int | Sequence[int | None] = (),
    pad: int | Sequence[int | None] = (),
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The windows a convolution reads, as columns: [n, c · kernel, windows]. data: [n, c, ...].

    Arrays: data.
    kernel: shape (a tuple of ints, or one), required.
    stride: shape (a tuple of ints, or one), default (). distance between windows, by axis; (): 1
    dilate: shape (a tuple of ints, or one), default (). distance between the elements of a window, by axis; (): 1
    pad: shape (a tuple of ints, or one), default (). positions of zeros at both ends, by axis; (): 0
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def khatri_rao(*data: Symbol | Sequence[Symbol], name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """Column-wise Kronecker product of num_args matrices: column j of the result is the Kronecker product of their columns j.

    Inputs [rows_i, columns]. Returns: [the product of all rows_i, columns]. No derivative, as in MXNet.

    Arrays: any number, of one dtype, by position or as a list.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def lamb_update_phase1(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mean: Symbol | None = None,
    var: Symbol | None = None,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-06,
    *,
    t: float,
    bias_correction: bool = True,
    wd: float,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The direction of LAMB, Adam's with wd weight added. t: the update count, from 1. Source: You et al. 2019,
    arXiv:1904.00962.

    Arrays: weight, grad, mean (a state: changed in place), var (a state: changed in place).
    beta1: float, default 0.9. share of the old mean of gradients
    beta2: float, default 0.999. share of the old mean of their squares
    epsilon: float, default 1e-06. added to a divisor, so that it is not 0
    t: float, required.
    bias_correction: bool, default True. divide the means by 1 - beta ** t
    wd: float, required.
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def lamb_update_phase2(
    weight: Symbol | None = None,
    g: Symbol | None = None,
    r1: Symbol | None = None,
    r2: Symbol | None = None,
    *,
    lr: float,
    lower_bound: float = -1.0,
    upper_bound: float = -1.0,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """weight - lr r1/r2 g: r1 [1] is the norm of the weight, clipped to lower_bound and upper_bound where
    they are not negative, r2 [1] that of g.
    If either is 0, their ratio is 1.

    Arrays: weight, g, r1, r2.
    lr: float, required.
    lower_bound: float, default -1.0.
    upper_bound: float, default -1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def linalg_det(A: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """The determinant of each matrix. A: [..., n, n]. Returns: [...], or (1,) for one matrix.

    Arrays: A.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def linalg_extractdiag(
    A: Symbol | None = None,
    offset: int = 0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The diagonal of each matrix A [..., n, n] as a vector [..., n - |offset|]; offset above 0: above the main one.

    Arrays: A.
    offset: int, default 0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def linalg_extracttrian(
    A: Symbol | None = None,
    offset: int = 0,
    lower: bool = True,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """A triangle of each matrix A [..., n, n] as a vector: a lower one row by row, an upper one column by column.

    offset: the diagonal it begins at: above 0, an upper one; below, a lower one; at 0, as `lower` says.

    Arrays: A.
    offset: int, default 0.
    lower: bool, default True.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def linalg_gelqf(A: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """A = L Q: Q has orthonormal rows, L is lower triangular. A: [..., m, n], m ≤ n, of full rank.

    Returns: Q [..., m, n], L [..., m, m].

    Arrays: A.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: a list: output0, output1.
    """

def linalg_gemm(
    A: Symbol | None = None,
    B: Symbol | None = None,
    C: Symbol | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    beta: float = 1.0,
    axis: int = -2,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """alpha · A B + beta · C for each matrix; A, B transposed if asked.

    A, B, C: [..., m, k], [..., k, n], [..., m, n] with equal leading axes. axis: where the rows are, if not last but one.

    Arrays: A, B, C.
    transpose_a: bool, default False. transpose the matrices of the first input
    transpose_b: bool, default False. transpose the matrices of the second input
    alpha: float, default 1.0.
    beta: float, default 1.0.
    axis: int, default -2.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def linalg_gemm2(
    A: Symbol | None = None,
    B: Symbol | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    axis: int = -2,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """alpha · A B for each matrix; A, B transposed if asked.

    A, B: [..., m, k], [..., k, n] with equal leading axes. axis: where the rows are, if not last but one.

    Arrays: A, B.
    transpose_a: bool, default False. transpose the matrices of the first input
    transpose_b: bool, default False. transpose the matrices of the second input
    alpha: float, default 1.0.
    axis: int, default -2.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def linalg_inverse(A: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """The inverse of each matrix. A: [..., n, n].

    Arrays: A.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def linalg_makediag(
    A: Symbol | None = None,
    offset: int = 0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Matrices [..., n + |offset|, n + |offset|] of zeros, with A [..., n] on the diagonal `offset`.

    Arrays: A.
    offset: int, default 0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def linalg_maketrian(
    A: Symbol | None = None,
    offset: int = 0,
    lower: bool = True,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Matrices of zeros with A [..., n (n + 1) / 2] in a triangle; the order, offset and lower as in extracttrian.

    Arrays: A.
    offset: int, default 0.
    lower: bool, default True.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def linalg_potrf(
    A: Symbol | None = None,
    lower: bool = True,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The lower triangular L with A = L Lᵀ (Cholesky), or with lower=False the upper triangular U with A = Uᵀ U.

    A: [..., n, n], symmetric and positive definite; only that triangle is read.

    Arrays: A.
    lower: bool, default True.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def linalg_potri(
    A: Symbol | None = None,
    lower: bool = True,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """(A Aᵀ)⁻¹ for a lower triangular A, or with lower=False (Aᵀ A)⁻¹ for an upper triangular one.

    A: [..., n, n], the result of potrf. So this returns the inverse of the argument of potrf.
    A zero on the diagonal of A is an error on a CPU, and gives infinities or NaN on a GPU.

    Arrays: A.
    lower: bool, default True.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def linalg_slogdet(A: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """The sign of each matrix's determinant, and the logarithm of its absolute value (sign 0 and -inf for a singular one).

    A: [..., n, n]. Returns: two arrays [...], or (1,) for one matrix. Only the logarithm has a derivative.

    Arrays: A.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: a list: output0, output1.
    """

def linalg_sumlogdiag(A: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """The sum of the logarithms of the diagonal of each matrix. A: [..., n, n]. Returns: [...], or (1,) for one matrix.

    Arrays: A.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def linalg_syevd(A: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """A = Uᵀ diag(λ) U: the rows of U are eigenvectors, λ ascends. A: [..., n, n], symmetric; its lower triangle is read.

    Returns: U [..., n, n], λ [..., n]. The largest element of each row of U, by absolute value, is positive.

    Arrays: A.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: a list: output0, output1.
    """

def linalg_syrk(
    A: Symbol | None = None,
    transpose: bool = False,
    alpha: float = 1.0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """alpha · A Aᵀ of each matrix, or alpha · Aᵀ A with transpose. A: [..., m, n].

    Arrays: A.
    transpose: bool, default False.
    alpha: float, default 1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def linalg_trmm(
    A: Symbol | None = None,
    B: Symbol | None = None,
    transpose: bool = False,
    rightside: bool = False,
    lower: bool = True,
    alpha: float = 1.0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """alpha · T B for each matrix, or alpha · B T with rightside; T is the triangle of A (lower or upper), or its transpose.

    A: [..., n, n]; only that triangle is read. B: [..., n, m], or [..., m, n] with rightside.

    Arrays: A, B.
    transpose: bool, default False.
    rightside: bool, default False.
    lower: bool, default True.
    alpha: float, default 1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def linalg_trsm(
    A: Symbol | None = None,
    B: Symbol | None = None,
    transpose: bool = False,
    rightside: bool = False,
    lower: bool = True,
    alpha: float = 1.0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The X with T X = alpha · B, or X T = alpha · B with rightside; T is the triangle of A (lower or upper), or its transpose.

    A: [..., n, n]; only that triangle is read. B: [..., n, m], or [..., m, n] with rightside. Returns: the shape of B.
    A zero on the diagonal of A is an error on a CPU, and gives infinities or NaN on a GPU.

    Arrays: A, B.
    transpose: bool, default False.
    rightside: bool, default False.
    lower: bool, default True.
    alpha: float, default 1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def log(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """ln x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def log10(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """log₁₀ x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def log1p(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """ln(1 + x), element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def log2(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """log₂ x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def log_softmax(
    data: Symbol | None = None,
    axis: int = -1,
    temperature: float | None = None,
    dtype: str | None = None,
    use_length: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """log(softmax(x / temperature)) along axis, without overflow of the exponentials.

    Arrays: data.
    axis: int, default -1.
    temperature: float, default None.
    dtype: str, default None. of the result
    use_length: bool, default False. a further input gives the length of each row
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def logical_not(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """1 where data is 0, else 0.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def make_loss(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """The data as a loss: its derivative is 1, and the head gradient is ignored.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def max(
    data: Symbol | None = None,
    axis: int | Sequence[int | None] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The largest of data along axis. Parameters as in sum. Every element equal to it gets the whole derivative.

    Arrays: data.
    axis: shape (a tuple of ints, or one), default None. axes to fold; None or (): all
    keepdims: bool, default False. folded axes stay, with size 1
    exclude: bool, default False. fold the axes that are not named
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def mean(
    data: Symbol | None = None,
    axis: int | Sequence[int | None] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The mean of data along axis. Integers are summed in 64 bits and the mean is truncated. Parameters as in sum.

    Arrays: data.
    axis: shape (a tuple of ints, or one), default None. axes to fold; None or (): all
    keepdims: bool, default False. folded axes stay, with size 1
    exclude: bool, default False. fold the axes that are not named
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def min(
    data: Symbol | None = None,
    axis: int | Sequence[int | None] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The smallest of data along axis. Parameters as in sum. Every element equal to it gets the whole derivative.

    Arrays: data.
    axis: shape (a tuple of ints, or one), default None. axes to fold; None or (): all
    keepdims: bool, default False. folded axes stay, with size 1
    exclude: bool, default False. fold the axes that are not named
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def moments(
    data: Symbol | None = None,
    axes: int | Sequence[int | None] | None = None,
    keepdims: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The mean of data along axes, and its (biased) variance.

    axes: None: all axes, which gives shape (1,). keepdims: keep them with size 1.

    Arrays: data.
    axes: shape (a tuple of ints, or one), default None.
    keepdims: bool, default False.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: a list: output0, output1.
    """

def moveaxis(
    a: Symbol | None = None,
    *,
    source: int | Sequence[int | None],
    destination: int | Sequence[int | None],
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Axes `source` of a moved to positions `destination`; the other axes keep their order.

    Arrays: a.
    source: shape (a tuple of ints, or one), required.
    destination: shape (a tuple of ints, or one), required.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def mp_lamb_update_phase1(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mean: Symbol | None = None,
    var: Symbol | None = None,
    weight32: Symbol | None = None,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-06,
    *,
    t: float,
    bias_correction: bool = True,
    wd: float,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """lamb_update_phase1 on a float32 copy of a half-precision weight. Returns: float32.

    Arrays: weight, grad, mean (a state: changed in place), var (a state: changed in place), weight32 (a state: changed in
        place).
    beta1: float, default 0.9. share of the old mean of gradients
    beta2: float, default 0.999. share of the old mean of their squares
    epsilon: float, default 1e-06. added to a divisor, so that it is not 0
    t: float, required. the number of the update, from 1 on
    bias_correction: bool, default True. divide the means by 1 - beta ** t
    wd: float, required. weight decay: wd · weight is added to the gradient
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def mp_lamb_update_phase2(
    weight: Symbol | None = None,
    g: Symbol | None = None,
    r1: Symbol | None = None,
    r2: Symbol | None = None,
    weight32: Symbol | None = None,
    *,
    lr: float,
    lower_bound: float = -1.0,
    upper_bound: float = -1.0,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """lamb_update_phase2 on a float32 copy of a half-precision weight.

    Arrays: weight, g, r1, r2, weight32 (a state: changed in place).
    lr: float, required. learning rate
    lower_bound: float, default -1.0.
    upper_bound: float, default -1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def mp_nag_mom_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mom: Symbol | None = None,
    weight32: Symbol | None = None,
    *,
    lr: float,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """nag_mom_update on a float32 copy of a half-precision weight.

    Arrays: weight, grad, mom (a state: changed in place), weight32 (a state: changed in place).
    lr: float, required. learning rate
    momentum: float, default 0.0. share of the previous step
    wd: float, default 0.0. weight decay: wd · weight is added to the gradient
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def mp_sgd_mom_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mom: Symbol | None = None,
    weight32: Symbol | None = None,
    *,
    lr: float,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """sgd_mom_update on a float32 copy of a half-precision weight.

    Arrays: weight, grad, mom (a state: changed in place), weight32 (a state: changed in place).
    lr: float, required. learning rate
    momentum: float, default 0.0. share of the previous step
    wd: float, default 0.0. weight decay: wd · weight is added to the gradient
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    lazy_update: bool, default True. with a row-sparse gradient: change only the rows that it has
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def mp_sgd_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    weight32: Symbol | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """sgd_update on a float32 copy of a half-precision weight.

    Arrays: weight, grad, weight32 (a state: changed in place).
    lr: float, required. learning rate
    wd: float, default 0.0. weight decay: wd · weight is added to the gradient
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    lazy_update: bool, default True. with a row-sparse gradient: change only the rows that it has
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def multi_all_finite(
    *data: Symbol | Sequence[Symbol],
    num_arrays: int = 1,
    init_output: bool = True,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """1 if none of num_arrays arrays holds an infinity or NaN, else 0. Returns: float32 [1].

    init_output: False: the result is also 0 if out held 0 before.

    Arrays: any number, of one dtype, by position or as a list.
    num_arrays: int, default 1.
    init_output: bool, default True.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def multi_lars(
    lrs: Symbol | None = None,
    weights_sum_sq: Symbol | None = None,
    grads_sum_sq: Symbol | None = None,
    wds: Symbol | None = None,
    *,
    eta: float,
    eps: float,
    rescale_grad: float = 1.0,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """lr eta |w| / (|rescale_grad g| + wd |w| + eps) for each layer, lr if |w| or |g| is 0. Inputs: one element per layer.

    Source: You, Gitman, Ginsburg 2017, arXiv:1708.03888.

    Arrays: lrs, weights_sum_sq, grads_sum_sq, wds.
    eta: float, required.
    eps: float, required.
    rescale_grad: float, default 1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def multi_mp_sgd_mom_update(
    *data: Symbol | Sequence[Symbol],
    lrs: float | Sequence[float],
    wds: float | Sequence[float],
    momentum: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """mp_sgd_mom_update of num_weights weights at once: inputs are weight, grad, mom, weight32 of each in turn.

    lrs, wds: a number for each weight. Returns: the new weights.

    Arrays: any number, of one dtype, by position or as a list.
    lrs: tuple of floats, required.
    wds: tuple of floats, required.
    momentum: float, default 0.0. share of the previous step
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    num_weights: int, default 1.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def multi_mp_sgd_update(
    *data: Symbol | Sequence[Symbol],
    lrs: float | Sequence[float],
    wds: float | Sequence[float],
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """mp_sgd_update of num_weights weights at once: inputs are weight, grad, weight32 of each in turn.

    lrs, wds: a number for each weight. Returns: the new weights.

    Arrays: any number, of one dtype, by position or as a list.
    lrs: tuple of floats, required.
    wds: tuple of floats, required.
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    num_weights: int, default 1.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def multi_sgd_mom_update(
    *data: Symbol | Sequence[Symbol],
    lrs: float | Sequence[float],
    wds: float | Sequence[float],
    momentum: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """sgd_mom_update of num_weights weights at once: inputs are weight, grad, mom of each in turn.

    lrs, wds: a number for each weight. Returns: the new weights.

    Arrays: any number, of one dtype, by position or as a list.
    lrs: tuple of floats, required.
    wds: tuple of floats, required.
    momentum: float, default 0.0. share of the previous step
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    num_weights: int, default 1.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def multi_sgd_update(
    *data: Symbol | Sequence[Symbol],
    lrs: float | Sequence[float],
    wds: float | Sequence[float],
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """sgd_update of num_weights weights at once: inputs are weight, grad of each in turn.

    lrs, wds: a number for each weight. Returns: the new weights.

    Arrays: any number, of one dtype, by position or as a list.
    lrs: tuple of floats, required.
    wds: tuple of floats, required.
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    num_weights: int, default 1.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def multi_sum_sq(
    *data: Symbol | Sequence[Symbol],
    num_arrays: int,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Σ x² of each of num_arrays arrays. Returns: float32 [num_arrays].

    Arrays: any number, of one dtype, by position or as a list.
    num_arrays: int, required.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def nag_mom_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mom: Symbol | None = None,
    *,
    lr: float,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """mom ← momentum mom - lr (g + wd weight); weight + momentum mom - lr (g + wd weight). Source: Nesterov 1983.

    mom contains wd times the new weight, because MXNet updates in place.

    Arrays: weight, grad, mom (a state: changed in place).
    lr: float, required.
    momentum: float, default 0.0.
    wd: float, default 0.0.
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def nanprod(
    data: Symbol | None = None,
    axis: int | Sequence[int | None] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Π data along axis, with NaN taken as 1. Parameters as in sum.

    Arrays: data.
    axis: shape (a tuple of ints, or one), default None. axes to fold; None or (): all
    keepdims: bool, default False. folded axes stay, with size 1
    exclude: bool, default False. fold the axes that are not named
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def nansum(
    data: Symbol | None = None,
    axis: int | Sequence[int | None] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Σ data along axis, with NaN taken as 0. Parameters as in sum.

    Arrays: data.
    axis: shape (a tuple of ints, or one), default None. axes to fold; None or (): all
    keepdims: bool, default False. folded axes stay, with size 1
    exclude: bool, default False. fold the axes that are not named
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def negative(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """-data

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def norm(
    data: Symbol | None = None,
    ord: Literal[1, 2] = 2,
    axis: int | Sequence[int | None] | None = None,
    out_dtype: Literal['float16', 'float32', 'float64', 'int32', 'int64', 'int8'] | None = None,
    keepdims: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The length of data along axis: Σ|x| (ord=1) or √Σx² (ord=2).

    axis: axes to fold; None or (): all, which gives shape (1,). keepdims: they stay, with size 1.
    out_dtype: of the result; that of data when None.
    The derivative at a vector of zeros is NaN for ord=2, as in MXNet, and 0 for ord=1.

    Arrays: data.
    ord: int, one of 1, 2, default 2.
    axis: shape (a tuple of ints, or one), default None.
    out_dtype: str, one of 'float16', 'float32', 'float64', 'int32', 'int64', 'int8', default None.
    keepdims: bool, default False.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def normal(
    loc: float = 0.0,
    scale: float = 1.0,
    shape: int | Sequence[int | None] = (),
    ctx: Any = None,
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Normal with mean loc and standard deviation scale.

    Arrays: none.
    loc: float, default 0.0.
    scale: float, default 1.0.
    shape: shape (a tuple of ints, or one), default (). of the result
    ctx: context, default None. the device of the result, such as 'cpu(0)'; None: the current one
    dtype: dtype, default None. of the result
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def one_hot(
    indices: Symbol | None = None,
    *,
    depth: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    dtype: DTypeLike = ...,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """on_value at the index in indices (fractions are truncated), off_value elsewhere; all off for indices out of range.

    Returns: indices.shape + (depth,), in dtype.

    Arrays: indices.
    depth: int, required.
    on_value: float, default 1.0.
    off_value: float, default 0.0.
    dtype: dtype, default dtype('float32').
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def ones_like(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """Ones in the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def pick(
    data: Symbol | None = None,
    index: Symbol | None = None,
    axis: int = -1,
    keepdims: bool = False,
    mode: Literal['clip', 'wrap'] = 'clip',
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """One element of each line of data along axis, at the index in `index` (truncated).

    index: data's shape without axis, or with size 1 there. mode: indices out of range are clipped, or wrap around.
    Returns: data's shape without axis; with keepdims, size 1 there. Only data has a derivative.

    Arrays: data, index.
    axis: int, default -1.
    keepdims: bool, default False.
    mode: str, one of 'clip', 'wrap', default 'clip'.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def preloaded_multi_mp_sgd_mom_update(
    *data: Symbol | Sequence[Symbol],
    momentum: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """mp_sgd_mom_update of num_weights weights at once: inputs are weight, grad, mom, weight32 of each in turn, then lrs and
        wds.

    lrs, wds: float32 [num_weights]. Returns: the new weights.

    Arrays: any number, of one dtype, by position or as a list.
    momentum: float, default 0.0. share of the previous step
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    num_weights: int, default 1.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def preloaded_multi_mp_sgd_update(
    *data: Symbol | Sequence[Symbol],
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """mp_sgd_update of num_weights weights at once: inputs are weight, grad, weight32 of each in turn, then lrs and wds.

    lrs, wds: float32 [num_weights]. Returns: the new weights.

    Arrays: any number, of one dtype, by position or as a list.
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    num_weights: int, default 1.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def preloaded_multi_sgd_mom_update(
    *data: Symbol | Sequence[Symbol],
    momentum: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """sgd_mom_update of num_weights weights at once: inputs are weight, grad, mom of each in turn, then lrs and wds.

    lrs, wds: float32 [num_weights]. Returns: the new weights.

    Arrays: any number, of one dtype, by position or as a list.
    momentum: float, default 0.0. share of the previous step
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    num_weights: int, default 1.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def preloaded_multi_sgd_update(
    *data: Symbol | Sequence[Symbol],
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """sgd_update of num_weights weights at once: inputs are weight, grad of each in turn, then lrs and wds.

    lrs, wds: float32 [num_weights]. Returns: the new weights.

    Arrays: any number, of one dtype, by position or as a list.
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    num_weights: int, default 1.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def prod(
    data: Symbol | None = None,
    axis: int | Sequence[int | None] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Π data along axis. Parameters as in sum.

    Arrays: data.
    axis: shape (a tuple of ints, or one), default None. axes to fold; None or (): all
    keepdims: bool, default False. folded axes stay, with size 1
    exclude: bool, default False. fold the axes that are not named
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def radians(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """Convert degrees to radians.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_exponential(
    lam: float = 1.0,
    shape: int | Sequence[int | None] = (),
    ctx: Any = None,
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Exponential with rate lam: mean 1 / lam.

    shape: of the result. float dtypes. Not differentiable.

    Arrays: none.
    lam: float, default 1.0.
    shape: shape (a tuple of ints, or one), default (). sizes
    ctx: context, default None. the device of the result, such as 'cpu(0)'; None: the current one
    dtype: dtype, default None. element type; float32 when None
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_exponential_like(
    data: Symbol | None = None,
    lam: float = 1.0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Exponential with rate lam: mean 1 / lam.

    The result has the shape and dtype of data. float dtypes. Not differentiable.

    Arrays: data.
    lam: float, default 1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_gamma(
    alpha: float = 1.0,
    beta: float = 1.0,
    shape: int | Sequence[int | None] = (),
    ctx: Any = None,
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Gamma with shape alpha and scale beta.

    shape: of the result. float dtypes. Not differentiable.

    Arrays: none.
    alpha: float, default 1.0.
    beta: float, default 1.0.
    shape: shape (a tuple of ints, or one), default (). sizes
    ctx: context, default None. the device of the result, such as 'cpu(0)'; None: the current one
    dtype: dtype, default None. element type; float32 when None
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_gamma_like(
    data: Symbol | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Gamma with shape alpha and scale beta.

    The result has the shape and dtype of data. float dtypes. Not differentiable.

    Arrays: data.
    alpha: float, default 1.0.
    beta: float, default 1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_generalized_negative_binomial(
    mu: float = 1.0,
    alpha: float = 1.0,
    shape: int | Sequence[int | None] = (),
    ctx: Any = None,
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Negative binomial with mean mu and dispersion alpha.

    shape: of the result. float dtypes. Not differentiable.

    Arrays: none.
    mu: float, default 1.0.
    alpha: float, default 1.0.
    shape: shape (a tuple of ints, or one), default (). sizes
    ctx: context, default None. the device of the result, such as 'cpu(0)'; None: the current one
    dtype: dtype, default None. element type; float32 when None
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_generalized_negative_binomial_like(
    data: Symbol | None = None,
    mu: float = 1.0,
    alpha: float = 1.0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Negative binomial with mean mu and dispersion alpha.

    The result has the shape and dtype of data. float dtypes. Not differentiable.

    Arrays: data.
    mu: float, default 1.0.
    alpha: float, default 1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_negative_binomial(
    k: float = 1,
    p: float = 1.0,
    shape: int | Sequence[int | None] = (),
    ctx: Any = None,
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Failures before the k-th success, each trial a success with probability p.

    shape: of the result. float dtypes. Not differentiable.

    Arrays: none.
    k: float, default 1.
    p: float, default 1.0.
    shape: shape (a tuple of ints, or one), default (). sizes
    ctx: context, default None. the device of the result, such as 'cpu(0)'; None: the current one
    dtype: dtype, default None. element type; float32 when None
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_negative_binomial_like(
    data: Symbol | None = None,
    k: float = 1,
    p: float = 1.0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Failures before the k-th success, each trial a success with probability p.

    The result has the shape and dtype of data. float dtypes. Not differentiable.

    Arrays: data.
    k: float, default 1.
    p: float, default 1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_normal(
    loc: float = 0.0,
    scale: float = 1.0,
    shape: int | Sequence[int | None] = (),
    ctx: Any = None,
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Normal with mean loc and standard deviation scale.

    Arrays: none.
    loc: float, default 0.0.
    scale: float, default 1.0.
    shape: shape (a tuple of ints, or one), default (). of the result
    ctx: context, default None. the device of the result, such as 'cpu(0)'; None: the current one
    dtype: dtype, default None. of the result
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_normal_like(
    data: Symbol | None = None,
    loc: float = 0.0,
    scale: float = 1.0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Normal with mean loc and standard deviation scale.

    The result has the shape and dtype of data. float dtypes. Not differentiable.

    Arrays: data.
    loc: float, default 0.0.
    scale: float, default 1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_pdf_dirichlet(
    sample: Symbol | None = None,
    alpha: Symbol | None = None,
    is_log: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The density of sample, Dirichlet with concentrations alpha, along the last axis.

    alpha: [..., k]; sample: [..., m, k] or [..., k]. is_log: return the logarithm. Returns: sample.shape[:-1].

    Arrays: sample, alpha.
    is_log: bool, default False.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_pdf_exponential(
    sample: Symbol | None = None,
    lam: Symbol | None = None,
    is_log: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The density of sample, exponential with rate lam.

    is_log: return the logarithm. Returns: the shape of sample.

    Arrays: sample, lam.
    is_log: bool, default False. the logarithm
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_pdf_gamma(
    sample: Symbol | None = None,
    alpha: Symbol | None = None,
    beta: Symbol | None = None,
    is_log: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The density of sample, gamma with shape alpha and rate beta.

    is_log: return the logarithm. Returns: the shape of sample.

    Arrays: sample, alpha, beta.
    is_log: bool, default False. the logarithm
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_pdf_generalized_negative_binomial(
    sample: Symbol | None = None,
    mu: Symbol | None = None,
    alpha: Symbol | None = None,
    is_log: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The probability of sample, negative binomial with mean mu and dispersion alpha.

    is_log: return the logarithm. Returns: the shape of sample.

    Arrays: sample, mu, alpha.
    is_log: bool, default False. the logarithm
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_pdf_negative_binomial(
    sample: Symbol | None = None,
    k: Symbol | None = None,
    p: Symbol | None = None,
    is_log: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The probability of sample failures before the k-th success of probability p.

    is_log: return the logarithm. Returns: the shape of sample.

    Arrays: sample, k, p.
    is_log: bool, default False. the logarithm
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_pdf_normal(
    sample: Symbol | None = None,
    mu: Symbol | None = None,
    sigma: Symbol | None = None,
    is_log: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The density of sample, normal with mean mu and standard deviation sigma.

    is_log: return the logarithm. Returns: the shape of sample.

    Arrays: sample, mu, sigma.
    is_log: bool, default False. the logarithm
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_pdf_poisson(
    sample: Symbol | None = None,
    lam: Symbol | None = None,
    is_log: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The probability of sample, Poisson with mean lam.

    is_log: return the logarithm. Returns: the shape of sample.

    Arrays: sample, lam.
    is_log: bool, default False. the logarithm
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_pdf_uniform(
    sample: Symbol | None = None,
    low: Symbol | None = None,
    high: Symbol | None = None,
    is_log: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The density of sample, uniform between low and high.

    is_log: return the logarithm. Returns: the shape of sample.

    Arrays: sample, low, high.
    is_log: bool, default False. the logarithm
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_poisson(
    lam: float = 1.0,
    shape: int | Sequence[int | None] = (),
    ctx: Any = None,
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Poisson with mean lam.

    shape: of the result. float dtypes. Not differentiable.

    Arrays: none.
    lam: float, default 1.0.
    shape: shape (a tuple of ints, or one), default (). sizes
    ctx: context, default None. the device of the result, such as 'cpu(0)'; None: the current one
    dtype: dtype, default None. element type; float32 when None
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_poisson_like(
    data: Symbol | None = None,
    lam: float = 1.0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Poisson with mean lam.

    The result has the shape and dtype of data. float dtypes. Not differentiable.

    Arrays: data.
    lam: float, default 1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_randint(
    low: float,
    high: float,
    shape: int | Sequence[int | None] = (),
    ctx: Any = None,
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Integers in [low, high), each equally likely.

    Arrays: none.
    low: float, required.
    high: float, required.
    shape: shape (a tuple of ints, or one), default (). of the result
    ctx: context, default None. the device of the result, such as 'cpu(0)'; None: the current one
    dtype: dtype, default None. of the result
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_uniform(
    low: float = 0.0,
    high: float = 1.0,
    shape: int | Sequence[int | None] = (),
    ctx: Any = None,
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Uniform in [low, high).

    Arrays: none.
    low: float, default 0.0.
    high: float, default 1.0.
    shape: shape (a tuple of ints, or one), default (). of the result
    ctx: context, default None. the device of the result, such as 'cpu(0)'; None: the current one
    dtype: dtype, default None. of the result
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def random_uniform_like(
    data: Symbol | None = None,
    low: float = 0.0,
    high: float = 1.0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Uniform in [low, high).

    The result has the shape and dtype of data. float dtypes. Not differentiable.

    Arrays: data.
    low: float, default 0.0.
    high: float, default 1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def ravel_multi_index(
    data: Symbol | None = None,
    shape: int | Sequence[int | None] | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The flat index, in an array of sizes shape, of each column of data [axes, n]. Indices are not checked.

    Arrays: data.
    shape: shape (a tuple of ints, or one), default None.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: one array or a list, as the parameters say.
    """

def rcbrt(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """1 / ∛data

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def reciprocal(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """1 / x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def relu(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """max(data, 0); NaN stays NaN.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def repeat(
    data: Symbol | None = None,
    *,
    repeats: int,
    axis: int | None = None,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Each element repeated `repeats` times along axis; without axis, of the flattened input.

    Arrays: data.
    repeats: int, required.
    axis: int, default None.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def reset_arrays(
    *data: Symbol | Sequence[Symbol],
    num_arrays: int,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Fill num_arrays arrays with zeros, in place. Returns: a placeholder, float32 [1].

    Arrays: any number, of one dtype, by position or as a list.
    num_arrays: int, required.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def reshape_like(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    lhs_begin: int | None = None,
    lhs_end: int | None = None,
    rhs_begin: int | None = None,
    rhs_end: int | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """lhs in the shape of rhs; or its axes lhs_begin:lhs_end in the sizes of rhs's axes rhs_begin:rhs_end.

    Arrays: lhs, rhs.
    lhs_begin: int, default None.
    lhs_end: int, default None.
    rhs_begin: int, default None.
    rhs_end: int, default None.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def reverse(
    data: Symbol | None = None,
    *,
    axis: int | Sequence[int | None],
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """data reversed along each of `axis`.

    Arrays: data.
    axis: shape (a tuple of ints, or one), required.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def rint(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """Round to the nearest integer, halves down, as in MXNet.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def rmsprop_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    n: Symbol | None = None,
    *,
    lr: float,
    gamma1: float = 0.95,
    epsilon: float = 1e-08,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    clip_weights: float = -1.0,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """n ← γ₁ n + (1 - γ₁) g²; weight - lr g / √(n + ε), g with wd weight added before it is clipped.

    Source: Tieleman, Hinton 2012, lecture 6.5.

    Arrays: weight, grad, n (a state: changed in place).
    lr: float, required.
    gamma1: float, default 0.95.
    epsilon: float, default 1e-08. added to a divisor, so that it is not 0
    wd: float, default 0.0.
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    clip_weights: float, default -1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def rmspropalex_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    n: Symbol | None = None,
    g: Symbol | None = None,
    delta: Symbol | None = None,
    *,
    lr: float,
    gamma1: float = 0.95,
    gamma2: float = 0.9,
    epsilon: float = 1e-08,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    clip_weights: float = -1.0,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """RMSProp about the mean gradient, with momentum: delta ← γ₂ delta - lr grad / √(n - g² + ε); weight + delta.

    Source: Graves 2013, arXiv:1308.0850, equations 38 to 45.

    Arrays: weight, grad, n (a state: changed in place), g (a state: changed in place), delta (a state: changed in place).
    lr: float, required.
    gamma1: float, default 0.95.
    gamma2: float, default 0.9.
    epsilon: float, default 1e-08. added to a divisor, so that it is not 0
    wd: float, default 0.0. weight decay: wd · weight is added to the gradient
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    clip_weights: float, default -1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def round(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """Round to the nearest integer, halves away from zero.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def rsqrt(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """1 / √x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def sample_exponential(
    lam: Symbol | None = None,
    shape: int | Sequence[int | None] = (),
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Exponential with rate lam: mean 1 / lam.

    lam: of one shape. The result has that shape followed by `shape`. float dtypes. Not differentiable.

    Arrays: lam.
    shape: shape (a tuple of ints, or one), default (). sizes
    dtype: dtype, default None. element type; float32 when None
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def sample_gamma(
    alpha: Symbol | None = None,
    beta: Symbol | None = None,
    shape: int | Sequence[int | None] = (),
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Gamma with shape alpha and scale beta.

    alpha, beta: of one shape. The result has that shape followed by `shape`. float dtypes. Not differentiable.

    Arrays: alpha, beta.
    shape: shape (a tuple of ints, or one), default (). sizes
    dtype: dtype, default None. element type; float32 when None
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def sample_generalized_negative_binomial(
    mu: Symbol | None = None,
    alpha: Symbol | None = None,
    shape: int | Sequence[int | None] = (),
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Negative binomial with mean mu and dispersion alpha.

    mu, alpha: of one shape. The result has that shape followed by `shape`. float dtypes. Not differentiable.

    Arrays: mu, alpha.
    shape: shape (a tuple of ints, or one), default (). sizes
    dtype: dtype, default None. element type; float32 when None
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def sample_multinomial(
    data: Symbol | None = None,
    shape: int | Sequence[int | None] = (),
    get_prob: bool = False,
    dtype: DTypeLike = ...,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Class indices drawn with the probabilities in data.

    data:      [..., k], probabilities along the last axis; weights with another sum are normalized.
    shape:     of the samples per distribution; (): one sample.
    get_prob:  also returns the logarithm of each drawn class's probability, whose derivative by data is passed on.
    dtype:     of the class indices.
    Returns:   data.shape[:-1] + shape.

    Arrays: data.
    shape: shape (a tuple of ints, or one), default ().
    get_prob: bool, default False.
    dtype: dtype, default dtype('int32').
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def sample_negative_binomial(
    k: Symbol | None = None,
    p: Symbol | None = None,
    shape: int | Sequence[int | None] = (),
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Failures before the k-th success, each trial a success with probability p.

    k, p: of one shape. The result has that shape followed by `shape`. float dtypes. Not differentiable.

    Arrays: k, p.
    shape: shape (a tuple of ints, or one), default (). sizes
    dtype: dtype, default None. element type; float32 when None
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def sample_normal(
    mu: Symbol | None = None,
    sigma: Symbol | None = None,
    shape: int | Sequence[int | None] = (),
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Normal with mean mu and standard deviation sigma.

    mu, sigma: of one shape. The result has that shape followed by `shape`. float dtypes. Not differentiable.

    Arrays: mu, sigma.
    shape: shape (a tuple of ints, or one), default (). sizes
    dtype: dtype, default None. element type; float32 when None
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def sample_poisson(
    lam: Symbol | None = None,
    shape: int | Sequence[int | None] = (),
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Poisson with mean lam.

    lam: of one shape. The result has that shape followed by `shape`. float dtypes. Not differentiable.

    Arrays: lam.
    shape: shape (a tuple of ints, or one), default (). sizes
    dtype: dtype, default None. element type; float32 when None
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def sample_uniform(
    low: Symbol | None = None,
    high: Symbol | None = None,
    shape: int | Sequence[int | None] = (),
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Uniform in [low, high).

    low, high: of one shape. The result has that shape followed by `shape`. float dtypes. Not differentiable.

    Arrays: low, high.
    shape: shape (a tuple of ints, or one), default (). sizes
    dtype: dtype, default None. element type; float32 when None
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def scatter_nd(
    data: Symbol | None = None,
    indices: Symbol | None = None,
    *,
    shape: int | Sequence[int | None],
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Zeros of `shape` with the slices of data put at [indices[0, i], indices[1, i], ...]; of equal indices the last counts.

    Indices as in gather_nd, whose inverse this is.

    Arrays: data, indices.
    shape: shape (a tuple of ints, or one), required.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def sgd_mom_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mom: Symbol | None = None,
    *,
    lr: float,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """mom ← momentum mom - lr (g + wd weight); weight + mom. Source: Polyak 1964.

    Arrays: weight, grad, mom (a state: changed in place).
    lr: float, required.
    momentum: float, default 0.0.
    wd: float, default 0.0.
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    lazy_update: bool, default True. with a row-sparse gradient: change only the rows that it has
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def sgd_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """weight - lr (g + wd weight), g the rescaled and clipped gradient.

    Arrays: weight, grad.
    lr: float, required.
    wd: float, default 0.0.
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    lazy_update: bool, default True. with a row-sparse gradient: change only the rows that it has
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def shape_array(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """The shape of data as int64.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def shuffle(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """The slices of data along axis 0 in a random order, each order equally likely. Not differentiable.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def sigmoid(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """1 / (1 + e⁻ˣ)

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def sign(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """-1, 0 or 1; 0 for NaN.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def signsgd_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """(1 - lr wd) weight - lr sign(grad). rescale_grad and clip_gradient have no effect.

    Arrays: weight, grad.
    lr: float, required.
    wd: float, default 0.0.
    rescale_grad: float, default 1.0.
    clip_gradient: float, default -1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def signum_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mom: Symbol | None = None,
    *,
    lr: float,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    wd_lh: float = 0.0,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """mom ← momentum mom - (1 - momentum) (g + wd weight); (1 - lr wd_lh) weight + lr sign(mom).

    Source: Bernstein et al. 2018, arXiv:1802.04434; wd_lh: Loshchilov, Hutter 2017.

    Arrays: weight, grad, mom (a state: changed in place).
    lr: float, required.
    momentum: float, default 0.0.
    wd: float, default 0.0.
    rescale_grad: float, default 1.0. factor of the gradient, applied first
    clip_gradient: float, default -1.0. bound of the rescaled gradient's elements; negative: none
    wd_lh: float, default 0.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def sin(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """sin x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def sinh(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """sinh x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def size_array(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """The number of elements of data as int64 [1].

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def slice(
    data: Symbol | None = None,
    *,
    begin: int | Sequence[int | None],
    end: int | Sequence[int | None],
    step: int | Sequence[int | None] = (),
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """begin:end:step of the first axes, as Python slices (None: from the first, or to the last).

    Arrays: data.
    begin: tuple of ints and None, required.
    end: tuple of ints and None, required.
    step: tuple of ints and None, default ().
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def slice_axis(
    data: Symbol | None = None,
    *,
    axis: int,
    begin: int,
    end: int | None = None,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """begin:end along one axis; negative values count from the end, end=None is the end.

    Arrays: data.
    axis: int, required.
    begin: int, required.
    end: int, default None.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def slice_like(
    data: Symbol | None = None,
    shape_like: Symbol | None = None,
    axes: int | Sequence[int | None] = (),
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The first input cut to the sizes of the second along `axes`, or along all axes.

    Arrays: data, shape_like.
    axes: shape (a tuple of ints, or one), default ().
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def smooth_l1(
    data: Symbol | None = None,
    scalar: float = 1.0,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Smooth L1: quadratic where |data| < 1/scalar², linear outside. scalar 0: zeros.

    Arrays: data.
    scalar: float, default 1.0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def softmax(
    data: Symbol | None = None,
    axis: int = -1,
    temperature: float | None = None,
    dtype: str | None = None,
    use_length: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """exp(x / temperature) / Σ exp(x / temperature) along axis.

    length: with use_length, the number of valid elements of each row; the others give 0.
    dtype:  of the output; None: that of the data.

    Arrays: data.
    axis: int, default -1.
    temperature: float, default None.
    dtype: str, default None.
    use_length: bool, default False.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def softmax_cross_entropy(
    data: Symbol | None = None,
    label: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Σ over the batch of -log softmax(data)[label]. data: [n, c], label: [n], class indices. Returns: [1].

    A label out of range adds the logarithm of the sum of exponentials, and its derivative is that of softmax alone.

    Arrays: data, label.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def softmin(
    data: Symbol | None = None,
    axis: int = -1,
    temperature: float | None = None,
    dtype: str | None = None,
    use_length: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """softmax(-x / temperature) along axis.

    Arrays: data.
    axis: int, default -1.
    temperature: float, default None.
    dtype: str, default None. of the result
    use_length: bool, default False. a further input gives the length of each row
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def softsign(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """data / (1 + |data|)

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def sort(
    data: Symbol | None = None,
    axis: Any = -1,
    is_ascend: bool = True,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """data sorted along axis. axis None: sorted and flattened.

    Arrays: data.
    axis: value, default -1.
    is_ascend: bool, default True. the smallest first
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def space_to_depth(
    data: Symbol | None = None,
    *,
    block_size: int,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """[n, c, h·b, w·b] to [n, b·b·c, h, w], b = block_size.

    Arrays: data.
    block_size: int, required.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def sqrt(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """√x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def square(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """x², element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def squeeze(
    data: Symbol | None = None,
    axis: int | Sequence[int | None] | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Remove the axes of size 1, or those named. At least one axis stays.

    Arrays: data.
    axis: shape (a tuple of ints, or one), default None.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def stack(
    *data: Symbol | Sequence[Symbol],
    axis: int = 0,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Inputs of equal shape joined along a new axis.

    Arrays: any number, of one dtype, by position or as a list.
    axis: int, default 0.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def sum(
    data: Symbol | None = None,
    axis: int | Sequence[int | None] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Σ data along axis.

    axis: axes to reduce; None or (): all axes, which gives shape (1,). keepdims: keep them with size 1.
    exclude: reduce the axes that are not named. Half precision is summed in float32 and rounded once.

    Arrays: data.
    axis: shape (a tuple of ints, or one), default None. axes to fold; None or (): all
    keepdims: bool, default False. folded axes stay, with size 1
    exclude: bool, default False. fold the axes that are not named
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def take(
    a: Symbol | None = None,
    indices: Symbol | None = None,
    axis: int = 0,
    mode: Literal['clip', 'wrap', 'raise'] = 'clip',
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Slices of a along axis at indices (truncated).

    mode: indices out of range are clipped ("clip"), wrap around ("wrap") or raise an error ("raise"; a GPU clips).
    Returns: a.shape[:axis] + indices.shape + a.shape[axis + 1:].

    Arrays: a, indices.
    axis: int, default 0.
    mode: str, one of 'clip', 'wrap', 'raise', default 'clip'.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def tan(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """tan x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def tanh(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """tanh x, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def tile(
    data: Symbol | None = None,
    *,
    reps: int | Sequence[int | None],
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The input repeated reps[i] times along axis i; the shorter of shape and reps is padded with ones in front.

    Arrays: data.
    reps: shape (a tuple of ints, or one), required.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def topk(
    data: Symbol | None = None,
    axis: Any = -1,
    k: int = 1,
    ret_typ: Literal['value', 'indices', 'mask', 'both'] = 'indices',
    is_ascend: bool = False,
    dtype: DTypeLike = ...,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The k largest along axis (with is_ascend, the smallest), in order. axis None: of all elements. k < 1: all elements.

    ret_typ: "value"; "indices", in dtype; "both"; or "mask", 1 at the selected elements, else 0.
    Only values have a derivative.

    Arrays: data.
    axis: value, default -1.
    k: int, default 1.
    ret_typ: str, one of 'value', 'indices', 'mask', 'both', default 'indices'.
    is_ascend: bool, default False.
    dtype: dtype, default dtype('float32').
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def transpose(
    data: Symbol | None = None,
    axes: int | Sequence[int | None] = (),
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Axes in the order `axes`, or reversed.

    Arrays: data.
    axes: shape (a tuple of ints, or one), default ().
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def trunc(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """x without its fraction, element by element.

    data: any shape. Returns: the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def uniform(
    low: float = 0.0,
    high: float = 1.0,
    shape: int | Sequence[int | None] = (),
    ctx: Any = None,
    dtype: DTypeLike | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """Uniform in [low, high).

    Arrays: none.
    low: float, default 0.0.
    high: float, default 1.0.
    shape: shape (a tuple of ints, or one), default (). of the result
    ctx: context, default None. the device of the result, such as 'cpu(0)'; None: the current one
    dtype: dtype, default None. of the result
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def unravel_index(
    data: Symbol | None = None,
    shape: int | Sequence[int | None] | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """The index per axis, in an array of sizes shape, of each flat index in data. Returns: (axes,) + data.shape.

    Arrays: data.
    shape: shape (a tuple of ints, or one), default None.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: one array or a list, as the parameters say.
    """

def where(
    condition: Symbol | None = None,
    x: Symbol | None = None,
    y: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Any = None,
    **kwargs: Any
) -> Symbol:
    """x where condition is not 0, else y.

    condition: of x's shape, any dtype; or one axis with a value for each row of x. x and y have derivatives.

    Arrays: condition, x, y.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

def zeros_like(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
    """Zeros in the shape and dtype of data.

    Arrays: data.
    out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.
    Returns: an array.
    """

BatchNorm_v1 = BatchNorm
Convolution_v1 = Convolution
ElementWiseSum = add_n
Softmax = SoftmaxOutput
broadcast_axes = broadcast_axis
broadcast_minus = broadcast_sub
broadcast_plus = broadcast_add
cast = Cast
choose_element_0index = pick
concat = Concat
crop = slice
ctc_loss = CTCLoss
flatten = Flatten
flip = reverse
max_axis = max
min_axis = min
pad = Pad
reshape = Reshape
split = SliceChannel
stop_gradient = BlockGrad
sum_axis = sum
swapaxes = SwapAxis

class _Contrib(ModuleType):
    def __getattr__(self, name: str) -> Any: ...
    @staticmethod
    def AdaptiveAvgPooling2D(
        data: Symbol | None = None,
        output_size: int | Sequence[int | None] = (),
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Means over output_size parts of the planes of data [n, c, h, w]. output_size: one number for both axes, or two; (): 1."""
    @staticmethod
    def BilinearResize2D(
        data: Symbol | None = None,
        height: int = 1,
        width: int = 1,
        scale_height: float | None = None,
        scale_width: float | None = None,
        mode: Literal['size', 'odd_scale', 'like', 'to_even_down', 'to_even_up', 'to_odd_down', 'to_odd_up'] = 'size',
        align_corners: bool = True,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """The planes of data [n, c, h, w] in another size, by bilinear interpolation."""
    @staticmethod
    def CTCLoss(
        data: Symbol | None = None,
        label: Symbol | None = None,
        use_data_lengths: bool = False,
        use_label_lengths: bool = False,
        blank_label: Literal['first', 'last'] = 'first',
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """-log of the probability that data spells label, over all alignments."""
    @staticmethod
    def DeformableConvolution(
        data: Symbol | None = None,
        offset: Symbol | None = None,
        weight: Symbol | None = None,
        bias: Symbol | None = None,
        *,
        kernel: int | Sequence[int | None],
        stride: int | Sequence[int | None] = (),
        dilate: int | Sequence[int | None] = (),
        pad: int | Sequence[int | None] = (),
        num_filter: int,
        num_group: int = 1,
        num_deformable_group: int = 1,
        workspace: int = 1024,
        no_bias: bool = False,
        layout: str | None = None,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Convolution of data [n, c, h, w] with kernel elements displaced by offset, in elements of the data."""
    @staticmethod
    def DeformablePSROIPooling(
        data: Symbol | None = None,
        rois: Symbol | None = None,
        trans: Symbol | None = None,
        *,
        spatial_scale: float,
        output_dim: int,
        group_size: int,
        pooled_size: int,
        part_size: int = 0,
        sample_per_part: int = 1,
        trans_std: float = 0.0,
        no_trans: bool = False,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """PSROIPooling with displaced bins: by trans · trans_std · the size of the region."""
    @staticmethod
    def ModulatedDeformableConvolution(
        data: Symbol | None = None,
        offset: Symbol | None = None,
        mask: Symbol | None = None,
        weight: Symbol | None = None,
        bias: Symbol | None = None,
        *,
        kernel: int | Sequence[int | None],
        stride: int | Sequence[int | None] = (),
        dilate: int | Sequence[int | None] = (),
        pad: int | Sequence[int | None] = (),
        num_filter: int,
        num_group: int = 1,
        num_deformable_group: int = 1,
        workspace: int = 1024,
        no_bias: bool = False,
        im2col_step: int = 64,
        layout: str | None = None,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """DeformableConvolution with points also weighted by mask [n, kh · kw · num_deformable_group, h', w']."""
    @staticmethod
    def MultiBoxDetection(
        cls_prob: Symbol | None = None,
        loc_pred: Symbol | None = None,
        anchor: Symbol | None = None,
        clip: bool = True,
        threshold: float = 0.01,
        background_id: int = 0,
        nms_threshold: float = 0.5,
        force_suppress: bool = False,
        variances: float | Sequence[float] = (0.1, 0.1, 0.2, 0.2),
        nms_topk: int = -1,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Detections: the best class and the box of each anchor after non-maximum suppression, best first."""
    @staticmethod
    def MultiBoxPrior(
        data: Symbol | None = None,
        sizes: float | Sequence[float] = (1.0,),
        ratios: float | Sequence[float] = (1.0,),
        clip: bool = False,
        steps: float | Sequence[float] = (-1.0, -1.0),
        offsets: float | Sequence[float] = (0.5, 0.5),
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Anchors around every element of the planes of data [n, c, h, w]: all sizes with the first ratio, then the first size"""
    @staticmethod
    def MultiBoxTarget(
        anchor: Symbol | None = None,
        label: Symbol | None = None,
        cls_pred: Symbol | None = None,
        overlap_threshold: float = 0.5,
        ignore_label: float = -1.0,
        negative_mining_ratio: float = -1.0,
        negative_mining_thresh: float = 0.5,
        minimum_negative_samples: int = 0,
        variances: float | Sequence[float] = (0.1, 0.1, 0.2, 0.2),
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Training targets of a detector for each anchor."""
    @staticmethod
    def MultiProposal(
        cls_prob: Symbol | None = None,
        bbox_pred: Symbol | None = None,
        im_info: Symbol | None = None,
        rpn_pre_nms_top_n: int = 6000,
        rpn_post_nms_top_n: int = 300,
        threshold: float = 0.7,
        rpn_min_size: int = 16,
        scales: float | Sequence[float] = (4.0, 8.0, 16.0, 32.0),
        ratios: float | Sequence[float] = (0.5, 1.0, 2.0),
        feature_stride: int = 16,
        output_score: bool = False,
        iou_loss: bool = False,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Proposal for a whole batch: cls_prob [n, 2 · anchors, h, w]. Returns: [n · rpn_post_nms_top_n, 5], image after image."""
    @staticmethod
    def PSROIPooling(
        data: Symbol | None = None,
        rois: Symbol | None = None,
        *,
        spatial_scale: float,
        output_dim: int,
        pooled_size: int,
        group_size: int = 0,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """The mean of the elements in each of pooled_size × pooled_size bins of each region; bin (i, j) reads channel group (i, j)."""
    @staticmethod
    def Proposal(
        cls_prob: Symbol | None = None,
        bbox_pred: Symbol | None = None,
        im_info: Symbol | None = None,
        rpn_pre_nms_top_n: int = 6000,
        rpn_post_nms_top_n: int = 300,
        threshold: float = 0.7,
        rpn_min_size: int = 16,
        scales: float | Sequence[float] = (4.0, 8.0, 16.0, 32.0),
        ratios: float | Sequence[float] = (0.5, 1.0, 2.0),
        feature_stride: int = 16,
        output_score: bool = False,
        iou_loss: bool = False,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Regions [image, left, top, right, bottom], in pixels with the last included, best first; with output_score also [.., 1]."""
    @staticmethod
    def ROIAlign(
        data: Symbol | None = None,
        rois: Symbol | None = None,
        *,
        pooled_size: int | Sequence[int | None],
        spatial_scale: float,
        sample_ratio: int = -1,
        position_sensitive: bool = False,
        aligned: bool = False,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """The mean of sample_ratio × sample_ratio points in each of pooled_size bins of each region, without rounding."""
    @staticmethod
    def RROIAlign(
        data: Symbol | None = None,
        rois: Symbol | None = None,
        *,
        pooled_size: int | Sequence[int | None],
        spatial_scale: float,
        sampling_ratio: int = -1,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """The mean of sampling_ratio × sampling_ratio points in each of pooled_size bins of each region, which may be rotated."""
    @staticmethod
    def SparseEmbedding(
        data: Symbol | None = None,
        weight: Symbol | None = None,
        *,
        input_dim: int,
        output_dim: int,
        dtype: DTypeLike = ...,
        sparse_grad: bool = False,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """The rows of weight [input_dim, output_dim] at the indices in data; indices out of range are clipped."""
    @staticmethod
    def SyncBatchNorm(
        data: Symbol | None = None,
        gamma: Symbol | None = None,
        beta: Symbol | None = None,
        moving_mean: Symbol | None = None,
        moving_var: Symbol | None = None,
        ndev: int = 1,
        key: str = '',
        eps: float = 0.001,
        momentum: float = 0.9,
        fix_gamma: bool = True,
        use_global_stats: bool = False,
        output_mean_var: bool = False,
        axis: int = 1,
        min_calib_range: float | None = None,
        max_calib_range: float | None = None,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """BatchNorm under MXNet's name for statistics shared by several devices; here each device uses its own."""
    @staticmethod
    def allclose(
        a: Symbol | None = None,
        b: Symbol | None = None,
        rtol: float = 1e-05,
        atol: float = 1e-08,
        equal_nan: bool = False,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """1 if |a - b| ≤ atol + rtol |b| everywhere, else 0; uint8, of shape (). equal_nan: NaN equals NaN."""
    @staticmethod
    def arange_like(
        data: Symbol | None = None,
        start: float = 0.0,
        step: float = 1.0,
        repeat: int = 1,
        ctx: Any = None,
        axis: int | None = None,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """start, start + step, …, each `repeat` times, in the shape of data; with `axis`, [size of that axis]."""
    @staticmethod
    def attention(
        query: Symbol | None = None,
        key: Symbol | None = None,
        value: Symbol | None = None,
        mask: Symbol | None = None,
        causal: bool = False,
        scale: float | None = None,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """softmax(scale · query keyᵀ + mask) value: scaled dot-product attention."""
    @staticmethod
    def bipartite_matching(
        data: Symbol | None = None,
        is_ascend: bool = False,
        *,
        threshold: float,
        topk: int = -1,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Greedy matching of rows and columns by score, each at most once."""
    @staticmethod
    def box_decode(
        data: Symbol | None = None,
        anchors: Symbol | None = None,
        std0: float = 1.0,
        std1: float = 1.0,
        std2: float = 1.0,
        std3: float = 1.0,
        clip: float = -1.0,
        format: Literal['corner', 'center'] = 'center',
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Decode data [b, n, 4] relative to anchors [1, n, 4] to boxes in corner form: the inverse of box_encode."""
    @staticmethod
    def box_encode(
        samples: Symbol | None = None,
        matches: Symbol | None = None,
        anchors: Symbol | None = None,
        refs: Symbol | None = None,
        means: Symbol | None = None,
        stds: Symbol | None = None,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Training targets of each anchor: its reference box, encoded relative to the anchor."""
    @staticmethod
    def box_iou(
        lhs: Symbol | None = None,
        rhs: Symbol | None = None,
        format: Literal['corner', 'center'] = 'corner',
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Intersection over union of every pair of boxes."""
    @staticmethod
    def box_nms(
        data: Symbol | None = None,
        overlap_thresh: float = 0.5,
        valid_thresh: float = 0.0,
        topk: int = -1,
        coord_start: int = 2,
        score_index: int = 1,
        id_index: int = -1,
        background_id: int = -1,
        force_suppress: bool = False,
        in_format: Literal['corner', 'center'] = 'corner',
        out_format: Literal['corner', 'center'] = 'corner',
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Non-maximum suppression: the boxes that do not overlap a better box of their class by more than overlap_thresh."""
    @staticmethod
    def box_non_maximum_suppression(
        data: Symbol | None = None,
        overlap_thresh: float = 0.5,
        valid_thresh: float = 0.0,
        topk: int = -1,
        coord_start: int = 2,
        score_index: int = 1,
        id_index: int = -1,
        background_id: int = -1,
        force_suppress: bool = False,
        in_format: Literal['corner', 'center'] = 'corner',
        out_format: Literal['corner', 'center'] = 'corner',
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Non-maximum suppression: the boxes that do not overlap a better box of their class by more than overlap_thresh."""
    @staticmethod
    def count_sketch(
        data: Symbol | None = None,
        h: Symbol | None = None,
        s: Symbol | None = None,
        *,
        out_dim: int,
        processing_batch_size: int = 32,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Element i of each row of data is added, times s[i], to element h[i] of the result's row."""
    @staticmethod
    def ctc_loss(
        data: Symbol | None = None,
        label: Symbol | None = None,
        use_data_lengths: bool = False,
        use_label_lengths: bool = False,
        blank_label: Literal['first', 'last'] = 'first',
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """-log of the probability that data spells label, over all alignments."""
    @staticmethod
    def dequantize(
        data: Symbol | None = None,
        min_range: Symbol | None = None,
        max_range: Symbol | None = None,
        out_type: Literal['float32'] = 'float32',
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """The floats that eight-bit integers represent: data · max(|min_range|, |max_range|) / 127.5, or / 255.5 for uint8."""
    @staticmethod
    def div_sqrt_dim(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
        """data / √(the size of its last axis)."""
    @staticmethod
    def fft(
        data: Symbol | None = None,
        compute_size: int = 128,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Σ data[k] exp(-2πi jk/d) for each j. data: [..., d], real. Returns: [..., 2 d], complex."""
    @staticmethod
    def gradientmultiplier(
        data: Symbol | None = None,
        scalar: float = 1.0,
        is_int: bool = True,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """data unchanged; its derivative times scalar. A negative scalar reverses it (Ganin, Lempitsky 2015, arXiv:1409.7495)."""
    @staticmethod
    def group_adagrad_update(
        weight: Symbol | None = None,
        grad: Symbol | None = None,
        history: Symbol | None = None,
        *,
        lr: float,
        rescale_grad: float = 1.0,
        clip_gradient: float = -1.0,
        epsilon: float = 1e-05,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Adagrad with one history value per row: history ← history + mean of g² over the row; weight - lr g / √(history + ε)."""
    @staticmethod
    def ifft(
        data: Symbol | None = None,
        compute_size: int = 128,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """The real part of Σ data[k] exp(2πi jk/d) for each j; divide by d for the inverse of fft."""
    @staticmethod
    def index_array(
        data: Symbol | None = None,
        axes: int | Sequence[int | None] | None = None,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """The index of every element of data along all axes, or along `axes`: int64 [*data.shape, axes]."""
    @staticmethod
    def index_copy(
        old_tensor: Symbol | None = None,
        index_vector: Symbol | None = None,
        new_tensor: Symbol | None = None,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """old_tensor with its rows index_vector replaced by the rows of new_tensor, in order."""
    @staticmethod
    def interleaved_matmul_encdec_qk(
        queries: Symbol | None = None,
        keys_values: Symbol | None = None,
        *,
        heads: int,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """q kᵀ / √depth of each head, with separate queries: [batch · heads, queries, keys]."""
    @staticmethod
    def interleaved_matmul_encdec_valatt(
        keys_values: Symbol | None = None,
        attention: Symbol | None = None,
        *,
        heads: int,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """attention [batch · heads, queries, keys] times the values: [queries, batch, heads · depth]."""
    @staticmethod
    def interleaved_matmul_selfatt_qk(
        queries_keys_values: Symbol | None = None,
        *,
        heads: int,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """q kᵀ / √depth of each head: [batch · heads, time, time]."""
    @staticmethod
    def interleaved_matmul_selfatt_valatt(
        queries_keys_values: Symbol | None = None,
        attention: Symbol | None = None,
        *,
        heads: int,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """attention [batch · heads, time, time] times the values: [time, batch, heads · depth]."""
    @staticmethod
    def isclose(
        a: Symbol | None = None,
        b: Symbol | None = None,
        rtol: float = 1e-05,
        atol: float = 1e-08,
        equal_nan: bool = False,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """1 where |a - b| ≤ atol + rtol |b|, or both are one infinity, else 0. equal_nan: NaN equals NaN."""
    @staticmethod
    def isfinite(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
        """1 where data is neither NaN nor an infinity, else 0."""
    @staticmethod
    def isinf(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
        """1 where data is an infinity, else 0."""
    @staticmethod
    def isnan(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
        """1 where data is NaN, else 0."""
    @staticmethod
    def quadratic(
        data: Symbol | None = None,
        a: float = 0.0,
        b: float = 0.0,
        c: float = 0.0,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """a data² + b data + c."""
    @staticmethod
    def quantize(
        data: Symbol | None = None,
        min_range: Symbol | None = None,
        max_range: Symbol | None = None,
        out_type: Literal['int8', 'uint8'] = 'uint8',
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """data as eight-bit integers; min_range and max_range, [1] each, are the range they represent."""
    @staticmethod
    def quantize_v2(
        data: Symbol | None = None,
        out_type: Literal['auto', 'int8', 'uint8'] = 'int8',
        min_calib_range: float | None = None,
        max_calib_range: float | None = None,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """data as eight-bit integers, in the range min_calib_range to max_calib_range, or in the range of data."""
    @staticmethod
    def requantize(
        data: Symbol | None = None,
        min_range: Symbol | None = None,
        max_range: Symbol | None = None,
        out_type: Literal['auto', 'int8', 'uint8'] = 'int8',
        min_calib_range: float | None = None,
        max_calib_range: float | None = None,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Sums of products of eight-bit integers (int32 in the range min_range to max_range) as eight-bit integers."""
    @staticmethod
    def round_ste(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
        """data rounded, halves away from zero; the derivative passes unchanged (straight-through estimator)."""
    @staticmethod
    def sign_ste(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
        """The sign of data; the derivative passes unchanged (straight-through estimator)."""

contrib: _Contrib

class _Linalg(ModuleType):
    def __getattr__(self, name: str) -> Any: ...
    @staticmethod
    def det(A: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
        """The determinant of each matrix. A: [..., n, n]. Returns: [...], or (1,) for one matrix."""
    @staticmethod
    def extractdiag(
        A: Symbol | None = None,
        offset: int = 0,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """The diagonal of each matrix A [..., n, n] as a vector [..., n - |offset|]; offset above 0: above the main one."""
    @staticmethod
    def extracttrian(
        A: Symbol | None = None,
        offset: int = 0,
        lower: bool = True,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """A triangle of each matrix A [..., n, n] as a vector: a lower one row by row, an upper one column by column."""
    @staticmethod
    def gelqf(A: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
        """A = L Q: Q has orthonormal rows, L is lower triangular. A: [..., m, n], m ≤ n, of full rank."""
    @staticmethod
    def gemm(
        A: Symbol | None = None,
        B: Symbol | None = None,
        C: Symbol | None = None,
        transpose_a: bool = False,
        transpose_b: bool = False,
        alpha: float = 1.0,
        beta: float = 1.0,
        axis: int = -2,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """alpha · A B + beta · C for each matrix; A, B transposed if asked."""
    @staticmethod
    def gemm2(
        A: Symbol | None = None,
        B: Symbol | None = None,
        transpose_a: bool = False,
        transpose_b: bool = False,
        alpha: float = 1.0,
        axis: int = -2,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """alpha · A B for each matrix; A, B transposed if asked."""
    @staticmethod
    def inverse(A: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
        """The inverse of each matrix. A: [..., n, n]."""
    @staticmethod
    def makediag(
        A: Symbol | None = None,
        offset: int = 0,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Matrices [..., n + |offset|, n + |offset|] of zeros, with A [..., n] on the diagonal `offset`."""
    @staticmethod
    def maketrian(
        A: Symbol | None = None,
        offset: int = 0,
        lower: bool = True,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Matrices of zeros with A [..., n (n + 1) / 2] in a triangle; the order, offset and lower as in extracttrian."""
    @staticmethod
    def potrf(
        A: Symbol | None = None,
        lower: bool = True,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """The lower triangular L with A = L Lᵀ (Cholesky), or with lower=False the upper triangular U with A = Uᵀ U."""
    @staticmethod
    def potri(
        A: Symbol | None = None,
        lower: bool = True,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """(A Aᵀ)⁻¹ for a lower triangular A, or with lower=False (Aᵀ A)⁻¹ for an upper triangular one."""
    @staticmethod
    def slogdet(A: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
        """The sign of each matrix's determinant, and the logarithm of its absolute value (sign 0 and -inf for a singular one)."""
    @staticmethod
    def sumlogdiag(A: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
        """The sum of the logarithms of the diagonal of each matrix. A: [..., n, n]. Returns: [...], or (1,) for one matrix."""
    @staticmethod
    def syevd(A: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
        """A = Uᵀ diag(λ) U: the rows of U are eigenvectors, λ ascends. A: [..., n, n], symmetric; its lower triangle is read."""
    @staticmethod
    def syrk(
        A: Symbol | None = None,
        transpose: bool = False,
        alpha: float = 1.0,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """alpha · A Aᵀ of each matrix, or alpha · Aᵀ A with transpose. A: [..., m, n]."""
    @staticmethod
    def trmm(
        A: Symbol | None = None,
        B: Symbol | None = None,
        transpose: bool = False,
        rightside: bool = False,
        lower: bool = True,
        alpha: float = 1.0,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """alpha · T B for each matrix, or alpha · B T with rightside; T is the triangle of A (lower or upper), or its transpose."""
    @staticmethod
    def trsm(
        A: Symbol | None = None,
        B: Symbol | None = None,
        transpose: bool = False,
        rightside: bool = False,
        lower: bool = True,
        alpha: float = 1.0,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """The X with T X = alpha · B, or X T = alpha · B with rightside; T is the triangle of A (lower or upper), or its transpose."""

linalg: _Linalg

class _Image(ModuleType):
    def __getattr__(self, name: str) -> Any: ...
    @staticmethod
    def adjust_lighting(
        data: Symbol | None = None,
        *,
        alpha: float | Sequence[float],
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Light added along the principal components of the colours, alpha[i] of each. data: [h, w, c]; alpha: three numbers."""
    @staticmethod
    def crop(
        data: Symbol | None = None,
        *,
        x: int,
        y: int,
        width: int,
        height: int,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """The window of an image of height × width positions that begins at row y and column x. data: [h, w, c] or [n, h, w, c]."""
    @staticmethod
    def flip_left_right(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
        """The image flipped left to right. data: [h, w, c] or [n, h, w, c]."""
    @staticmethod
    def flip_top_bottom(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
        """The image flipped top to bottom. data: [h, w, c] or [n, h, w, c]."""
    @staticmethod
    def normalize(
        data: Symbol | None = None,
        mean: float | Sequence[float] = (0.0,),
        std: float | Sequence[float] = (1.0,),
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """(data - mean) / std, channel by channel. data: [c, h, w] or [n, c, h, w]; mean, std: one number, or one per channel."""
    @staticmethod
    def random_brightness(
        data: Symbol | None = None,
        *,
        min_factor: float,
        max_factor: float,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """data times a factor from min_factor to max_factor. data: [h, w, c]."""
    @staticmethod
    def random_color_jitter(
        data: Symbol | None = None,
        *,
        brightness: float,
        contrast: float,
        saturation: float,
        hue: float,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Brightness, contrast and saturation changed by random factors within 1 ± their parameter, hue rotated within ± hue."""
    @staticmethod
    def random_contrast(
        data: Symbol | None = None,
        *,
        min_factor: float,
        max_factor: float,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """data's distance from its mean gray, times a factor from min_factor to max_factor. data: [h, w, c]."""
    @staticmethod
    def random_flip_left_right(
        data: Symbol | None = None,
        p: float = 0.5,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """data [h, w, c] flipped left to right with probability p."""
    @staticmethod
    def random_flip_top_bottom(
        data: Symbol | None = None,
        p: float = 0.5,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """data [h, w, c] flipped top to bottom with probability p."""
    @staticmethod
    def random_hue(
        data: Symbol | None = None,
        *,
        min_factor: float,
        max_factor: float,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Hue rotated by a fraction of the colour circle, from min_factor to max_factor. data: [h, w, c]."""
    @staticmethod
    def random_lighting(
        data: Symbol | None = None,
        alpha_std: float = 0.05,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Random light along the principal components, normal with standard deviation alpha_std. data: [h, w, c]."""
    @staticmethod
    def random_saturation(
        data: Symbol | None = None,
        *,
        min_factor: float,
        max_factor: float,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Each element's distance from its gray, times a factor from min_factor to max_factor. data: [h, w, c]."""
    @staticmethod
    def resize(
        data: Symbol | None = None,
        size: int | Sequence[int | None] = (),
        keep_ratio: bool = False,
        interp: int = 1,
        *,
        name: str | None = None,
        attr: Any = None,
        **kwargs: Any
    ) -> Symbol:
        """Images in another size. data: [h, w, c] or [n, h, w, c]; integer results are rounded. No derivative."""
    @staticmethod
    def to_tensor(data: Symbol | None = None, *, name: str | None = None, attr: Any = None, **kwargs: Any) -> Symbol:
        """data [h, w, c] or [n, h, w, c] with values 0 … 255, as float32 [c, h, w] or [n, c, h, w] with values 0 … 1."""

image: _Image
