"""`mx.contrib.amp`: automatic mixed precision, by MXNet's operator lists."""

from . import amp as amp
from . import lists as lists
from . import loss_scaler as loss_scaler
from .amp import convert_bucketing_module as convert_bucketing_module
from .amp import convert_hybrid_block as convert_hybrid_block
from .amp import convert_model as convert_model
from .amp import convert_symbol as convert_symbol
from .amp import init as init
from .amp import init_trainer as init_trainer
from .amp import list_conditional_fp32_ops as list_conditional_fp32_ops
from .amp import list_fp32_ops as list_fp32_ops
from .amp import list_loss_output_functions as list_loss_output_functions
from .amp import list_lp16_fp32_ops as list_lp16_fp32_ops
from .amp import list_lp16_ops as list_lp16_ops
from .amp import list_lp16_use_fp32_params as list_lp16_use_fp32_params
from .amp import list_widest_type_cast as list_widest_type_cast
from .amp import scale_loss as scale_loss
from .amp import unscale as unscale
