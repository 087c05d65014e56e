"""A test device: an accelerator without an accelerator.

Its tensors say that they are on a device of type ``counted``, and hold their data on the CPU. As on
a real accelerator, an operator refuses tensors of both devices, random numbers come from a
generator of the device, and a backward pass runs on a thread of its own. The device counts what an
accelerator spends time on, see :class:`Counts`.

Importing this module registers the device with torch, which then has an accelerator: use it in a
process of its own, see ``on_device`` in ``tests/run/test_accelerator.py``. It needs the Python
backends of torch 2.10 or newer.
"""

import contextlib
from dataclasses import dataclass

import torch
from torch.utils._pytree import tree_any, tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from neuroinit.kernels.normalization import common as normalization
from tests.run.accelerator.device_cells import CELLS

NAME = "counted"
MEMORY = 2**34  # bytes that the device says it has


@dataclass
class Counts:
    """What was done on the device since the last reset.

    Args:
        operators: Calls that compute something: kernels that are launched.
        views: Calls that only describe memory in another way, or allocate it.
        copies: Copies from the CPU to the device.
        waits: Points where the CPU waits for the device: copies to it, ``.item()``, ``nonzero``.
    """

    operators: int = 0
    views: int = 0
    copies: int = 0
    waits: int = 0


COUNTS = Counts()


@contextlib.contextmanager
def counting():
    """Counts of what happens inside; they can be read at any time."""
    outer, inner = dict(vars(COUNTS)), Counts()
    vars(COUNTS).update(vars(Counts()))
    try:
        yield inner
    finally:
        vars(inner).update(vars(COUNTS))
        for key, value in outer.items():
            setattr(COUNTS, key, value + getattr(inner, key))


