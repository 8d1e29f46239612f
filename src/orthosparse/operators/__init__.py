"""Products with sparse matrices as operators of torch: blocks (GPU kernels) and single entries (CSR, on the CPU)."""

from orthosparse.operators.block import SIZES, block_linear, has_kernel, plan_of
from orthosparse.operators.block_plan import starts_of
from orthosparse.operators.csr import csr_linear, csr_tables
from orthosparse.operators.csr_convolution import Geometry, csr_convolution, has_convolutions
from orthosparse.operators.csr_inference import csr_inference
from orthosparse.operators.tuning import measured

__all__ = [
    "SIZES",
    "Geometry",
    "block_linear",
    "csr_convolution",
    "csr_inference",
    "csr_linear",
    "csr_tables",
    "has_convolutions",
    "has_kernel",
    "measured",
    "plan_of",
    "starts_of",
]
