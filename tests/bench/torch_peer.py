"""PyTorch's scaled_dot_product_attention as a peer of the benchmarks on the CPU.

Of GroupQueryAttention it computes the attention alone: no rotary embedding, nothing is appended.
Its queries, keys and values are (batch, heads, tokens, channels), made beforehand.
"""

import memory
import torch

NAME = "PyTorch"
TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def version():
    """PyTorch's."""
    return torch.__version__


def _tensor(array):
    """The array's memory as a tensor."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)


def _heads(array, count):
    """(batch, tokens, heads * channels) with heads in front."""
    tensor = _tensor(array)
    batch, tokens, width = tensor.shape
    return tensor.reshape(batch, tokens, count, width // count).transpose(1, 2).contiguous()


def _gqa_turn(case, inputs):
    query = _heads(inputs["query"], case.num_heads)
    if case.phase == "decode":
        return query, _tensor(inputs["past_key"]), _tensor(inputs["past_value"]), {}
    key, value = (_heads(inputs[name], case.kv_num_heads) for name in ("key", "value"))
    return query, key, value, {"is_causal": True}


def _attention_turn(case, inputs):
    more = {}
    if case.mask == "causal":
        more["is_causal"] = True
    elif case.is_masked:
        more["attn_mask"] = _tensor(inputs["attn_mask"])
    return (*(_tensor(inputs[name]) for name in "QKV"), more)


def make_call(operator, case, sets, thread_count):
    """A function that attends to the next argument set, or None for an operator it lacks."""
    turn = {"GroupQueryAttention": _gqa_turn, "Attention": _attention_turn}.get(operator[2])
    if turn is None:
        return None
    torch.set_num_threads(thread_count)
    attend = torch.nn.functional.scaled_dot_product_attention

    def call(query, key, value, more):
        with torch.inference_mode():
            attend(query, key, value, enable_gqa=query.shape[1] != key.shape[1], **more)

    def made(arguments):
        return lambda: call(*arguments)

    return memory.taking_turns([made(turn(case, inputs)) for inputs, _ in sets], start=0.75)
