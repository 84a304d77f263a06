"""This library in the benchmarks."""

import memory


def make_context(attn_c, device, thread_count, engine=None):
    """A context as the benchmark measures it."""
    return attn_c.Context(device, thread_count=thread_count, engine=engine)


def make_call(context, operator, attributes, sets):
    """(function that runs the next argument set, name of the engine that does its main work)."""
    domain, version, kind = operator[:3]
    op = context.op(domain, kind, version=version, **attributes)
    session = context.session()
    bindings = []
    for inputs, outputs in sets:
        binding = op.bind(session, inputs, outputs)
        binding.prepare()
        bindings.append(binding)
    return (memory.taking_turns([binding.execute for binding in bindings]),
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
    """The engine of the stage that computes the result, in a plan's description."""
    for stage in description.get("stages", []):
        if stage.get("stage") in ("attention", "linear_attention"):
            return stage.get("engine", "?")
    return "?"
