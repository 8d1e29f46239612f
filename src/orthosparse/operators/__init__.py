"""Products with sparse matrices as torch operators: of blocks (GPU kernels) and of single entries (CSR, on the CPU)."""

from orthosparse.operators.block import SIZES, block_linear, has_kernel, plan_of
from orthosparse.operators.block_plan import starts_of
from orthosparse.operators.csr import csr_linear, csr_tables
from orthosparse.operators.csr_convolution import csr_convolution
from orthosparse.operators.csr_inference import convolution_inference, csr_inference
from orthosparse.operators.tuning import measured
from orthosparse.operators.windows import Geometry, has_convolutions, transposed_tables

__all__ = [
    "SIZES",
    "Geometry",
    "block_linear",
    "convolution_inference",
    "csr_convolution",
    "csr_inference",
    "csr_linear",
    "csr_tables",
    "has_convolutions",
    "has_kernel",
    "measured",
    "plan_of",
    "starts_of",
    "transposed_tables",
]
