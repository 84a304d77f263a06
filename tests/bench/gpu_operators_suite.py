"""Suite `operators` on a GPU: the operators beside GroupQueryAttention.

Sequences of different lengths next to the same sequences called apart, LinearAttention next to the
time that ONNX Runtime publishes, masked Attention next to PyTorch.
"""

import gpu_measure
import library

COLUMNS = ("case", "ours us", "peer us", "peer", "of limit", "engine")

# Sequences of different lengths may take this much longer than their valid keys alone.
VARLEN_TIME = 1.25
# What ONNX Runtime's project states for its LinearAttention: 8,192 tokens, 16/16/48 heads of 128.
ORT_LINEAR_US = 15900.0

_OURS, _APART, _TORCH = "ours", "called apart", "PyTorch"
_LENGTHS = [4096] + [256] * 15
_HEADS, _KV_HEADS, _SIZE = 32, 8, 128


class _Call:
    """One bound call."""

    def __init__(self, context, name, inputs, outputs, attributes):
        domain, operator, version = name
        self.binding = context.op(domain, operator, version=version, **attributes).bind(
            context.session(), inputs, outputs)
        self.binding.prepare()
        self.engine = library.engine_name(self.binding.describe())

    def launcher(self, torch):
        """A function that launches on PyTorch's current stream."""
        return lambda: self.binding.execute(stream=torch.cuda.current_stream().cuda_stream)


def _normal(torch, options, *shape, scale=1.0, dtype=None):
    values = torch.randn(*shape, device=options.device, dtype=torch.float32) * scale
    return values.to(dtype or torch.bfloat16)


def _padded(torch, context, options, rows, lengths):
    """VarlenAttention of `rows` queries a sequence."""
    batch, most = len(lengths), max(lengths)
    query = _normal(torch, options, batch, rows, _HEADS, _SIZE)
    key, value = (_normal(torch, options, batch, most, _KV_HEADS, _SIZE) for _ in range(2))
    valid = torch.tensor(lengths, dtype=torch.int64, device=options.device)
    return _Call(context, ("pkg.nxrt", "VarlenAttention", 1),
                 {"query": query, "key": key, "value": value, "nonpad_kv_seqlen": valid},
                 {"output": torch.empty_like(query)},
                 {"num_heads": _HEADS, "kv_num_heads": _KV_HEADS, "is_causal": 1})


def _packed(torch, context, options, lengths):
    """PackedVarlenAttention of whole sequences."""
    tokens = sum(lengths)
    query = _normal(torch, options, tokens, _HEADS, _SIZE)
    key, value = (_normal(torch, options, tokens, _KV_HEADS, _SIZE) for _ in range(2))
    ends = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    ends = torch.tensor(ends, dtype=torch.int32, device=options.device)
    return _Call(context, ("pkg.nxrt", "PackedVarlenAttention", 1),
                 {"query": query, "key": key, "value": value, "cu_seqlens_q": ends},
                 {"output": torch.empty_like(query)},
                 {"num_heads": _HEADS, "kv_num_heads": _KV_HEADS, "is_causal": 1,
                  "max_seqlen_q": max(lengths), "max_seqlen_k": max(lengths)})


def _varlen_cases(torch, context, options):
    """(name, {contender: functions}, factor of the peer's time, engine)"""
    def both(name, make):
        calls = {length: make([one for one in _LENGTHS if one == length])
                 for length in sorted(set(_LENGTHS))}
        whole = make(_LENGTHS)
        apart = [call.launcher(torch) for call in calls.values()]
        return (name, {_OURS: whole.launcher(torch),
                       _APART: lambda: [launch() for launch in apart]},
                _APART, VARLEN_TIME, whole)

    for rows in (1, 64, 256):
        yield both(f"VarlenAttention 4096, 15x256, {rows} queries",
                   lambda lengths, rows=rows: _padded(torch, context, options, rows, lengths))
    yield both("PackedVarlenAttention 4096, 15x256",
               lambda lengths: _packed(torch, context, options, lengths))


