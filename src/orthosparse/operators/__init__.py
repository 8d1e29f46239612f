"""Products with sparse matrices as operators of torch: blocks (GPU kernels) and single entries (CSR, on the CPU)."""

from orthosparse.operators.block import SIZES, block_linear, has_kernel, plan_of
from orthosparse.operators.block_plan import starts_of
from orthosparse.operators.csr import csr_linear, csr_tables
from orthosparse.operators.tuning import measured

__all__ = ["SIZES", "block_linear", "csr_linear", "csr_tables", "has_kernel", "measured", "plan_of", "starts_of"]
