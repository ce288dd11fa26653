"""Every registered operator: CPU equals the interpreted GPU, forward and backward, and its gradient is the slope.

Traced operators prove themselves from their declaration (tests/kernels/ops/tensor/test_elementwise.py); this table gives the
others something to work on. An operator that is in neither fails `test_no_operator_is_left_out`.
"""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from tritium.kernels import registered
from tritium.kernels.declare.reduction import ReductionOp
from tritium.kernels.declare.simple_op import SimpleOp

#: name -> cases (input shapes, parameters, note). An input is a shape, or ("ints", shape, below) for integers.
#: notes: "loss" ignores the head's derivative; "only:0,1" these inputs have a derivative; "none" there is none;
#: "train" and "random" are proved elsewhere by their own tests.
INTS = "ints"
DISTRIBUTIONS = ("uniform", "normal", "exponential", "gamma", "poisson", "negative_binomial", "generalized_negative_binomial")
TABLE = {
    "FullyConnected": [([(4, 6), (5, 6), (5,)], {"num_hidden": 5}, ""),
                       ([(4, 2, 3), (5, 6)], {"num_hidden": 5, "no_bias": True}, ""),
                       ([(4, 2, 3), (5, 3), (5,)], {"num_hidden": 5, "flatten": False}, "")],
    "Convolution": [([(2, 3, 6, 7), (4, 3, 3, 3), (4,)], {"kernel": (3, 3), "num_filter": 4}, ""),
                    ([(2, 4, 6, 7), (6, 2, 3, 2), (6,)],
                     {"kernel": (3, 2), "num_filter": 6, "num_group": 2, "pad": (1, 1), "stride": (2, 1)}, ""),
                    ([(2, 3, 5, 5), (4, 3, 1, 1)], {"kernel": (1, 1), "num_filter": 4, "no_bias": True}, ""),
                    ([(2, 3, 9), (4, 3, 3), (4,)], {"kernel": (3,), "num_filter": 4, "dilate": (2,)}, "")],
    "Pooling": [([(2, 3, 6, 6)], {"kernel": (2, 2), "stride": (2, 2), "pool_type": t}, "") for t in ("max", "avg", "sum")]
               + [([(2, 3, 7, 6)],
                   {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "pool_type": "max", "pooling_convention": "full"}, ""),
                  ([(2, 3, 5, 6)], {"kernel": (2, 2), "global_pool": True, "pool_type": "avg"}, "")],
    "SoftmaxOutput": [([(4, 5), (INTS, (4,), 5)], {}, "loss"), ([(2, 5, 3), (INTS, (2, 3), 5)], {"multi_output": True}, "loss")],
    "LinearRegressionOutput": [([(4, 5), (4, 5)], {}, "loss")],
    "LogisticRegressionOutput": [([(4, 5), (4, 5)], {}, "loss")],
    "MAERegressionOutput": [([(4, 5), (4, 5)], {}, "loss")],
    "Custom": [],  # whatever users register: tests/test_user_operators.py
    "MakeLoss": [([(4, 5)], {"grad_scale": 2.0}, "loss")],
    "make_loss": [([(4, 5)], {}, "loss")],
    "softmax": [([(4, 5)], {}, ""), ([(2, 3, 4)], {"axis": 1, "temperature": 2.0}, "")],
    "log_softmax": [([(4, 5)], {}, ""), ([(2, 3, 4)], {"axis": 1}, "")],
    "softmin": [([(4, 5)], {}, "")],
    "SoftmaxActivation": [([(4, 5)], {}, "")],
    "dot": [([(4, 6), (6, 5)], {}, ""), ([(6, 4), (5, 6)], {"transpose_a": True, "transpose_b": True}, ""),
            ([(6,), (6,)], {}, "")],
    "batch_dot": [([(3, 4, 6), (3, 6, 5)], {}, ""), ([(3, 6, 4), (3, 6, 5)], {"transpose_a": True}, "")],
    "BatchNorm": [([(4, 3, 5), (3,), (3,), (3,), (3,)], {"fix_gamma": False}, "train")],
    "_contrib_SyncBatchNorm": [([(4, 3, 5), (3,), (3,), (3,), (3,)], {"fix_gamma": False, "key": "bn"}, "train")],
    "Dropout": [([(40, 50)], {"p": 0.4}, "random")],
    "Embedding": [([(INTS, (2, 3), 6), (6, 4)], {"input_dim": 6, "output_dim": 4}, "only:1")],
    "take": [([(6, 4), (INTS, (2, 3), 6)], {}, "only:0")],
    "Reshape": [([(2, 3, 4)], {"shape": (0, -1)}, "")], "Flatten": [([(2, 3, 4)], {}, "")],
    "expand_dims": [([(2, 3)], {"axis": 1}, "")], "squeeze": [([(2, 1, 3)], {}, "")],
    "reshape_like": [([(2, 6), (3, 4)], {}, "only:0")], "transpose": [([(2, 3, 4)], {"axes": (2, 0, 1)}, ""), ([(3, 4)], {}, "")],
    "SwapAxis": [([(2, 3, 4)], {"dim1": 0, "dim2": 2}, "")], "depth_to_space": [([(1, 8, 2, 3)], {"block_size": 2}, "")],
    "space_to_depth": [([(1, 2, 4, 6)], {"block_size": 2}, "")], "BlockGrad": [([(2, 3)], {}, "none")],
    "Cast": [([(2, 3)], {"dtype": "float64"}, "none")], "Concat": [([(2, 3), (2, 4)], {"num_args": 2, "dim": 1}, "")],
    "stack": [([(2, 3), (2, 3)], {"num_args": 2, "axis": 1}, "")], "add_n": [([(2, 3)] * 3, {"num_args": 3}, "")],
    "SliceChannel": [([(2, 6, 3)], {"num_outputs": 3}, "")],
    "slice": [([(5, 6)], {"begin": (1, 4), "end": (4, 0), "step": (1, -2)}, "")],
    "slice_axis": [([(5, 6)], {"axis": 1, "begin": 1, "end": -1}, "")], "slice_like": [([(5, 6), (3, 4)], {}, "only:0")],
    "reverse": [([(3, 4)], {"axis": (1,)}, "")], "tile": [([(2, 3)], {"reps": (2, 2)}, "")],
    "repeat": [([(2, 3)], {"repeats": 2, "axis": 1}, "")],
    "argmax": [([(4, 5)], {"axis": 1}, "none"), ([(4, 5)], {}, "none")], "argmin": [([(4, 5)], {"axis": 0}, "none")],
    "argmax_channel": [([(4, 5, 2)], {}, "none")], "argsort": [([(4, 5)], {"is_ascend": False}, "none")],
    "sort": [([(3, 40, 2)], {"axis": 1}, ""), ([(4, 5)], {"axis": None, "is_ascend": False}, "")],
    "topk": [([(4, 50)], {"k": 3, "ret_typ": t}, "" if t == "value" else "none") for t in ("value", "indices", "mask")]
            + [([(5, 4)], {"k": 2, "ret_typ": "both", "axis": 0, "is_ascend": True}, "")],
    "batch_take": [], "shape_array": [([(4, 5)], {}, "none")], "size_array": [([(4, 5)], {}, "none")],  # int32: test_pick.py
    "gather_nd": [([(3, 4, 2), (INTS, (2, 5), 3)], {}, "only:0")],
    "scatter_nd": [([(2, 3), (INTS, (1, 2), 3)], {"shape": (3, 3)}, "none")],  # the last of equals stays: test_gather_nd.py
    "_backward_gather_nd": [([(5, 2), (INTS, (2, 5), 3)], {"shape": (3, 4, 2)}, "only:0")],
    "_ravel_multi_index": [([(INTS, (2, 5), 4)], {"shape": (4, 6)}, "none")],
    "_unravel_index": [([(INTS, (5,), 24)], {"shape": (4, 6)}, "none")],
    "where": [([(INTS, (4, 5), 2), (4, 5), (4, 5)], {}, "only:1,2"), ([(INTS, (4,), 2), (4, 5), (4, 5)], {}, "only:1,2")],
    "broadcast_to": [([(1, 3, 1)], {"shape": (2, 0, 4)}, "")], "broadcast_axis": [([(1, 3, 1)], {"axis": 2, "size": 4}, "")],
    "broadcast_like": [([(1, 3), (4, 3)], {}, "only:0")], "khatri_rao": [([(2, 3), (4, 3)], {"num_args": 2}, "none")],
    "Pad": [([(1, 2, 3, 4)], {"mode": t, "pad_width": (0, 0, 0, 0, 1, 2, 2, 3)}, "") for t in ("constant", "edge", "reflect")],
    "Crop": [([(1, 2, 6, 5), (1, 2, 3, 4)], {"num_args": 2, "offset": (2, 1)}, "only:0")],
    "UpSampling": [([(2, 2, 4, 2), (2, 3, 2, 1)], {"num_args": 2, "scale": 2, "sample_type": "nearest"}, ""),
                   ([(2, 3, 4, 2), (3, 1, 4, 4)], {"num_args": 2, "scale": 2, "sample_type": "bilinear", "num_filter": 3}, "")],
    "diag": [([(3, 4, 2)], {"k": -1}, ""), ([(3,)], {"k": 1}, "")],
    "_np_cumsum": [([(3, 70)], {"axis": 1}, ""), ([(3, 4)], {}, "")],
    "SequenceMask": [([(4, 3, 2), (INTS, (3,), 5)], {"use_sequence_length": True, "value": 2.0}, "only:0")],
    "SequenceLast": [([(3, 4, 2), (INTS, (3,), 5)], {"use_sequence_length": True, "axis": 1}, "only:0"), ([(3, 4, 2)], {}, "")],
    "SequenceReverse": [([(4, 3, 2), (INTS, (3,), 5)], {"use_sequence_length": True}, "only:0"), ([(3, 4, 2)], {}, "")],
    "_contrib_BilinearResize2D": [([(1, 2, 3, 4)], {"height": 5, "width": 3, "align_corners": b}, "") for b in (True, False)],
    "_contrib_AdaptiveAvgPooling2D": [([(1, 2, 5, 4)], {"output_size": (2, 3)}, "")],
    "_split_v2": [([(2, 6)], {"indices": (0, 2, 5)}, "")], "_np_moveaxis": [([(2, 3, 4)], {"source": 0, "destination": -1}, "")],
    "_arange": [([], {"start": 2, "stop": 9, "step": 0.7, "repeat": 2}, "none")],
    "_linspace": [([], {"start": 2, "stop": 9, "num": 5}, "none")], "_eye": [([], {"N": 3, "M": 4, "k": -1}, "none")],
    "_linalg_gemm": [([(2, 3, 4), (2, 4, 5), (2, 3, 5)], {"alpha": 2.0, "beta": 0.5}, ""),
                     ([(3, 2, 4), (4, 2, 5), (3, 2, 5)], {"axis": 0}, "")],
    "_linalg_gemm2": [([(2, 4, 3), (2, 5, 4)], {"transpose_a": True, "transpose_b": True, "alpha": 2.0}, "")],
    "_linalg_syrk": [([(2, 3, 4)], {"transpose": t}, "") for t in (True, False)],
    "_linalg_trmm": [([(2, 3, 3), (2, 3, 4)], {"transpose": True}, ""),
                     ([(3, 3), (4, 3)], {"rightside": True, "lower": False, "alpha": 2.0}, "")],
    "_linalg_sumlogdiag": [], "_linalg_potrf": [], "_linalg_potri": [], "_linalg_trsm": [], "_linalg_gelqf": [],
    "_linalg_syevd": [], "_linalg_inverse": [], "_linalg_det": [], "_linalg_slogdet": [],  # matrices of a kind: test_products.py
    "_linalg_extractdiag": [([(2, 4, 4)], {"offset": 1}, "")], "_linalg_makediag": [([(2, 3)], {"offset": -1}, "")],
    "_linalg_extracttrian": [([(2, 4, 4)], {"lower": False}, "")], "_linalg_maketrian": [([(2, 6)], {"offset": -1}, "")],
    "_points": [([(2, 3, 4, 5), (3, 6), (3, 6), (INTS, (3,), 2)], {}, "only:0,1,2")],
    "GridGenerator": [([(2, 6)], {"transform_type": "affine", "target_shape": (3, 4)}, ""),
                      ([(2, 2, 3, 4)], {"transform_type": "warp"}, "")],
    "BilinearSampler": [([(2, 3, 4, 5), (2, 2, 3, 3)], {}, "")],
    "SpatialTransformer": [([(2, 3, 4, 5), (2, 6)],
                            {"transform_type": "affine", "sampler_type": "bilinear", "target_shape": (3, 4)}, "")],
    "_contrib_DeformableConvolution": [([(1, 4, 5, 4), (1, 24, 3, 3), (4, 2, 3, 2), (4,)],
                                        {"kernel": (3, 2), "num_filter": 4, "num_group": 2, "num_deformable_group": 2}, "")],
    "_contrib_ModulatedDeformableConvolution": [([(1, 2, 5, 4), (1, 8, 4, 3), (1, 4, 4, 3), (3, 2, 2, 2)],
                                                 {"kernel": (2, 2), "num_filter": 3, "no_bias": True}, "")],
    "ROIPooling": [([(2, 3, 6, 5), (INTS, (4, 5), 6)], {"pooled_size": (2, 3), "spatial_scale": 0.8}, "only:0")],
    "_contrib_ROIAlign": [([(2, 6, 6, 5), (INTS, (4, 5), 5)],
                           {"pooled_size": (2, 3), "spatial_scale": 0.8, "position_sensitive": b}, "only:0")
                          for b in (True, False)],
    "_contrib_box_iou": [([(5, 4), (3, 4)], {}, "none")], "_contrib_box_nms": [([(2, 6, 6)], {"overlap_thresh": 0.1}, "")],
    "_contrib_bipartite_matching": [([(2, 4, 3)], {"threshold": -0.5}, "none")],
    "_contrib_box_encode": [([(INTS, (2, 5), 2), (INTS, (2, 5), 3), (2, 5, 4), (2, 3, 4), (4,), (4,)], {}, "none")],
    "_contrib_box_decode": [([(2, 5, 4), (1, 5, 4)], {}, "none")],
    "_contrib_MultiBoxPrior": [([(1, 2, 3, 4)], {"sizes": (0.3, 0.5), "ratios": (1, 2)}, "none")],
    "_contrib_MultiBoxTarget": [([(1, 6, 4), (2, 3, 5), (2, 4, 6)], {}, "none")],
    "_contrib_MultiBoxDetection": [([(2, 4, 6), (2, 24), (1, 6, 4)], {}, "none")],
    "_contrib_Proposal": [([(1, 8, 3, 4), (1, 16, 3, 4), (1, 3)], {"scales": (2, 4), "ratios": (1, 2), "rpn_post_nms_top_n": 5},
                           "none")],
    "_contrib_MultiProposal": [([(2, 8, 3, 4), (2, 16, 3, 4), (2, 3)],
                                {"scales": (2, 4), "ratios": (1, 2), "rpn_post_nms_top_n": 5}, "none")],
    "_contrib_interleaved_matmul_selfatt_qk": [([(4, 2, 18)], {"heads": 3}, "")],
    "_contrib_interleaved_matmul_selfatt_valatt": [([(4, 2, 18), (6, 4, 4)], {"heads": 3}, "")],
    "_contrib_interleaved_matmul_encdec_qk": [([(3, 2, 6), (4, 2, 12)], {"heads": 3}, "")],
    "_contrib_interleaved_matmul_encdec_valatt": [([(4, 2, 12), (6, 3, 4)], {"heads": 3}, "")],
    "_norm_gradient": [([(2, 3, 4), (2, 3, 4), (3,)], {"full": (2, 3, 4), "kept": (2, 1, 1), "row": (3, 1), "eps": 0.1}, "")],
    "_at_the_largest": [([(1, 2, 4, 3)] * 2, {"kernel": (3, 2), "stride": (2, 1), "pad": (1, 0), "outs": (2, 2)}, "only:0")],
    "_contrib_div_sqrt_dim": [([(2, 3)], {}, "")], "_contrib_allclose": [([(2, 3), (2, 3)], {}, "none")],
    "amp_cast": [([(2, 3)], {"dtype": "float32"}, "none")], "amp_multicast": [([(2, 3), (2, 3)], {"num_outputs": 2}, "none")],
    "_contrib_arange_like": [([(2, 5)], {"start": 1, "repeat": 2}, "none")], "_contrib_index_array": [([(2, 3)], {}, "none")],
    "_contrib_index_copy": [([(5, 2), (INTS, (1,), 5), (1, 2)], {}, "only:0,2")],
    "_histogram": [([(20,)], {"bin_cnt": 5, "range": (-1, 1)}, "none")],
    "im2col": [([(2, 2, 5, 4)], {"kernel": (3, 2), "stride": (2, 1), "pad": (1, 1)}, ""),
               ([(1, 2, 7)], {"kernel": (3,), "pad": (1,)}, "")],
    "col2im": [([(2, 12, 9)], {"output_size": (5, 4), "kernel": (3, 2), "stride": (2, 1), "pad": (1, 0)}, "")],
    "Correlation": [([(1, 2, 4, 4)] * 2, {"kernel_size": 3, "max_displacement": 1, "stride2": 2, "pad_size": 1}, "")],
    "CTCLoss": [([(6, 2, 4), (INTS, (2, 2), 4)], {}, "only:0")],
    **{f"_random_pdf_{n}": [] for n in ("uniform", "normal", "gamma", "exponential", "poisson", "negative_binomial",
                                        "generalized_negative_binomial", "dirichlet")},  # of numbers above 0: test_pdf.py
    "_image_to_tensor": [([(3, 4, 2)], {}, "none")], "_image_normalize": [([(2, 3, 4)], {"mean": (1, 2), "std": (2, 3)}, "")],
    "_image_crop": [([(4, 5, 2)], {"x": 1, "y": 2, "width": 3, "height": 2}, "")],
    "_image_flip_left_right": [([(2, 3, 2)], {}, "")], "_image_flip_top_bottom": [([(2, 3, 2)], {}, "")],
    "_image_resize": [([(4, 5, 2)], {"size": (3, 6)}, "none")],
    "_image_adjust_lighting": [([(2, 3, 3)], {"alpha": (1, 2, 3)}, "none")],
    **{f"_image_random_{n}": [([(4, 5, 3)], {"min_factor": 0.2, "max_factor": 0.9}, "none")]
       for n in ("brightness", "contrast", "saturation", "hue")},
    "_image_random_lighting": [([(4, 5, 3)], {"alpha_std": 2.0}, "none")],
    "_image_random_color_jitter": [([(4, 5, 3)], {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "hue": 0.2}, "none")],
    "_image_random_flip_left_right": [([(4, 5, 3)], {}, "none")], "_image_random_flip_top_bottom": [([(4, 5, 3)], {}, "none")],
    **{f"preloaded_multi_{n}": [] for n in ("sgd_update", "sgd_mom_update", "mp_sgd_update", "mp_sgd_mom_update")},
    "_foreach": [], "_while_loop": [], "_cond": [],  # they hold graphs: tests/graph/control_flow/test_ops.py
    "_multi_adamw_update": [], "_multi_mp_adamw_update": [], "reset_arrays": [],  # tests/kernels/ops/optimizer/test_preloaded.py
    "_multi_lamb_update": [], "_multi_mp_lamb_update": [], "_contrib_group_adagrad_update": [],  # test_multi_lamb.py
    "_contrib_fft": [([(2, 3, 5)], {}, "")], "_contrib_ifft": [([(3, 8)], {}, "")],
    "_contrib_PSROIPooling": [([(2, 8, 6, 5), (INTS, (4, 5), 5)], {"spatial_scale": 0.8, "output_dim": 2, "pooled_size": 2},
                               "only:0")],
    "_contrib_RROIAlign": [([(2, 3, 7, 6), (INTS, (4, 6), 4)], {"pooled_size": (2, 3), "spatial_scale": 0.8}, "only:0")],
    "_contrib_DeformablePSROIPooling": [
        ([(2, 8, 6, 5), (INTS, (4, 5), 5), (4, 2, 2, 2)],
         {"spatial_scale": 0.8, "output_dim": 2, "group_size": 2, "pooled_size": 2, "sample_per_part": 2, "trans_std": 0.1},
         "only:0,2")],
    "_contrib_count_sketch": [([(3, 5), (INTS, (5,), 4), (5,)], {"out_dim": 4}, "only:0")],
    "Pooling_v1": [([(2, 2, 5, 4)], {"kernel": (3, 2), "stride": (2, 1), "pad": (1, 1), "pool_type": t}, "")
                   for t in ("max", "avg", "sum")],
    **{f"_contrib_{n}": [] for n in ("quantize", "quantize_v2", "dequantize", "requantize")},  # test_quantize.py
    "one_hot": [([(INTS, (4,), 3)], {"depth": 3}, "none")], "pick": [([(4, 5), (INTS, (4,), 5)], {"axis": 1}, "only:0")],
    "norm": [([(4, 5)], {}, ""), ([(2, 3, 4)], {"ord": 1, "axis": (0, 2)}, "")],
    "Deconvolution": [([(2, 3, 4, 5), (3, 2, 3, 3)], {"kernel": (3, 3), "num_filter": 2, "stride": (2, 1), "adj": (1, 0)}, ""),
                      ([(2, 4, 5), (4, 3, 3), (6,)],
                       {"kernel": (3,), "num_filter": 6, "num_group": 2, "pad": (1,), "dilate": (2,), "no_bias": False}, "")],
    "LayerNorm": [([(4, 6), (6,), (6,)], {}, ""), ([(2, 3, 4), (3,), (3,)], {"axis": 1}, "")],
    "GroupNorm": [([(2, 4, 3), (2,), (2,)], {"num_groups": 2}, "")], "InstanceNorm": [
        ([(2, 3, 5), (3,), (3,)], {}, ""), ([(1, 3, 5), (3,), (3,)], {}, "")],
    "L2Normalization": [([(2, 3, 4)], {"mode": m}, "") for m in ("instance", "channel", "spatial")],
    "moments": [([(2, 3, 4)], {"axes": (0, 2)}, ""), ([(2, 3)], {"axes": (1,), "keepdims": True}, ""), ([(2, 3)], {}, "")],
    "LRN": [([(2, 7, 3, 2)], {"nsize": 3, "alpha": 0.5, "knorm": 1.0}, "")],
    "LeakyReLU": [([(2, 3, 4)], {"act_type": t}, "") for t in ("leaky", "elu", "gelu")]
                 + [([(2, 3, 4), (3,)], {"act_type": "prelu"}, ""), ([(2, 3), (1,)], {"act_type": "prelu"}, ""),
                    ([(2, 3, 4)], {"act_type": "selu"}, "loss"), ([(20, 30)], {"act_type": "rrelu"}, "random")],
    "SVMOutput": [([(4, 5), (INTS, (4,), 5)], {}, "loss"), ([(4, 5), (INTS, (4,), 5)], {"use_linear": True}, "loss")],
    "softmax_cross_entropy": [([(4, 5), (INTS, (4,), 5)], {}, "only:0")],
    "IdentityAttachKLSparseReg": [],  # its derivative is not the slope and has a state: tests/kernels/ops/loss/test_label_loss.py
    "multi_sgd_update": [([(3, 4)] * 4, {"lrs": (0.1, 0.2), "wds": (0.0, 0.1), "num_weights": 2, "num_args": 4}, "none")],
    "multi_sgd_mom_update": [], "multi_mp_sgd_update": [], "multi_mp_sgd_mom_update": [],  # test_multi.py
    "multi_sum_sq": [([(3, 4), (5,)], {"num_arrays": 2}, "none")], "all_finite": [([(3, 4)], {}, "none")],
    "multi_all_finite": [([(3, 4), (5,)], {"num_arrays": 2}, "none")],
    "RNN": [([(3, 2, 3), (84,), (2, 2, 2)], {"state_size": 2, "num_layers": 1, "mode": "gru", "bidirectional": True}, ""),
            ([(3, 2, 3), (144,), (2, 2, 3)], {"state_size": 3, "num_layers": 2, "mode": "gru", "p": 0.4}, "random")],
    "_sample_multinomial": [([(INTS, (3, 4), 9)], {"shape": (20,)}, "none")], "_shuffle": [([(9, 2)], {}, "none")],
    **{f"_sample_{n}": [] for n in DISTRIBUTIONS}, **{f"_random_{n}": [] for n in DISTRIBUTIONS},  # test_distributions.py
    **{f"_random_{n}_like": [([(20, 30)], {}, "none")] for n in DISTRIBUTIONS},
    "_zeros": [([], {"shape": (2, 3)}, "none")], "_ones": [([], {"shape": (2, 3)}, "none")],
    "_full": [([], {"shape": (2, 3), "value": 2.5}, "none")],
    "_random_uniform": [([], {"shape": (300,)}, "random")], "_random_normal": [([], {"shape": (300,)}, "random")],
    "_random_randint": [([], {"shape": (300,), "low": 0, "high": 9}, "random")],
}
SELF_PROVED = (SimpleOp, ReductionOp)
CASES = [pytest.param(n, *case, id=f"{n}-{i}") for n, cases in TABLE.items() if n in registered() for i, case in enumerate(cases)]