class CountedTensor(torch.Tensor):
    """A tensor on the device; ``host`` has its data."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, host):
        found = torch.Tensor._make_wrapper_subclass(
            cls,
            host.shape,
            host.stride(),
            host.storage_offset(),
            dtype=host.dtype,
            device=f"{NAME}:0",
        )
        found.host = host
        return found

    def __repr__(self):
        return f"CountedTensor({self.host})"

    @classmethod
    def __torch_dispatch__(cls, operator, types, args=(), kwargs=None):
        return _run(operator, args, kwargs or {})

    def untyped_storage(self):
        return self.host.untyped_storage()

    def data_ptr(self):
        return self.host.data_ptr()

    def __reduce_ex__(self, protocol):
        return CountedTensor, (self.host.detach(),)

    def __deepcopy__(self, memo):
        twin = self.detach().clone().requires_grad_(self.requires_grad)
        twin._is_param = getattr(self, "_is_param", False)
        return memo.setdefault(id(self), twin)


WAITING = {"_local_scalar_dense", "nonzero", "equal", "masked_select", "_unique2", "unique_dim"}
ALLOCATING = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
RESHAPING = {"squeeze_", "unsqueeze_", "transpose_", "t_", "as_strided_", "resize_"}
MIXING = {"copy_", "_to_copy"}  # what moves data between the devices


def _run(operator, args, kwargs):
    """Compute an operator on the CPU, and count it."""
    packet = operator.overloadpacket.__name__
    if packet in RESHAPING:
        raise NotImplementedError(f"{operator}: tensors of {NAME} cannot change their own shape")
    mine = {id(t.host): t for t in tree_leaves((args, kwargs)) if isinstance(t, CountedTensor)}
    if packet not in MIXING:
        _check_devices(operator, args, kwargs)
    to = torch.device(kwargs.get("device") or NAME).type
    _count(operator, packet, args, to)
    kwargs = {k: torch.device("cpu") if k == "device" else v for k, v in kwargs.items()}
    kwargs.pop("pin_memory", None)
    if "generator" in kwargs or _is_random(operator):
        kwargs["generator"] = GENERATOR
    compute = CELLS.get(packet, operator)
    found = compute(*tree_map(_host, args), **tree_map(_host, kwargs))
    if to != NAME or (packet == "copy_" and not isinstance(args[0], CountedTensor)):
        return args[0] if packet == "copy_" else found
    return tree_map(lambda part: _wrapped(part, mine), found)


def _host(part):
    return part.host if isinstance(part, CountedTensor) else part


def _wrapped(part, mine):
    if not isinstance(part, torch.Tensor):
        return part
    return mine[id(part)] if id(part) in mine else CountedTensor(part)


def _is_random(operator):
    return any(a.name == "generator" for a in operator._schema.arguments)


def _check_devices(operator, args, kwargs):
    """Raise for tensors of both devices; numbers, tensors without dimensions, may be on the CPU."""

    def is_foreign(part):
        foreign = isinstance(part, torch.Tensor) and not isinstance(part, CountedTensor)
        return foreign and (part.dim() > 0 or operator in _STRICT)

    if tree_any(is_foreign, (args, kwargs)):
        raise RuntimeError(f"Expected all tensors of {operator} on {NAME}:0, found one on the CPU.")


_STRICT = {torch.ops.aten.cat.default, torch.ops.aten.stack.default, torch.ops.aten.dot.default}


def _count(operator, packet, args, to):
    if to != NAME or packet in WAITING or _to_host(packet, args) or _has_mask(packet, args):
        COUNTS.waits += 1
    elif packet == "copy_" and not isinstance(args[1], CountedTensor):
        COUNTS.copies += 1
    elif operator.is_view or packet in ALLOCATING or packet in ("_unsafe_view", "detach"):
        COUNTS.views += 1
    else:
        COUNTS.operators += 1


def _to_host(packet, args):
    return packet == "copy_" and not isinstance(args[0], CountedTensor)


def _has_mask(packet, args):
    """Whether an index is a mask, whose entries have to be counted first."""
    masks = args[1] if packet in ("index", "index_put", "index_put_") else ()
    return any(m is not None and m.dtype in (torch.bool, torch.uint8) for m in masks)


# -- registration ----------------------------------------------------------------------------------

GENERATOR = torch.Generator()


class _Module:
    """``torch.counted``."""

    def is_initialized(self):
        return True

    def is_available(self):
        return True

    def current_device(self):
        return 0

    def device_count(self):
        return 1

    def synchronize(self, device=None):
        COUNTS.waits += 1

    def manual_seed_all(self, seed):
        GENERATOR.manual_seed(seed)

    manual_seed = manual_seed_all

    def get_rng_state(self, device=0):
        return GENERATOR.get_state()

    def set_rng_state(self, state, device=0):
        GENERATOR.set_state(state)

    def mem_get_info(self, device=0):
        return MEMORY, MEMORY

    def get_amp_supported_dtype(self):
        return [torch.bfloat16, torch.float16]

    def _is_in_bad_fork(self):
        return False


_setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
_LIBRARIES = [torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")]
_LIBRARIES[0].fallback(lambda operator, *args, **kw: _run(operator, args, kw), "PrivateUse1")
_LIBRARIES[0].fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
normalization.PLAIN.add(CountedTensor)
torch.__future__.set_swap_module_params_on_conversion(True)  # `model.to` keeps its parameters


for _overload in ("default", "start", "start_step"):  # torch's own would resize a result
    _arange = getattr(torch.ops.aten.arange, _overload)
    _LIBRARIES[1].impl(_arange, lambda *a, _o=_arange, **kw: _run(_o, a, kw), "PrivateUse1")


def _autocast(operator):
    """Register a product whose arguments autocast converts."""

    def converted(*args):
        dtype = torch.get_autocast_dtype(NAME)

        def narrow(part):
            floating = isinstance(part, torch.Tensor) and part.is_floating_point()
            return part.to(dtype) if floating else part

        with torch.autocast(NAME, enabled=False):
            return operator(*tree_map(narrow, args))

    _LIBRARIES[1].impl(operator, converted, "AutocastPrivateUse1")


for _name in ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "conv2d"):
    _autocast(getattr(torch.ops.aten, _name).default)
