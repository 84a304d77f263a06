"""A program whose types mypy --strict infers; each reveal_type is held to the line in
program.expected. It is checked, not run."""

import numpy as np

import attn_c

context = attn_c.Context("cpu", thread_count=2)
reveal_type(context.info.engines)
reveal_type(context.stats.plans_live)
op = context.op("ai.onnx", "Attention", 24, is_causal=1)
reveal_type(op)
array = np.ones((1, 2, 3, 4), np.float32)
support = op.query(Q=("float32", (1, 2, 3, 4)), K=("float32", (1, 2, 3, 4)),
                   V=("float32", (1, 2, 3, None)))
reveal_type(support.reason)
reveal_type(op.infer("Y", Q=array, K=array, V=array))
session = context.session("name")
reveal_type(session.poll_faults())
with op.bind(session, {"Q": array, "K": array, "V": array}, {"Y": array}) as binding:
    reveal_type(binding)
    binding.prepare(max_batch=2)
    binding.execute(stream=0)
    reveal_type(binding.capture_support().baked_slots)
    reveal_type(binding.describe())
plan = op.prepare({"Q": array}, ["Y"])
reveal_type(plan.info.workspace_bytes)
tensor = context.put(array)
reveal_type(tensor.numpy())
reveal_type(attn_c.view(array, "bfloat16").shape)
with context.stream() as stream, context.capture(stream) as graph:
    reveal_type(graph)
reveal_type(attn_c.devices())
reveal_type(attn_c.operators()[0].inputs[0].may_alias)
try:
    binding.execute()
except attn_c.Unsupported as error:
    reveal_type(error.status)
    reveal_type(error.sticky)
reveal_type(attn_c.native.attn_op_prepare(op.handle, None))
reveal_type(attn_c.native.attn_plan_describe(attn_c.native.attn_op_prepare(op.handle, None), 0))
