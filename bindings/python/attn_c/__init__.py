"""attn_c: the attention operators of language models.

    ctx = attn_c.Context("cpu")
    op = ctx.op("com.microsoft", "GroupQueryAttention", num_heads=8, kv_num_heads=2, do_rotary=1)
    out = op(query=q, key=k, value=v, seqlens_k=lengths, total_sequence_length=5,
             cos_cache=cos, sin_cache=sin)
    out.output, out.present_key

Tensors of any family that speaks DLPack go in without a copy; results come back in the family of
the first input, or numpy's where that family cannot take them. A thin layer over attn_c.h: what it
says of objects, threads and errors holds here.
"""

from . import _loading  # noqa: F401  (first: it decides which library the rest uses)
from ._binding import Binding
from ._context import Context, ContextInfo, ContextStats
from ._graph import Graph, Stream
from ._introspection import (
    AttributeInfo, DeviceInfo, OperatorInfo, SlotInfo, abi_version, devices, fault_text,
    operators, version)
from ._memory import Tensor, view
from ._op import Op, Support
from ._plan import Plan, PlanInfo
from ._sessions import FaultInfo, Session
from ._tensors import TensorSpec
from .errors import (
    Busy, CaptureConflict, CompileFailed, DeviceFailed, Error, Fault, Internal, InvalidArgument,
    InvalidType, NotPrepared, OutOfMemory, Unavailable, Unsupported, VersionMismatch)

__version__ = version()

__all__ = [
    "AttributeInfo", "Binding", "Busy", "CaptureConflict", "CompileFailed", "Context",
    "ContextInfo", "ContextStats", "DeviceFailed", "DeviceInfo", "Error", "Fault", "FaultInfo",
    "Graph", "Internal", "InvalidArgument", "InvalidType", "NotPrepared", "Op", "OperatorInfo",
    "OutOfMemory", "Plan", "PlanInfo", "Session", "SlotInfo", "Stream", "Support", "Tensor",
    "TensorSpec", "Unavailable", "Unsupported", "VersionMismatch", "abi_version", "devices",
    "fault_text", "operators", "version", "view"]
