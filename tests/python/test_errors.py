"""Errors: a class a status, with the library's words."""

import fractions

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
        with pytest.raises(attn_c.InvalidArgument, match="attribute 'softcap'"):
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


GQA = ("com.microsoft", "GroupQueryAttention")
HEADS = {"num_heads": 4, "kv_num_heads": 2}
SPECS = {"query": ("float32", (1, 1, 64)), "key": ("float32", (1, 1, 32)),
         "value": ("float32", (1, 1, 32)), "seqlens_k": ("int32", (1,)),
         "total_sequence_length": ("int32", ())}


@pytest.mark.parametrize("number", [2**64, -2**63 - 1, 2**20000], ids=["more", "less", "huge"])
@pytest.mark.parametrize("name, use", [
    ("attribute 'num_heads'", lambda ctx, op, n: ctx.op(*GQA, num_heads=n, kv_num_heads=2)),
    ("attribute 'scale'", lambda ctx, op, n: ctx.op(*GQA, scale=[1, n], **HEADS)),
    ("version", lambda ctx, op, n: ctx.op(*GQA, version=n, **HEADS)),
    ("thread_count", lambda ctx, op, n: attn_c.Context("cpu", thread_count=n)),
    ("cache_limit_bytes", lambda ctx, op, n: attn_c.Context("cpu", cache_limit_bytes=n)),
    ("native_context", lambda ctx, op, n: attn_c.Context("cpu", native_context=n)),
    ("query: shape", lambda ctx, op, n: op.query(**dict(SPECS, query=("float32", (n, 1, 64))))),
    ("query: device",
     lambda ctx, op, n: op.query(**dict(SPECS, query=("float32", (1, 1, 64), (1, n))))),
    ("max_batch", lambda ctx, op, n: op.prepare(SPECS, max_batch=n)),
    ("max_query_length", lambda ctx, op, n: op.prepare(SPECS, max_query_length=n)),
    ("max_total_length", lambda ctx, op, n: op.bind().prepare(max_total_length=n)),
    ("stream", lambda ctx, op, n: op(stream=n, **prompt())),
    ("stream", lambda ctx, op, n: op.bind(None, prompt()).execute(stream=n)),
    ("stream", lambda ctx, op, n: ctx.session().clear_faults(n)),
])
def test_integers_that_the_library_cannot_hold_are_refused_in_words(ctx, op, name, use, number):
    with pytest.raises(attn_c.InvalidArgument,
                       match=rf"(^|: ){name}: expected .* to .*; got ") as caught:
        use(ctx, op, number)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("device", ["cuda:2147483648", "cuda:" + "9" * 5000, "cuda:\u0663"],
                         ids=["more", "huge", "other digits"])
def test_numbers_of_devices_are_small_and_plain(device):
    with pytest.raises(attn_c.InvalidArgument, match="^device.*: expected "):
        attn_c.Context(device)


def test_numbers_that_no_float_holds_are_refused_in_words(ctx):
    huge = fractions.Fraction(10**400, 3)
    for scale in (huge, [0.5, huge]):
        with pytest.raises(attn_c.InvalidArgument, match=": attribute 'scale': expected a number"):
            ctx.op(*GQA, scale=scale, **HEADS)


def test_integers_of_numpy_are_integers(ctx):
    assert attn_c.Context("cpu", thread_count=np.int64(1)).info.thread_count == 1
    for version in (1.0, "1", None):
        with pytest.raises(TypeError):
            ctx.op(*GQA, version=version, **HEADS)


@pytest.mark.parametrize("words", ["a\0b", "\ud800"])
@pytest.mark.parametrize("name, use", [
    ("domain", lambda ctx, op, t: ctx.op(t, GQA[1], **HEADS)),
    ("type", lambda ctx, op, t: ctx.op(GQA[0], t, **HEADS)),
    ("label", lambda ctx, op, t: ctx.op(*GQA, label=t, **HEADS)),
    ("label", lambda ctx, op, t: ctx.session(t)),
    ("the name of an attribute", lambda ctx, op, t: ctx.op(*GQA, **HEADS, **{t: 1})),
    ("attribute 'k_quant_type'", lambda ctx, op, t: ctx.op(*GQA, k_quant_type=t, **HEADS)),
    ("engine", lambda ctx, op, t: attn_c.Context("cpu", engine=t)),
    ("cache_folder", lambda ctx, op, t: attn_c.Context("cpu", cache_folder=t)),
    ("engine", lambda ctx, op, t: op.query(engine=t, **SPECS)),
    ("engine", lambda ctx, op, t: op.prepare(SPECS, engine=t)),
    ("engine", lambda ctx, op, t: op.bind().prepare(engine=t)),
])
def test_texts_that_the_library_cannot_hold_are_refused_in_words(ctx, op, name, use, words):
    with pytest.raises(attn_c.InvalidArgument, match=rf"(^|: ){name}: expected a text"):
        use(ctx, op, words)


