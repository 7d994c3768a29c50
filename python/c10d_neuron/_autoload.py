"""Registers our backend names with torch.distributed.

`register` is the `torch.backends` entry point: `import torch` calls it in every process of every user, so this module
is pure Python, loads no library of ours, imports nothing that torch has not imported already, and never lets an error
escape. The library is loaded when the first process group is made.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.distributed import Backend, ProcessGroup

ALWAYS_OURS = "neuron_fabric"
SHARED_NAME = "neuron"  # torch-neuronx registers the same name
DISTRIBUTION_OF_OTHERS = "torch-neuronx"
KNOB = "C10D_NEURON_REGISTER"

_devices: list[str] = ["cpu"]
_first_group_made = False


class _Creator:
    """What torch calls to make a process group of one of our names. A value: the name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, options: Any, pg_options: Any) -> ProcessGroup:
        global _first_group_made
        from c10d_neuron._library import library

        create = library().create
        if not _first_group_made:
            _first_group_made = True
            say_who_serves(self.name, options.group_rank)
        return create(options, pg_options, self.name)


_creators = {name: _Creator(name) for name in (SHARED_NAME, ALWAYS_OURS)}


def register(devices: Sequence[str] = ()) -> None:
    """The entry point, and the way for a device to add itself to the devices that our backends serve.

    Args:
        devices: Device types beside those registered already ("cpu" is); a device that is renamed from PrivateUse1 must
            have been renamed before, because torch refuses to make any group for a type that it does not know.

    Raises:
        RuntimeError: `devices` names a new one after the first process group of ours was made.
        TypeError: `devices` is a plain string.
    """
    if isinstance(devices, str):
        raise TypeError(f'devices takes a list of device types, as in ["{devices}"], not one string')
    new = [device for device in devices if device not in _devices]
    if new and _first_group_made:
        raise RuntimeError(
            f"The devices {new} came too late: a process group of c10d-neuron exists already. "
            "Call c10d_neuron.register before init_process_group."
        )
    _devices.extend(new)
    try:
        _register_names()
    except Exception as error:  # whatever it is, importing torch must go on
        _warn(f"The backends {SHARED_NAME} and {ALWAYS_OURS} are not available: {type(error).__name__}: {error}")


def say_who_serves(name: str, rank: int) -> None:
    """Tells the operator, once in a process and on one rank, which package answers to "neuron"."""
    if rank != 0:
        return
    from torch.distributed import Backend

    plugin = Backend._plugins.get(SHARED_NAME.upper())
    if plugin is not None and plugin.creator_fn is _creators[SHARED_NAME]:
        if _is_installed(DISTRIBUTION_OF_OTHERS):
            _warn(
                f'backend "{SHARED_NAME}" is served by c10d-neuron although {DISTRIBUTION_OF_OTHERS} is installed; '
                f"unset {KNOB} to leave the name to {DISTRIBUTION_OF_OTHERS}"
            )
        else:
            _info(f'backend "{name}" is served by c10d-neuron')
        return
    module = getattr(getattr(plugin, "creator_fn", None), "__module__", None)
    other = f"by {module.partition('.')[0]}" if module else "by another package"
    if plugin is None and not hasattr(Backend, SHARED_NAME.upper()):
        other = "by nobody"
    _warn(f'backend "{SHARED_NAME}" is served {other}; c10d-neuron serves "{ALWAYS_OURS}"')


def _register_names() -> None:
    import torch.distributed as dist

    if not dist.is_available():
        return
    # "neuron" first: torch makes the first name that claims a device that device's default.
    if _may_take_shared_name(dist.Backend):
        _register_one(dist.Backend, SHARED_NAME)
    _register_one(dist.Backend, ALWAYS_OURS)


def _register_one(backend: type[Backend], name: str) -> None:
    # A list of its own: torch keeps the object, and reads a plain string as a list of letters.
    backend.register_backend(name, _creators[name], extended_api=True, devices=list(_devices))


def _may_take_shared_name(backend: type[Backend]) -> bool:
    plugin = backend._plugins.get(SHARED_NAME.upper())
    if plugin is not None and plugin.creator_fn is _creators[SHARED_NAME]:
        return True
    choice = os.environ.get(KNOB, "") or "auto"
    if choice in ("0", "1"):
        return choice == "1"
    if choice != "auto":
        _warn(f'{KNOB} is "{choice}"; it takes auto, 1 or 0. Going on as with auto.')
    return not hasattr(backend, SHARED_NAME.upper()) and not _is_installed(DISTRIBUTION_OF_OTHERS)


def _is_installed(distribution: str) -> bool:
    from importlib import metadata

    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def _warn(text: str) -> None:
    # Not warnings.warn: under -W error that would break `import torch`.
    print(f"c10d_neuron: {text}", file=sys.stderr, flush=True)


def _info(text: str) -> None:
    import logging

    logging.getLogger("c10d_neuron").info(text)
