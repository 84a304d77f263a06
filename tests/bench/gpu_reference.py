"""Samples of a call's results against attention in float64, so that no wrong result is timed."""

import random

# Largest relative error of a sampled row of the output.
LIMITS = {"bfloat16": 2e-2, "float16": 3e-3, "float32": 1e-5}
_ROWS = 64


def rotate(torch, row, cos, sin):
    """Rotary embedding of (..., D) in float64: channels i and i + D/2 are a pair."""
    first, second = row.double().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def attend(torch, query, key, value, visible):
    """softmax(q k / sqrt(D)) v in float64. query (R, D), key and value (T, D), visible (R, T) or
    None."""
    scores = query.double() @ key.double().T * query.shape[-1] ** -0.5
    if visible is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    return torch.softmax(scores, dim=-1) @ value.double()


def row_error(out, reference):
    """The largest relative error of a row; infinite where a result is no number."""
    error = ((out.double() - reference).norm(dim=-1) / reference.norm(dim=-1)).max().item()
    return error if error == error else float("inf")


def _pairs(generator, batch, heads):
    picked = {(0, 0), (batch - 1, heads - 1)}
    picked.update((generator.randrange(batch), generator.randrange(heads)) for _ in range(2))
    return sorted(picked)


def prefill_error(torch, case, turn, tables=None, seed=1):
    """Rows of some sequences and heads, the first and the last among them. tables: cos and sin,
    where query and key are rotated."""
    generator = random.Random(seed)
    size, group = case.head_size, case.num_heads // case.kv_num_heads
    worst = 0.0
    for batch, head in _pairs(generator, case.batch, case.num_heads):
        rows = sorted({0, 1, case.tokens - 1,
                       *(generator.randrange(case.tokens) for _ in range(_ROWS))})
        rows = torch.tensor(rows, device=turn.query.device)
        mine, theirs = (slice(h * size, h * size + size) for h in (head, head // group))
        visible = None
        if case.mask == "causal":
            visible = torch.arange(case.tokens, device=rows.device)[None, :] <= rows[:, None]
        query, key = turn.query[batch, rows, mine], turn.key[batch, :, theirs]
        if tables:
            cos, sin = (table.double() for table in tables)
            query, key = rotate(torch, query, cos[rows], sin[rows]), rotate(torch, key, cos, sin)
        reference = attend(torch, query, key, turn.value[batch, :, theirs], visible)
        worst = max(worst, row_error(turn.output[batch, rows, mine], reference))
    return worst


def append_error(torch, case, turn, presents, tables=None):
    """Whether the presents hold the new rows, bit by bit: 0 or infinite. Of rotated keys, the error
    of the first sequence's."""
    worst = 0.0
    for new, present in zip((turn.key, turn.value), presents):
        batch, rows, _ = new.shape
        wanted = new.view(batch, rows, case.kv_num_heads, case.head_size).transpose(1, 2)
        if tables and new is turn.key:
            cos, sin = (table.double() for table in tables)
            worst = row_error(present[0], rotate(torch, wanted[0], cos, sin))
        elif not (present == wanted).all().item():
            return float("inf")
    return worst


def decode_error(torch, case, memory, turn, rotary, seed=1):
    """All query heads of some key heads: the output, and the row that was appended."""
    generator = random.Random(seed)
    size, group = case.head_size, case.num_heads // case.kv_num_heads
    last = case.tokens - 1
    cos, sin = memory.cos[last].double(), memory.sin[last].double()
    worst = 0.0
    for batch, head in _pairs(generator, case.batch, case.kv_num_heads):
        theirs = slice(head * size, head * size + size)
        query = turn.query[batch, 0].view(-1, size)[head * group:head * group + group]
        new_key, new_value = turn.key[batch, 0, theirs], turn.value[batch, 0, theirs]
        if rotary:
            query, new_key = (rotate(torch, t, cos, sin) for t in (query, new_key))
        key, value = turn.key_cache[batch, head], turn.value_cache[batch, head]
        reference = attend(torch, query, key, value, None)
        out = turn.output[batch, 0].view(-1, size)[head * group:head * group + group]
        worst = max(worst, row_error(out, reference),
                    row_error(key[last][None], new_key.double()[None]),
                    row_error(value[last][None], new_value.double()[None]))
    return worst
