"""Build the optional sampling kernel; everything else is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import Extension, setup

# -ffp-contract=off: a fused multiply-add would make values depend on the compiler's choices.
UNIX_FLAGS = ["-std=c++17", "-O3", "-ffp-contract=off", "-pthread"]

setup(
    options={"bdist_wheel": {"py_limited_api": "cp311"}},  # one wheel for Python 3.11 and later
    ext_modules=[
        Extension(
            "orthosparse.givens._kernel",
            ["src/orthosparse/givens/kernel.cpp"],
            depends=sorted(str(path) for path in Path("src/orthosparse/givens/kernel").glob("*.hpp")),
            extra_compile_args=["/std:c++17", "/O2", "/fp:precise"] if sys.platform == "win32" else UNIX_FLAGS,
            extra_link_args=[] if sys.platform == "win32" else ["-pthread"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
            optional=True,  # no compiler: the pure-Python path serves
        )
    ],
)
