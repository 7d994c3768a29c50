"""Loads our library, the extension module `c10d_neuron._C`, when something first needs it."""

from __future__ import annotations

from types import ModuleType


def library() -> ModuleType:
    """The extension module.

    Raises:
        ImportError: It is not built, or was built for another torch or Python; the message says what to do.
    """
    try:
        from c10d_neuron import _C
    except ImportError as error:
        import torch

        raise ImportError(
            f"The library of c10d-neuron cannot be loaded: {error}. In a clone of the repository, run scripts/build; "
            f"otherwise install c10d-neuron again, beside the torch that is in use ({torch.__version__})."
        ) from error
    return _C
