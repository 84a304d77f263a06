"""This library in the GroupQueryAttention benchmark."""

import gqa_memory


def make_context(attn_c, device, thread_count, engine=None):
    """A context as the benchmark measures it."""
    return attn_c.Context(device, thread_count=thread_count, engine=engine)


def make_call(context, case, sets):
    """(function that runs the next argument set, name of the attention engine that does)."""
    op = context.op("com.microsoft", "GroupQueryAttention", **gqa_memory.attributes(case))
    session = context.session()
    bindings = []
    for inputs, outputs in sets:
        binding = op.bind(session, inputs, outputs)
        binding.prepare()
        bindings.append(binding)
    return (gqa_memory.taking_turns([binding.execute for binding in bindings]),
            engine_name(bindings[0].describe()))


def kernel_origin(description):
    """Where the kernel of that engine came from: pack, disk cache, NVRTC; empty on the CPU."""
    name = engine_name(description)
    for stage in description.get("stages", []):
        for verdict in stage.get("considered", []):
            if verdict.get("engine") == name:
                return verdict.get("reason", "").partition("kernel from ")[2]
    return ""


def engine_name(description):
    """The engine of the attention stage in a plan's description."""
    for stage in description.get("stages", []):
        if stage.get("stage") == "attention":
            return stage.get("engine", "?")
    return "?"
