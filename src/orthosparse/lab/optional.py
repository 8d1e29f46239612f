"""Packages that only some networks need: imported where they are used, with the remedy where they cannot be."""

from importlib import import_module
from types import ModuleType

import torch


def import_timm(module: str = "timm") -> ModuleType:
    """Return timm, or one of its modules.

    Raises:
        ImportError: timm is not installed, or its torchvision was built for another torch; the message says what to
            install.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{module}: not installed; pip install 'orthosparse[timm]'") from error
    except RuntimeError as error:  # torchvision describes operators that it could not load
        if "torchvision::" not in str(error):
            raise
        raise ImportError(f"{module}: {torchvision_remedy(torch.__version__)}") from error


def torchvision_remedy(torch_version: str) -> str:
    """Return how to install the build of torchvision that fits a build of torch.

    Example:
        >>> torchvision_remedy("2.13.0+cpu").partition("; ")[2]
        'pip uninstall -y torchvision, then torch==2.13.0+cpu and torchvision in one install, from where torch came'
    """
    return (
        f"the installed torchvision was built for another torch than {torch_version}; pip uninstall -y torchvision, "
        f"then torch=={torch_version} and torchvision in one install, from where torch came"
    )
