"""This library and PyTorch's attention back ends on the same tensors of a GPU."""

import library

FLASH, CUDNN, EFFICIENT, MATH = "FlashAttention-2", "cuDNN", "PyTorch efficient", "PyTorch math"

# PyTorch's math materialises all scores: beyond this many bytes it is left out.
MATH_LIMIT_BYTES = 32 << 30


class Ours:
    """A case bound to this library: one function a turn.

    append: prefill gives present_key and present_value as well. rotary: the query and the new key
    are rotated. Decode always appends to its cache, in place.
    """

    def __init__(self, torch, context, case, memory, append=False, rotary=False):
        decode = case.phase == "decode"
        attributes = {"num_heads": case.num_heads, "kv_num_heads": case.kv_num_heads}
        if case.mask == "none":
            attributes["causal"] = 0
        if rotary:
            attributes["do_rotary"] = 1
        op = context.op("com.microsoft", "GroupQueryAttention", **attributes)
        session = context.session()
        self.presents = None
        self._bindings = []
        for turn in memory.turns:
            inputs = {"query": turn.query, "key": turn.key, "value": turn.value,
                      "seqlens_k": memory.seqlens_k, "total_sequence_length": memory.total}
            outputs = {"output": turn.output}
            if decode:
                inputs.update(past_key=turn.key_cache, past_value=turn.value_cache)
                outputs.update(present_key=turn.key_cache, present_value=turn.value_cache)
            if rotary:
                inputs.update(cos_cache=memory.cos, sin_cache=memory.sin)
            if append:
                shape = (case.batch, case.kv_num_heads, case.tokens, case.head_size)
                self.presents = [torch.empty(shape, dtype=turn.key.dtype, device=turn.key.device)
                                 for _ in range(2)]
                outputs.update(present_key=self.presents[0], present_value=self.presents[1])
            binding = op.bind(session, inputs, outputs)
            binding.prepare()
            self._bindings.append(binding)
        self.session = session
        description = self._bindings[0].describe()
        self.engine = library.engine_name(description)
        self.kernel_origin = library.kernel_origin(description)
        self.workspace_bytes = self._bindings[0].capture_support().workspace_bytes
        self._torch = torch

    def functions(self):
        """One function a turn; each launches on PyTorch's current stream."""
        stream_of = self._torch.cuda.current_stream
        return [lambda binding=binding: binding.execute(stream=stream_of().cuda_stream)
                for binding in self._bindings]


def peer_names(case):
    """The peers of a case."""
    if case.type == "float32":
        scores = 4 * case.batch * case.num_heads * case.tokens ** 2
        return [EFFICIENT, MATH] if scores <= MATH_LIMIT_BYTES else [EFFICIENT]
    # FlashAttention-2 has no split over the keys of one token in PyTorch that is worth a row.
    return [FLASH, CUDNN] if case.phase == "prefill" else [CUDNN]


def heads_first(tensor, heads):
    """(B, S, heads * D) seen as (B, heads, S, D)."""
    batch, rows, width = tensor.shape
    return tensor.view(batch, rows, heads, width // heads).transpose(1, 2)


def peer_functions(torch, name, case, memory):
    """One function a turn of a peer: attention alone, without a KV update."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    backend = {FLASH: SDPBackend.FLASH_ATTENTION, CUDNN: SDPBackend.CUDNN_ATTENTION,
               EFFICIENT: SDPBackend.EFFICIENT_ATTENTION, MATH: SDPBackend.MATH}[name]
    attend = torch.nn.functional.scaled_dot_product_attention
    causal = case.phase == "prefill" and case.mask == "causal"
    grouped = case.num_heads != case.kv_num_heads

    def function(turn):
        query = heads_first(turn.query, case.num_heads)
        key, value = turn.key_cache, turn.value_cache
        if key is None:
            key, value = (heads_first(t, case.kv_num_heads) for t in (turn.key, turn.value))

        def call():
            with sdpa_kernel(backend), torch.no_grad():
                return attend(query, key, value, is_causal=causal, enable_gqa=grouped)
        return call

    return [function(turn) for turn in memory.turns]