def test_bytes_of_a_text_are_utf8(ctx):
    assert ctx.op(*GQA, k_quant_type=b"NONE", **HEADS)
    for words in (b"\xff", b"NONE\0"):
        with pytest.raises(attn_c.InvalidArgument, match=": attribute 'k_quant_type': expected"):
            ctx.op(*GQA, k_quant_type=words, **HEADS)


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


def test_lists_that_are_none_are_empty(op):
    query, prepare = native.attn_query_desc(), native.attn_prepare_desc()
    for desc in (query, prepare):
        desc.set_arguments(None, None)
    support = native.attn_support()
    native.attn_op_query(op.handle, query, support)
    assert not support.supported and "absent" in support.reason
    with pytest.raises(attn_c.InvalidArgument, match="absent"):
        native.attn_op_prepare(op.handle, prepare)
    desc = native.attn_op_desc()
    desc.domain, desc.type, desc.version = *GQA, 1
    desc.set_attributes(None)
    with pytest.raises(attn_c.InvalidArgument, match="num_heads"):
        native.attn_op_create(op.context.handle, desc)
    arguments = native.ArgumentList()
    arguments.add_tensor(0, None)
    assert arguments.size() == 1


@pytest.mark.parametrize("use", [
    lambda: native.attn_tensor.extent(None, 0), lambda: native.attn_plan_info.baked_slot(None, 0),
    lambda: native.ArgumentList.size(None), lambda: native.AttributeList.add_int(None, "a", 1),
    lambda: native.attn_op_desc.set_attributes(None, None),
    lambda: native.attn_query_desc.set_arguments(None, None, None),
    lambda: native.attn_tensor.data.fget(None), lambda: native.attn_tensor.ndim.fset(None, 1),
    lambda: native.capsule_of(None, None, True), lambda: native.described(None, None)])
def test_methods_of_nothing_are_refused(use):
    with pytest.raises(ValueError):
        use()


@pytest.mark.parametrize("arguments", [
    (None, {}, ()), ({}, None, ()), ({}, {}, None), ({}, {}, ()), ({}, {}, (1, 2, 3, 4)),
    ({}, {}, ({}, {}, None, None))])
def test_calls_by_name_check_what_they_get(arguments):
    with pytest.raises(TypeError, match="execute_by_name: expected dictionaries"):
        native.execute_by_name(None, None, *arguments, None, None)


@pytest.mark.parametrize("value", [True, np.True_, [True, False], [1, True]])
def test_a_bool_is_no_number(ctx, value):
    with pytest.raises(attn_c.InvalidArgument, match="attribute 'num_heads': expected"):
        ctx.op(*GQA, num_heads=value, kv_num_heads=1)


def test_numbers_in_arrays_without_axes_are_numbers(ctx):
    assert ctx.op(*GQA, num_heads=np.array(4), kv_num_heads=np.array(2), scale=np.array(0.5))


def test_names_may_be_bytes(ctx):
    assert ctx.op(b"com.microsoft", b"GroupQueryAttention", **HEADS).info.type == GQA[1]


@pytest.mark.parametrize("use", [
    lambda ctx: attn_c.Context(None), lambda ctx: attn_c.Context(1), lambda ctx: attn_c.view([1]),
    lambda ctx: ctx.empty(5), lambda ctx: ctx.empty("2"), lambda ctx: ctx.empty((2,), None),
    lambda ctx: ctx.empty((2.5,)), lambda ctx: ctx.empty((2,)).copy_from(None),
    lambda ctx: ctx.empty((2,)).copy_from("x"), lambda ctx: ctx.op(*GQA, version="1", **HEADS),
    lambda ctx: ctx.op(None, GQA[1], **HEADS)])
