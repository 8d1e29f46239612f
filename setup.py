"""Build the optional kernels; everything else is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import Extension, setup

UNIX_FLAGS = ["-std=c++17", "-O3", "-pthread"]
# A fused multiply-add would make starts depend on the compiler's choices; products of a layer are faster with it.
CONTRACT = {"givens": "off", "gram": "off", "operators": "fast"}


def kernel(package: str) -> Extension:
    """Return the extension ``orthosparse.package._kernel``, of kernel.cpp there and the headers it includes."""
    unix_flags = [*UNIX_FLAGS, f"-ffp-contract={CONTRACT[package]}"]
    folder = Path("src/orthosparse") / package
    return Extension(
        f"orthosparse.{package}._kernel",
        [str(folder / "kernel.cpp")],
        depends=sorted(str(path) for path in folder.parent.rglob("*.hpp")),
        extra_compile_args=["/std:c++17", "/O2", "/fp:precise"] if sys.platform == "win32" else unix_flags,
        extra_link_args=[] if sys.platform == "win32" else ["-pthread"],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        py_limited_api=True,
        optional=True,  # no compiler: Python serves
    )


setup(
    options={"bdist_wheel": {"py_limited_api": "cp311"}},  # one wheel for Python 3.11 and later
    ext_modules=[kernel(package) for package in CONTRACT],
)
