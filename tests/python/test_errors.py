"""Errors: a class a status, with the library's words."""

import numpy as np
import pytest

import attn_c
from attn_c import native
from conftest import prompt


def test_every_status_has_a_class():
    statuses = {getattr(native, name) for name in dir(native)
                if name.startswith("ATTN_") and name[5:] in (
                    "INVALID_ARGUMENT", "UNSUPPORTED", "VERSION", "UNAVAILABLE", "NOT_PREPARED",
                    "CAPTURE", "BUSY", "OUT_OF_MEMORY", "COMPILE", "DEVICE", "FAULT", "INTERNAL")}
    assert statuses == set(range(1, 13))
    classes = {kind.status: kind for kind in attn_c.Error.__subclasses__()}
    assert set(classes) == statuses
    assert all(getattr(attn_c, kind.__name__) is kind for kind in classes.values())


@pytest.mark.parametrize("kind, builtin", [
    (attn_c.InvalidArgument, ValueError), (attn_c.Unsupported, NotImplementedError),
    (attn_c.OutOfMemory, MemoryError)])
def test_classes_are_also_pythons_own(kind, builtin):
    assert issubclass(kind, attn_c.Error) and issubclass(kind, builtin)


def test_an_error_carries_the_librarys_words(op):
    with pytest.raises(ValueError) as caught:
        op(**dict(prompt(), seqlens_k=np.array([7, 4], np.int32)))
    error = caught.value
    assert isinstance(error, attn_c.InvalidArgument)
    assert error.status == 1 and error.native_code == 0 and error.native_domain == 0
    assert not error.sticky
    assert "layer 0" in str(error) and "seqlens_k" in str(error)


def test_unknown_operators_and_attributes(ctx):
    with pytest.raises(attn_c.Unsupported, match="NoSuchOperator"):
        ctx.op("com.microsoft", "NoSuchOperator")
    with pytest.raises(attn_c.Unsupported, match="GroupQueryAttention"):
        ctx.op("com.microsoft", "GroupQueryAttention", version=99, num_heads=1, kv_num_heads=1)
    with pytest.raises(attn_c.InvalidArgument, match="kv_num_heads"):
        ctx.op("com.microsoft", "GroupQueryAttention", num_heads=4)
    with pytest.raises(attn_c.InvalidArgument, match="no_such_attribute"):
        ctx.op("com.microsoft", "GroupQueryAttention", num_heads=4, kv_num_heads=2,
               no_such_attribute=1)
    for value in (object(), [1, "2"], None):
        with pytest.raises(attn_c.InvalidArgument, match="attribute softcap"):
            ctx.op("com.microsoft", "GroupQueryAttention", num_heads=4, kv_num_heads=2,
                   softcap=value)


def test_devices_that_are_not_there():
    with pytest.raises(attn_c.InvalidArgument, match="cpu.*cuda"):
        attn_c.Context("tpu")
    with pytest.raises(attn_c.InvalidArgument):
        attn_c.Context("cuda:x")
    for device in attn_c.devices():
        if not device.available and device.device_type == native.ATTN_DEVICE_CUDA:
            with pytest.raises(attn_c.Unavailable):
                attn_c.Context(f"cuda:{device.device_id}")


def test_an_unknown_simd_level_is_refused():
    with pytest.raises(attn_c.Error, match="no-such-level"):
        attn_c.Context("cpu", simd_level="no-such-level")


def test_null_handles_are_refused_and_not_followed():
    with pytest.raises(attn_c.InvalidArgument):
        native.attn_context_get_stats(None, native.attn_context_stats())
    with pytest.raises(attn_c.InvalidArgument):
        native.attn_plan_execute(None, None, None, None, None)
    with pytest.raises(TypeError):
        native.attn_plan_execute(None, None, "inputs", None, None)


def test_a_failed_call_leaves_outputs_alone(op):
    inputs = dict(prompt(), seqlens_k=np.array([7, 4], np.int32))
    output = np.full_like(inputs["query"], 3.0)
    with pytest.raises(attn_c.InvalidArgument):
        op(out={"output": output}, outputs=["output"], **inputs)
    assert (output == 3.0).all()