def test_values_of_the_wrong_type_are_the_librarys_errors(ctx, use):
    with pytest.raises(attn_c.InvalidArgument, match="expected|unknown"):
        use(ctx)


def test_integers_of_numpy_in_a_tuple_are_no_type_and_shape(op):
    want = op(**prompt()).output
    lengths = (np.int32(4), np.int32(4))
    assert np.array_equal(op(**dict(prompt(), seqlens_k=lengths)).output, want)


def test_types_have_the_standards_names_too():
    for info in attn_c.operators():
        for slot in (*info.inputs, *info.outputs):
            for name in slot.types:
                assert attn_c._dtypes.code_of(name), name


def test_outputs_that_have_no_memory_name_operator_and_output(op):
    specs = {**SPECS, "query": np.broadcast_to(np.float32(0), (1 << 20, 1 << 20, 64)),
             "key": np.broadcast_to(np.float32(0), (1 << 20, 1 << 20, 32)),
             "value": np.broadcast_to(np.float32(0), (1 << 20, 1 << 20, 32)),
             "seqlens_k": np.broadcast_to(np.int32(1 << 20), (1 << 20,)),
             "total_sequence_length": 1 << 20}
    with pytest.raises(attn_c.OutOfMemory, match="^GroupQueryAttention 'layer 0': output: no mem"):
        op(outputs=["output"], **specs)


def test_a_failed_call_leaves_outputs_alone(op):
    inputs = dict(prompt(), seqlens_k=np.array([7, 4], np.int32))
    output = np.full_like(inputs["query"], 3.0)
    with pytest.raises(attn_c.InvalidArgument):
        op(out={"output": output}, outputs=["output"], **inputs)
    assert (output == 3.0).all()


TITLE = "GroupQueryAttention 'layer 0': "


@pytest.mark.parametrize("words, use", [
    ("query: expected a tensor with DLPack of type float32 or float16 or bfloat16; got str",
     lambda op: op(**dict(prompt(), query="none"))),
    ("seqlens_k: expected -2147483648 to 2147483647; got ",
     lambda op: op(**dict(prompt(), seqlens_k=[2**40, 4]))),
    ("seqlens_k: expected a tensor with DLPack of type int32; got list",
     lambda op: op(**dict(prompt(), seqlens_k=[0.5, 4]))),
    ("query: the element type 'half' is unknown; there are ",
     lambda op: op.query(**dict(SPECS, query=("half", (1, 1, 64))))),
    ("query: expected at most 8 axes; got 9",
     lambda op: op.query(**dict(SPECS, query=("float32", (1,) * 9)))),
    ("query: shape: expected ", lambda op: op.query(**dict(SPECS, query=("float32", (2**64,))))),
    ("engine: expected a text without NUL", lambda op: op.query(engine="a\0b", **SPECS)),
    ("max_batch: expected ", lambda op: op.prepare(SPECS, max_batch=2**64)),
    ("stream: expected an int, None", lambda op: op(stream="none", **prompt())),
    ("the binding is closed", lambda op: closed(op).execute()),
    ("workspace: expected an array without gaps; got strides [2]",
     lambda op: op.bind().execute(workspace=np.zeros(8, np.uint8)[::2])),
    ("workspace: expected an array that can be written to",
     lambda op: op.bind().execute(workspace=np.frombuffer(b"12345678", np.uint8)))])
def test_words_of_the_layer_name_operator_label_and_argument(op, words, use):
    with pytest.raises(attn_c.InvalidArgument) as caught:
        use(op)
    assert str(caught.value).startswith(TITLE + words)


def closed(op):
    binding = op.bind()
    binding.close()
    return binding


def test_names_that_there_are_not_and_attributes_name_the_operator(ctx, op):
    with pytest.raises(attn_c.InvalidArgument, match="'layer 0' has no input 'q'; there are query"):
        op.query(q=("float32", (1, 1, 64)))
    with pytest.raises(attn_c.InvalidArgument,
                       match="^GroupQueryAttention 'mine': attribute 'scale': expected an int"):
        ctx.op(*GQA, label="mine", scale=object(), **HEADS)
    with pytest.raises(TypeError, match="'layer 0': query: shape: expected an integer; got str"):
        op.query(**dict(SPECS, query=("float32", ("one", 1, 64))))
    with pytest.raises(TypeError, match="type: expected a text; got int"):
        ctx.op("com.microsoft", 7)