SMOOTH = [c for c in CASES if c.values[3] in ("", "train") or "only" in c.values[3]]


def test_no_operator_is_left_out():
    names = {o.name for o in registered().values() if not isinstance(o, SELF_PROVED) and not o.name.startswith("_test_")}
    assert not names - set(TABLE), f"give these a line in the table: {sorted(names - set(TABLE))}"


def data(inputs, rng):
    return [rng.integers(0, i[2], i[1]).astype("float64") if i and i[0] == INTS else rng.normal(size=i) for i in inputs]


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


@pytest.mark.parametrize("name, inputs, params, note", CASES)
def test_cpu_equals_interpreted_gpu(name, inputs, params, note, rng):
    xs = data(inputs, rng)
    on_cpu, on_gpu = (run(name, xs, params, c) for c in (mx.cpu(), mx.gpu()))
    assert len(on_cpu) == len(on_gpu)
    for c, g in zip(on_cpu, on_gpu):
        assert_close(g, c, scale=10)  # 10: sums of a few dozen products in another order


@pytest.mark.parametrize("name, inputs, params, note", SMOOTH)
def test_gradient_is_the_slope(name, inputs, params, note, rng, ctx):
    if ctx.is_gpu and note != "":
        ctx = mx.cpu()
    xs = data(inputs, rng)
    if note == "train":
        moving = xs[3:]
        fn = lambda *a: call(name, [*a, *(mx.nd.array(np.abs(m), ctx=ctx, dtype="float64") for m in moving)], params)
        check_gradient(fn, xs[:3], ctx, rng)
    elif note.startswith("only:"):
        moved = [int(i) for i in note[5:].split(",")]
        fixed = {i: mx.nd.array(x, ctx=ctx, dtype="float64") for i, x in enumerate(xs) if i not in moved}

        def fn(*a):
            given = iter(a)
            return call(name, [fixed[i] if i in fixed else next(given) for i in range(len(xs))], params)

        check_gradient(fn, [xs[i] for i in moved], ctx, rng)
    else:
        check_gradient(lambda *a: call(name, a, params), xs, ctx, rng)


@pytest.mark.parametrize("name, inputs, params, note", [c for c in CASES if len(c.values[1]) > 1 and c.values[3] != "none"])
def test_one_variable_among_constants(name, inputs, params, note, rng, ctx):
    """Backward is asked for one derivative only; the outputs of the others do not exist."""
    for one in range(len(inputs)):
        arrays = [mx.nd.array(x, ctx=ctx, dtype="float32") for x in data(inputs, rng)]
        arrays[one].attach_grad()
        with mx.autograd.record():
            out = getattr(mx.nd, name)(*arrays, **params)
        outs = list(out) if isinstance(out, (list, tuple)) else [out]
        if outs[0]._grad_edge is not None:
            mx.autograd.backward(outs)
            assert np.isfinite(arrays[one].grad.asnumpy()).all()