def _linear_case(torch, context, options, tokens):
    heads, states, size, half = 16, 48, 128, torch.float16
    query, key = (_normal(torch, options, 1, tokens, heads * size, scale=0.08, dtype=half)
                  for _ in range(2))
    value = _normal(torch, options, 1, tokens, states * size, dtype=half)
    decay = -_normal(torch, options, 1, tokens, states, dtype=half).abs() * 0.1
    beta = torch.rand(1, tokens, states, device=options.device).to(half)
    state = torch.empty(1, states, size, size, dtype=half, device=options.device)
    call = _Call(context, ("com.microsoft", "LinearAttention", 1),
                 {"query": query, "key": key, "value": value, "decay": decay, "beta": beta},
                 {"output": torch.empty_like(value), "present_state": state},
                 {"q_num_heads": heads, "kv_num_heads": states, "update_rule": "gated_delta"})
    return (f"LinearAttention {tokens} tokens 16/16/48x128 float16", {_OURS: call.launcher(torch)},
            None, None, call)


def _masked_case(torch, context, options, batch, rows):
    heads, size = 12, 64
    query, key, value = (_normal(torch, options, batch, heads, rows, size) for _ in range(3))
    mask = torch.rand(batch, 1, 1, rows, device=options.device) < 0.8
    call = _Call(context, ("ai.onnx", "Attention", 24),
                 {"Q": query, "K": key, "V": value, "attn_mask": mask},
                 {"Y": torch.empty_like(query)}, {})
    attend = torch.nn.functional.scaled_dot_product_attention
    return (f"Attention {batch}x{rows} masked 12x64",
            {_OURS: call.launcher(torch),
             _TORCH: lambda: attend(query, key, value, attn_mask=mask)}, _TORCH, None, call)


def _cases(torch, context, options):
    yield from _varlen_cases(torch, context, options)
    for tokens in (1, 2048, 8192):
        yield _linear_case(torch, context, options, tokens)
    for batch, rows in ((8, 128), (8, 512)):
        yield _masked_case(torch, context, options, batch, rows)


def _measure(torch, case, options):
    name, functions, peer, factor, call = case
    graphs = {who: gpu_measure.Graph(torch, [function]) for who, function in functions.items()}
    times = gpu_measure.interleaved(graphs, options.rounds, options.seconds)
    middle = {who: seconds * 1e6 for who, seconds in gpu_measure.medians(times).items()}
    limit = middle[peer] * factor if factor else None
    if name.startswith("LinearAttention 8192"):
        limit = ORT_LINEAR_US
    faults = call.binding.session.poll_faults()
    if faults:
        raise RuntimeError(f"the device reports: {faults.text}")
    return {"case": name, "metric": "time", "unit": "us", "ours": middle[_OURS],
            "peers": {who: value for who, value in middle.items() if who != _OURS},
            "limit": limit, "bar": limit is not None, "failures": {}, "engine": call.engine,
            "rounds_us": {who: [1e6 * one for one in values] for who, values in times.items()}}


def _cells(row):
    peer = next(iter(row["peers"].items()), ("-", None))
    return (row["case"], f"{row['ours']:.1f}", "-" if peer[1] is None else f"{peer[1]:.1f}",
            peer[0], f"{row['ours'] / row['limit']:.2f}" if row["limit"] else "-", row["engine"])


def run(attn_c, options, emit):
    """`emit` gets each row and its cells as soon as they are measured."""
    import torch
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.cuda.set_device(options.device)
    torch.zeros(1, device=options.device)  # the primary context, which the library then shares
    context = library.make_context(attn_c, options.device, 0, options.engine)
    for case in _cases(torch, context, options):
        if options.filter and options.filter not in case[0]:
            continue
        row = _measure(torch, case, options)
        emit(row, _cells(row))


def versions(options):
    """Versions of the peers, and of what they run on."""
    import torch
    return {"torch": torch.__version__, "CUDA of torch": torch.version.cuda,
            "cuDNN": torch.backends.cudnn.version()}
