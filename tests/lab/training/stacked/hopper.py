"""Our Triton kernels without a GPU: recorded launches, and their compilation for Hopper."""

from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace

import torch

SHARED = 227 * 1024  # bytes of shared memory that one program may use
_KINDS = {torch.float32: "*fp32", torch.bfloat16: "*bf16"}
_OPTIONS = ("num_warps", "enable_fp_fusion")


@dataclass
class Launch:
    """A kernel, the kinds of its arguments (``*fp32``, ``i32``, ...), its constants, and options of the compiler.

    Attributes:
        divisible: arguments that are divisible by 16, besides pointers.
    """

    kernel: object
    kinds: dict
    constants: dict
    options: dict
    divisible: tuple = ()

    @property
    def name(self):
        return self.kernel.__name__

    def compiled(self):
        """Return the kernel compiled for a Hopper GPU, which the machine need not have."""
        import triton
        from triton.backends.compiler import GPUTarget

        signature, values, attributes = {}, {}, {}
        for place, argument in enumerate(self.kernel.arg_names):
            if argument in self.constants:
                signature[argument], values[place,] = "constexpr", self.constants[argument]
                continue
            signature[argument] = self.kinds[argument]
            if self.kinds[argument].startswith("*") or argument in self.divisible:
                attributes[place,] = [["tt.divisibility", 16]]
        source = triton.compiler.ASTSource(self.kernel, signature, values, attributes)
        return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=self.options)


@dataclass
class Notes:
    """Records launches of kernels, each kind once, instead of making them."""

    launches: list[Launch] = field(default_factory=list)

    def instead_of(self, module):
        """Return a substitute for a module of kernels."""
        kernels = {name: kernel for name, kernel in vars(module).items() if hasattr(kernel, "arg_names")}
        return SimpleNamespace(**{name: _Kernel(partial(self._note, kernel)) for name, kernel in kernels.items()})

    def _note(self, kernel, *arguments, **constants):
        options = {name: constants.pop(name) for name in _OPTIONS}
        given = dict(zip(kernel.arg_names, arguments, strict=False))
        kinds = {name: _kind(value) for name, value in given.items()}
        divisible = tuple(name for name, value in given.items() if isinstance(value, int) and value % 16 == 0)
        launch = Launch(kernel, kinds, constants, options, divisible)
        if launch not in self.launches:
            self.launches.append(launch)


@dataclass
class _Kernel:
    note: partial

    def __getitem__(self, programs):
        return self.note


def _kind(value):
    if isinstance(value, torch.Tensor):
        return _KINDS[value.dtype]
    return "i32" if isinstance(value, int) else "fp32"
