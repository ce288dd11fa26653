"""Every registered operator: CPU equals the interpreted GPU, forward and backward, and its gradient is the slope.

Traced operators prove themselves from their declaration (tests/kernels/ops/tensor/test_elementwise.py); this table gives the
others something to work on. An operator that is in neither fails `test_no_operator_is_left_out`.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from tritium.kernels import registered
from tritium.kernels.declare.reduction import ReductionOp
from tritium.kernels.declare.simple_op import SimpleOp


@dataclass(frozen=True)
class Integers:
    """An input of random integers in 0..below-1."""

    shape: tuple[int, ...]
    below: int


@dataclass(frozen=True)
class Case:
    """One use of an operator.

    shapes: one for each input of normal random numbers, or Integers.
    differentiable: the inputs that have a derivative; None: all of them, (): none.
    slope: False where the derivative is not the slope: a loss ignores the head's, random operators have tests of their own.
    positive: the inputs that are variances, made positive when the derivative is compared with the slope.
    """

    shapes: list[tuple[int, ...] | Integers]
    params: dict[str, Any] = field(default_factory=dict)
    differentiable: tuple[int, ...] | None = None
    slope: bool = True
    positive: tuple[int, ...] = ()

    def variables(self) -> range | tuple[int, ...]:
        return range(len(self.shapes)) if self.differentiable is None else self.differentiable


DISTRIBUTIONS = ("uniform", "normal", "exponential", "gamma", "poisson", "negative_binomial", "generalized_negative_binomial")
#: name -> cases. An operator without cases has tests of its own, in the file that the comment names.
TABLE = {
    "FullyConnected": [Case([(4, 6), (5, 6), (5,)], {"num_hidden": 5}),
                       Case([(4, 2, 3), (5, 6)], {"num_hidden": 5, "no_bias": True}),
                       Case([(4, 2, 3), (5, 3), (5,)], {"num_hidden": 5, "flatten": False})],
    "Convolution": [Case([(2, 3, 6, 7), (4, 3, 3, 3), (4,)], {"kernel": (3, 3), "num_filter": 4}),
                    Case([(2, 4, 6, 7), (6, 2, 3, 2), (6,)],
                         {"kernel": (3, 2), "num_filter": 6, "num_group": 2, "pad": (1, 1), "stride": (2, 1)}),
                    Case([(2, 3, 5, 5), (4, 3, 1, 1)], {"kernel": (1, 1), "num_filter": 4, "no_bias": True}),
                    Case([(2, 3, 9), (4, 3, 3), (4,)], {"kernel": (3,), "num_filter": 4, "dilate": (2,)})],
    "Pooling": [Case([(2, 3, 6, 6)], {"kernel": (2, 2), "stride": (2, 2), "pool_type": t}) for t in ("max", "avg", "sum")]
               + [Case([(2, 3, 7, 6)],
                       {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "pool_type": "max", "pooling_convention": "full"}),
                  Case([(2, 3, 5, 6)], {"kernel": (2, 2), "global_pool": True, "pool_type": "avg"})],
    "SoftmaxOutput": [Case([(4, 5), Integers((4,), 5)], slope=False),
                      Case([(2, 5, 3), Integers((2, 3), 5)], {"multi_output": True}, slope=False)],
    "LinearRegressionOutput": [Case([(4, 5), (4, 5)], slope=False)],
    "LogisticRegressionOutput": [Case([(4, 5), (4, 5)], slope=False)],
    "MAERegressionOutput": [Case([(4, 5), (4, 5)], slope=False)],
    "Custom": [],  # whatever users register: tests/test_user_operators.py
    "MakeLoss": [Case([(4, 5)], {"grad_scale": 2.0}, slope=False)],
    "make_loss": [Case([(4, 5)], slope=False)],
    "softmax": [Case([(4, 5)]), Case([(2, 3, 4)], {"axis": 1, "temperature": 2.0})],
    "log_softmax": [Case([(4, 5)]), Case([(2, 3, 4)], {"axis": 1})],
    "softmin": [Case([(4, 5)])],
    "SoftmaxActivation": [Case([(4, 5)])],
    "dot": [Case([(4, 6), (6, 5)]), Case([(6, 4), (5, 6)], {"transpose_a": True, "transpose_b": True}),
            Case([(6,), (6,)])],
    "batch_dot": [Case([(3, 4, 6), (3, 6, 5)]), Case([(3, 6, 4), (3, 6, 5)], {"transpose_a": True})],
    "_contrib_attention": [Case([(2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6)]),
                           Case([(2, 6, 8), (2, 6, 8), (2, 6, 8), Integers((2, 1, 6), 2)], {"causal": True, "use_mask": True},
                                differentiable=(0, 1, 2))],
    "_attention_selfatt": [Case([(5, 2, 18)], {"heads": 3, "causal": True})],
    "_attention_encdec": [Case([(3, 2, 6), (4, 2, 12)], {"heads": 3})],
    "BatchNorm": [Case([(4, 3, 5), (3,), (3,), (3,), (3,)], {"fix_gamma": False}, differentiable=(0, 1, 2), positive=(3, 4))],
    "_contrib_SyncBatchNorm": [Case([(4, 3, 5), (3,), (3,), (3,), (3,)], {"fix_gamma": False, "key": "bn"},
                                    differentiable=(0, 1, 2), positive=(3, 4))],
    "Dropout": [Case([(40, 50)], {"p": 0.4}, slope=False)],
    "Embedding": [Case([Integers((2, 3), 6), (6, 4)], {"input_dim": 6, "output_dim": 4}, differentiable=(1,))],
    "take": [Case([(6, 4), Integers((2, 3), 6)], differentiable=(0,))],
    "Reshape": [Case([(2, 3, 4)], {"shape": (0, -1)})], "Flatten": [Case([(2, 3, 4)])],
    "expand_dims": [Case([(2, 3)], {"axis": 1})], "squeeze": [Case([(2, 1, 3)])],
    "reshape_like": [Case([(2, 6), (3, 4)], differentiable=(0,))],
    "transpose": [Case([(2, 3, 4)], {"axes": (2, 0, 1)}), Case([(3, 4)])],
    "SwapAxis": [Case([(2, 3, 4)], {"dim1": 0, "dim2": 2})], "depth_to_space": [Case([(1, 8, 2, 3)], {"block_size": 2})],
    "space_to_depth": [Case([(1, 2, 4, 6)], {"block_size": 2})], "BlockGrad": [Case([(2, 3)], differentiable=())],
    "Cast": [Case([(2, 3)], {"dtype": "float64"}, differentiable=())],
    "Concat": [Case([(2, 3), (2, 4)], {"num_args": 2, "dim": 1})],
    "_rnn_projected": [Case([(2, 2, 3), (90,), (1, 2, 2), (1, 2, 3)], {"state_size": 3, "projection_size": 2})],
    "_rnn_param_concat": [Case([(4,), (6,)], {"num_args": 2, "dim": 0})],
    "stack": [Case([(2, 3), (2, 3)], {"num_args": 2, "axis": 1})], "add_n": [Case([(2, 3)] * 3, {"num_args": 3})],
    "SliceChannel": [Case([(2, 6, 3)], {"num_outputs": 3})],
    "slice": [Case([(5, 6)], {"begin": (1, 4), "end": (4, 0), "step": (1, -2)})],
    "slice_axis": [Case([(5, 6)], {"axis": 1, "begin": 1, "end": -1})],
    "slice_like": [Case([(5, 6), (3, 4)], differentiable=(0,))],
    "reverse": [Case([(3, 4)], {"axis": (1,)})], "tile": [Case([(2, 3)], {"reps": (2, 2)})],
    "repeat": [Case([(2, 3)], {"repeats": 2, "axis": 1})],
    "argmax": [Case([(4, 5)], {"axis": 1}, differentiable=()), Case([(4, 5)], differentiable=())],
    "argmin": [Case([(4, 5)], {"axis": 0}, differentiable=())],
    "argmax_channel": [Case([(4, 5, 2)], differentiable=())],
    "argsort": [Case([(4, 5)], {"is_ascend": False}, differentiable=())],
    "sort": [Case([(3, 40, 2)], {"axis": 1}), Case([(4, 5)], {"axis": None, "is_ascend": False})],
    "topk": [Case([(4, 50)], {"k": 3, "ret_typ": t},
                  differentiable=None if t == "value" else ()) for t in ("value", "indices", "mask")]
            + [Case([(5, 4)], {"k": 2, "ret_typ": "both", "axis": 0, "is_ascend": True})],
    "batch_take": [],  # int32: test_pick.py
    "fill_element_0index": [Case([(n, 5), (n,), Integers((n,), 5)], differentiable=(0, 1)) for n in (4, 1)],
    "shape_array": [Case([(4, 5)], differentiable=())], "size_array": [Case([(4, 5)], differentiable=())],
    "gather_nd": [Case([(3, 4, 2), Integers((2, 5), 3)], differentiable=(0,))],
    # of equal indices the last stays: test_gather_nd.py
    "scatter_nd": [Case([(2, 3), Integers((1, 2), 3)], {"shape": (3, 3)}, differentiable=())],
    "_backward_gather_nd": [Case([(5, 2), Integers((2, 5), 3)], {"shape": (3, 4, 2)}, differentiable=(0,))],
    "_ravel_multi_index": [Case([Integers((2, 5), 4)], {"shape": (4, 6)}, differentiable=())],
    "_unravel_index": [Case([Integers((5,), 24)], {"shape": (4, 6)}, differentiable=())],
    "where": [Case([Integers((4, 5), 2), (4, 5), (4, 5)], differentiable=(1, 2)),
              Case([Integers((4,), 2), (4, 5), (4, 5)], differentiable=(1, 2))],
    "broadcast_to": [Case([(1, 3, 1)], {"shape": (2, 0, 4)})], "broadcast_axis": [Case([(1, 3, 1)], {"axis": 2, "size": 4})],
    "broadcast_like": [Case([(1, 3), (4, 3)], differentiable=(0,))],
    "khatri_rao": [Case([(2, 3), (4, 3)], {"num_args": 2}, differentiable=())],
    "Pad": [Case([(1, 2, 3, 4)], {"mode": t, "pad_width": (0, 0, 0, 0, 1, 2, 2, 3)}) for t in ("constant", "edge", "reflect")],
    "Crop": [Case([(1, 2, 6, 5), (1, 2, 3, 4)], {"num_args": 2, "offset": (2, 1)}, differentiable=(0,))],
    "UpSampling": [Case([(2, 2, 4, 2), (2, 3, 2, 1)], {"num_args": 2, "scale": 2, "sample_type": "nearest"}),
                   Case([(2, 3, 4, 2), (3, 1, 4, 4)], {"num_args": 2, "scale": 2, "sample_type": "bilinear", "num_filter": 3})],
    "diag": [Case([(3, 4, 2)], {"k": -1}), Case([(3,)], {"k": 1})],
    "_np_cumsum": [Case([(3, 70)], {"axis": 1}), Case([(3, 4)])],
    "SequenceMask": [Case([(4, 3, 2), Integers((3,), 5)], {"use_sequence_length": True, "value": 2.0}, differentiable=(0,))],
    "SequenceLast": [Case([(3, 4, 2), Integers((3,), 5)], {"use_sequence_length": True, "axis": 1}, differentiable=(0,)),
                     Case([(3, 4, 2)])],
    "SequenceReverse": [Case([(4, 3, 2), Integers((3,), 5)], {"use_sequence_length": True}, differentiable=(0,)),
                        Case([(3, 4, 2)])],
    "_contrib_BilinearResize2D": [Case([(1, 2, 3, 4)], {"height": 5, "width": 3, "align_corners": b}) for b in (True, False)],
    "_contrib_AdaptiveAvgPooling2D": [Case([(1, 2, 5, 4)], {"output_size": (2, 3)})],
    "_split_v2": [Case([(2, 6)], {"indices": (0, 2, 5)})], "_np_moveaxis": [Case([(2, 3, 4)], {"source": 0, "destination": -1})],
    "_arange": [Case([], {"start": 2, "stop": 9, "step": 0.7, "repeat": 2}, differentiable=())],
    "_linspace": [Case([], {"start": 2, "stop": 9, "num": 5}, differentiable=())],
    "_eye": [Case([], {"N": 3, "M": 4, "k": -1}, differentiable=())],
    "_linalg_gemm": [Case([(2, 3, 4), (2, 4, 5), (2, 3, 5)], {"alpha": 2.0, "beta": 0.5}),
                     Case([(3, 2, 4), (4, 2, 5), (3, 2, 5)], {"axis": 0})],
    "_linalg_gemm2": [Case([(2, 4, 3), (2, 5, 4)], {"transpose_a": True, "transpose_b": True, "alpha": 2.0})],
    "_linalg_syrk": [Case([(2, 3, 4)], {"transpose": t}) for t in (True, False)],
    "_linalg_trmm": [Case([(2, 3, 3), (2, 3, 4)], {"transpose": True}),
                     Case([(3, 3), (4, 3)], {"rightside": True, "lower": False, "alpha": 2.0})],
    "_linalg_sumlogdiag": [], "_linalg_potrf": [], "_linalg_potri": [], "_linalg_trsm": [], "_linalg_gelqf": [],
    "_linalg_syevd": [],  # matrices of a kind: test_products.py and test_factor.py
    "_linalg_inverse": [Case([(2, 3, 3)])], "_linalg_det": [Case([(2, 3, 3)])], "_linalg_slogdet": [Case([(2, 3, 3)])],
    "_linalg_extractdiag": [Case([(2, 4, 4)], {"offset": 1})], "_linalg_makediag": [Case([(2, 3)], {"offset": -1})],
    "_linalg_extracttrian": [Case([(2, 4, 4)], {"lower": False})], "_linalg_maketrian": [Case([(2, 6)], {"offset": -1})],
    "_points": [Case([(2, 3, 4, 5), (3, 6), (3, 6), Integers((3,), 2)], differentiable=(0, 1, 2))],
    "GridGenerator": [Case([(2, 6)], {"transform_type": "affine", "target_shape": (3, 4)}),
                      Case([(2, 2, 3, 4)], {"transform_type": "warp"})],
    "BilinearSampler": [Case([(2, 3, 4, 5), (2, 2, 3, 3)])],
    "SpatialTransformer": [Case([(2, 3, 4, 5), (2, 6)],
                                {"transform_type": "affine", "sampler_type": "bilinear", "target_shape": (3, 4)})],
    "_contrib_DeformableConvolution": [Case([(1, 4, 5, 4), (1, 24, 3, 3), (4, 2, 3, 2), (4,)],
                                            {"kernel": (3, 2), "num_filter": 4, "num_group": 2, "num_deformable_group": 2})],
    "_contrib_ModulatedDeformableConvolution": [Case([(1, 2, 5, 4), (1, 8, 4, 3), (1, 4, 4, 3), (3, 2, 2, 2)],
                                                     {"kernel": (2, 2), "num_filter": 3, "no_bias": True})],
    "ROIPooling": [Case([(2, 3, 6, 5), Integers((4, 5), 6)], {"pooled_size": (2, 3), "spatial_scale": 0.8}, differentiable=(0,))],
    "_contrib_ROIAlign": [Case([(2, 6, 6, 5), Integers((4, 5), 5)],
                               {"pooled_size": (2, 3), "spatial_scale": 0.8, "position_sensitive": b}, differentiable=(0,))
                          for b in (True, False)],
    "_contrib_box_iou": [Case([(5, 4), (3, 4)], differentiable=())],
    "_contrib_box_nms": [Case([(2, 6, 6)], {"overlap_thresh": 0.1})],
    "_contrib_bipartite_matching": [Case([(2, 4, 3)], {"threshold": -0.5}, differentiable=())],
    "_contrib_box_encode": [Case([Integers((2, 5), 2), Integers((2, 5), 3), (2, 5, 4), (2, 3, 4), (4,), (4,)],
                                 differentiable=())],
    "_contrib_box_decode": [Case([(2, 5, 4), (1, 5, 4)], differentiable=())],
    "_contrib_MultiBoxPrior": [Case([(1, 2, 3, 4)], {"sizes": (0.3, 0.5), "ratios": (1, 2)}, differentiable=())],
    "_contrib_MultiBoxTarget": [Case([(1, 6, 4), (2, 3, 5), (2, 4, 6)], differentiable=())],
    "_contrib_MultiBoxDetection": [Case([(2, 4, 6), (2, 24), (1, 6, 4)], differentiable=())],
    "_contrib_Proposal": [Case([(1, 8, 3, 4), (1, 16, 3, 4), (1, 3)],
                               {"scales": (2, 4), "ratios": (1, 2), "rpn_post_nms_top_n": 5}, differentiable=())],
    "_contrib_MultiProposal": [Case([(2, 8, 3, 4), (2, 16, 3, 4), (2, 3)],
                                    {"scales": (2, 4), "ratios": (1, 2), "rpn_post_nms_top_n": 5}, differentiable=())],
    "_contrib_interleaved_matmul_selfatt_qk": [Case([(4, 2, 18)], {"heads": 3})],
    "_contrib_interleaved_matmul_selfatt_valatt": [Case([(4, 2, 18), (6, 4, 4)], {"heads": 3})],
    "_contrib_interleaved_matmul_encdec_qk": [Case([(3, 2, 6), (4, 2, 12)], {"heads": 3})],
    "_contrib_interleaved_matmul_encdec_valatt": [Case([(4, 2, 12), (6, 3, 4)], {"heads": 3})],
    "_norm_gradient": [Case([(2, 3, 4), (2, 3, 4), (3,)], {"full": (2, 3, 4), "kept": (2, 1, 1), "row": (3, 1), "eps": 0.1})],
    "_at_the_largest": [Case([(1, 2, 4, 3)] * 2, {"kernel": (3, 2), "stride": (2, 1), "pad": (1, 0), "outs": (2, 2)},
                             differentiable=(0,))],
    "_contrib_div_sqrt_dim": [Case([(2, 3)])], "_contrib_allclose": [Case([(2, 3), (2, 3)], differentiable=())],
    "_alone": [Case([(1,)], differentiable=())],
    "amp_cast": [Case([(2, 3)], {"dtype": "float32"}, differentiable=())],
    "amp_multicast": [Case([(2, 3), (2, 3)], {"num_outputs": 2}, differentiable=())],
    "_contrib_arange_like": [Case([(2, 5)], {"start": 1, "repeat": 2}, differentiable=())],
    "_contrib_index_array": [Case([(2, 3)], differentiable=())],
    "_contrib_index_copy": [Case([(5, 2), Integers((1,), 5), (1, 2)], differentiable=(0, 2))],
    "_histogram": [Case([(20,)], {"bin_cnt": 5, "range": (-1, 1)}, differentiable=())],
    "im2col": [Case([(2, 2, 5, 4)], {"kernel": (3, 2), "stride": (2, 1), "pad": (1, 1)}),
               Case([(1, 2, 7)], {"kernel": (3,), "pad": (1,)})],
    "col2im": [Case([(2, 12, 9)], {"output_size": (5, 4), "kernel": (3, 2), "stride": (2, 1), "pad": (1, 0)})],
    "Correlation": [Case([(1, 2, 4, 4)] * 2, {"kernel_size": 3, "max_displacement": 1, "stride2": 2, "pad_size": 1})],
    "CTCLoss": [Case([(6, 2, 4), Integers((2, 2), 4)], differentiable=(0,)),
                Case([(5, 2, 70), Integers((2, 9), 60), Integers((2,), 6), Integers((2,), 3)], differentiable=(0,), slope=False,
                     params={"use_data_lengths": True, "use_label_lengths": True, "blank_label": "last"})],
    **{f"_random_pdf_{n}": [] for n in ("uniform", "normal", "gamma", "exponential", "poisson", "negative_binomial",
                                        "generalized_negative_binomial", "dirichlet")},  # of numbers above 0: test_pdf.py
    "_image_to_tensor": [Case([(3, 4, 2)], differentiable=())],
    "_image_normalize": [Case([(2, 3, 4)], {"mean": (1, 2), "std": (2, 3)})],
    "_image_crop": [Case([(4, 5, 2)], {"x": 1, "y": 2, "width": 3, "height": 2})],
    "_image_flip_left_right": [Case([(2, 3, 2)])], "_image_flip_top_bottom": [Case([(2, 3, 2)])],
    "_image_resize": [Case([(4, 5, 2)], {"size": (3, 6)}, differentiable=())],
    "_image_adjust_lighting": [Case([(2, 3, 3)], {"alpha": (1, 2, 3)}, slope=False)],
    **{f"_image_random_{n}": [Case([(4, 5, 3)], {"min_factor": 0.2, "max_factor": 0.9}, differentiable=())]
       for n in ("brightness", "contrast", "saturation", "hue")},
    "_image_random_lighting": [Case([(4, 5, 3)], {"alpha_std": 2.0}, differentiable=())],
    "_image_random_color_jitter": [Case([(4, 5, 3)], {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "hue": 0.2},
                                        differentiable=())],
    "_image_random_flip_left_right": [Case([(4, 5, 3)], differentiable=())],
    "_image_random_flip_top_bottom": [Case([(4, 5, 3)], differentiable=())],
    **{f"preloaded_multi_{n}": [] for n in ("sgd_update", "sgd_mom_update", "mp_sgd_update", "mp_sgd_mom_update")},
    "_foreach": [], "_while_loop": [], "_cond": [],  # they hold graphs: tests/graph/control_flow/test_ops.py
    "_multi_adamw_update": [], "_multi_mp_adamw_update": [], "reset_arrays": [],  # tests/kernels/ops/optimizer/test_preloaded.py
    "_multi_lamb_update": [], "_multi_mp_lamb_update": [], "_contrib_group_adagrad_update": [],  # test_multi_lamb.py
    "_contrib_fft": [Case([(2, 3, 5)])], "_contrib_ifft": [Case([(3, 8)])],
    "_contrib_PSROIPooling": [Case([(2, 8, 6, 5), Integers((4, 5), 5)], {"spatial_scale": 0.8, "output_dim": 2, "pooled_size": 2},
                                   differentiable=(0,))],
    "_contrib_RROIAlign": [Case([(2, 3, 7, 6), Integers((4, 6), 4)], {"pooled_size": (2, 3), "spatial_scale": 0.8},
                                differentiable=(0,))],
    "_contrib_DeformablePSROIPooling": [
        Case([(2, 8, 6, 5), Integers((4, 5), 5), (4, 2, 2, 2)],
             {"spatial_scale": 0.8, "output_dim": 2, "group_size": 2, "pooled_size": 2, "sample_per_part": 2, "trans_std": 0.1},
             differentiable=(0, 2))],
    "_contrib_count_sketch": [Case([(3, 5), Integers((5,), 4), (5,)], {"out_dim": 4}, differentiable=(0,))],
    "Pooling_v1": [Case([(2, 2, 5, 4)], {"kernel": (3, 2), "stride": (2, 1), "pad": (1, 1), "pool_type": t})
                   for t in ("max", "avg", "sum")],
    **{f"_contrib_{n}": [] for n in ("quantize", "quantize_v2", "dequantize", "requantize")},  # test_quantize.py
    **{f"_{kind}_{part}": [] for kind in ("quantize", "requantize") for part in ("given", "ends", "by")},  # test_quantize.py
    "one_hot": [Case([Integers((4,), 3)], {"depth": 3}, differentiable=())],
    "pick": [Case([(4, 5), Integers((4,), 5)], {"axis": 1}, differentiable=(0,))],
    "norm": [Case([(4, 5)]), Case([(2, 3, 4)], {"ord": 1, "axis": (0, 2)})],
    "Deconvolution": [Case([(2, 3, 4, 5), (3, 2, 3, 3)], {"kernel": (3, 3), "num_filter": 2, "stride": (2, 1), "adj": (1, 0)}),
                      Case([(2, 4, 5), (4, 3, 3), (6,)],
                           {"kernel": (3,), "num_filter": 6, "num_group": 2, "pad": (1,), "dilate": (2,), "no_bias": False})],
    "LayerNorm": [Case([(4, 6), (6,), (6,)]), Case([(2, 3, 4), (3,), (3,)], {"axis": 1})],
    "GroupNorm": [Case([(2, 4, 3), (2,), (2,)], {"num_groups": 2})],
    "InstanceNorm": [Case([(2, 3, 5), (3,), (3,)]), Case([(1, 3, 5), (3,), (3,)])],
    "L2Normalization": [Case([(2, 3, 4)], {"mode": m}) for m in ("instance", "channel", "spatial")],
    "moments": [Case([(2, 3, 4)], {"axes": (0, 2)}), Case([(2, 3)], {"axes": (1,), "keepdims": True}), Case([(2, 3)])],
    "LRN": [Case([(2, 7, 3, 2)], {"nsize": 3, "alpha": 0.5, "knorm": 1.0})],
    "LeakyReLU": [Case([(2, 3, 4)], {"act_type": t}) for t in ("leaky", "elu", "gelu")]
                 + [Case([(2, 3, 4), (3,)], {"act_type": "prelu"}), Case([(2, 3), (1,)], {"act_type": "prelu"}),
                    Case([(2, 3, 4)], {"act_type": "selu"}, slope=False), Case([(20, 30)], {"act_type": "rrelu"}, slope=False)],
    "SVMOutput": [Case([(4, 5), Integers((4,), 5)], slope=False),
                  Case([(4, 5), Integers((4,), 5)], {"use_linear": True}, slope=False)],
    "softmax_cross_entropy": [Case([(4, 5), Integers((4,), 5)], differentiable=(0,))],
    "IdentityAttachKLSparseReg": [],  # its derivative is not the slope and has a state: tests/kernels/ops/loss/test_label_loss.py
    "multi_sgd_update": [Case([(3, 4)] * 4, {"lrs": (0.1, 0.2), "wds": (0.0, 0.1), "num_weights": 2, "num_args": 4},
                              differentiable=())],
    "multi_sgd_mom_update": [], "multi_mp_sgd_update": [], "multi_mp_sgd_mom_update": [],  # test_multi.py
    "multi_sum_sq": [Case([(3, 4), (5,)], {"num_arrays": 2}, differentiable=())],
    "all_finite": [Case([(3, 4)], differentiable=())],
    "multi_all_finite": [Case([(3, 4), (5,)], {"num_arrays": 2}, differentiable=())],
    "RNN": [Case([(3, 2, 3), (84,), (2, 2, 2)], {"state_size": 2, "num_layers": 1, "mode": "gru", "bidirectional": True}),
            Case([(3, 2, 3), (144,), (2, 2, 3)], {"state_size": 3, "num_layers": 2, "mode": "gru", "p": 0.4}, slope=False)],
    "_sample_multinomial": [Case([Integers((3, 4), 9)], {"shape": (20,)}, differentiable=())],
    "_shuffle": [Case([(9, 2)], differentiable=())],
    **{f"_sample_{n}": [] for n in DISTRIBUTIONS}, **{f"_random_{n}": [] for n in DISTRIBUTIONS},  # test_distributions.py
    **{f"_random_{n}_like": [Case([(20, 30)], differentiable=())] for n in DISTRIBUTIONS},
    "_zeros": [Case([], {"shape": (2, 3)}, differentiable=())], "_ones": [Case([], {"shape": (2, 3)}, differentiable=())],
    "_full": [Case([], {"shape": (2, 3), "value": 2.5}, differentiable=())],
    "_random_uniform": [Case([], {"shape": (300,)}, slope=False)], "_random_normal": [Case([], {"shape": (300,)}, slope=False)],
    "_random_randint": [Case([], {"shape": (300,), "low": 0, "high": 9}, slope=False)],
}
SELF_PROVED = (SimpleOp, ReductionOp)
CASES = [pytest.param(n, case, id=f"{n}-{i}") for n, cases in TABLE.items() if n in registered() for i, case in enumerate(cases)]
SMOOTH = [c for c in CASES if c.values[1].slope and c.values[1].differentiable != ()]


def test_no_operator_is_left_out():
    names = {o.name for o in registered().values() if not isinstance(o, SELF_PROVED) and not o.name.startswith("_test_")}
    assert not names - set(TABLE), f"give these a line in the table: {sorted(names - set(TABLE))}"


def data(inputs, rng):
    """Random arrays of float64, one for each shape or Integers."""
    return [rng.integers(0, i.below, i.shape).astype("float64") if isinstance(i, Integers) else rng.normal(size=i)
            for i in inputs]


def call(name, arrays, params):
    out = getattr(mx.nd, name)(*arrays, **params)
    return out[0] if isinstance(out, (list, tuple)) else out


def run(name, xs, params, ctx, seed=5):
    """Outputs and derivatives of one training-mode run in float32 on ctx."""
    mx.random.seed(seed)
    arrays = [mx.nd.array(x, ctx=ctx, dtype="float32") for x in xs]
    for a in arrays:
        a.attach_grad()
    if not arrays:
        with ctx:
            return [call(name, [], params).asnumpy()]
    with mx.autograd.record():
        out = getattr(mx.nd, name)(*arrays, **params)
    outs = list(out) if isinstance(out, (list, tuple)) else [out]
    heads = [mx.nd.array(np.linspace(-1, 1, o.size).reshape(o.shape), ctx=ctx, dtype=o.dtype) for o in outs]
    results = [o.asnumpy() for o in outs]
    if any(o._grad_edge is not None for o in outs):
        mx.autograd.backward(outs, heads)
    return results + [a.grad.asnumpy() for a in arrays]


@pytest.mark.parametrize("name, case", CASES)
def test_cpu_equals_interpreted_gpu(name, case, rng):
    xs = data(case.shapes, rng)
    on_cpu, on_gpu = (run(name, xs, case.params, c) for c in (mx.cpu(), mx.gpu()))
    assert len(on_cpu) == len(on_gpu)
    for c, g in zip(on_cpu, on_gpu):
        assert_close(g, c, scale=10)  # 10: sums of a few dozen products in another order


@pytest.mark.parametrize("name, case", SMOOTH)
def test_gradient_is_the_slope(name, case, rng, ctx):
    if ctx.is_gpu and case.differentiable is not None:
        ctx = mx.cpu()
    xs = [np.abs(x) if i in case.positive else x for i, x in enumerate(data(case.shapes, rng))]
    moved = case.variables()
    fixed = {i: mx.nd.array(x, ctx=ctx, dtype="float64") for i, x in enumerate(xs) if i not in moved}

    def fn(*variables):
        given = iter(variables)
        return call(name, [fixed[i] if i in fixed else next(given) for i in range(len(xs))], case.params)

    check_gradient(fn, [xs[i] for i in moved], ctx, rng)


@pytest.mark.parametrize("name, case", [c for c in CASES if len(c.values[1].shapes) > 1 and c.values[1].differentiable != ()])
def test_one_variable_among_constants(name, case, rng, ctx):
    """Backward is asked for one derivative only; the outputs of the others do not exist."""
    for one in range(len(case.shapes)):
        arrays = [mx.nd.array(x, ctx=ctx, dtype="float32") for x in data(case.shapes, rng)]
        arrays[one].attach_grad()
        with mx.autograd.record():
            out = getattr(mx.nd, name)(*arrays, **case.params)
        outs = list(out) if isinstance(out, (list, tuple)) else [out]
        if outs[0]._grad_edge is not None:
            mx.autograd.backward(outs)
            assert np.isfinite(arrays[one].grad.asnumpy()).all()
