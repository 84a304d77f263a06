// Rotary embedding of a tensor by itself: the bits that queries and keys get on their way into an
// attention or a cache.
//
// Grid: batch x chunks blocks of 256 threads. A thread turns one pair of channels or, in pieces,
// two pieces of 16 bytes whose channels are partners; the units behind those pass through. Each
// block checks the positions of its batch row, so that all come to the same answer.
#include "common/faults.h"
#include "common/row_params.h"

namespace attnk {

constexpr int kType = ATTN_TYPE;
constexpr int kBytes = ElementBytes<kType>::value;
constexpr int kPiece = 16 / kBytes;  // elements

// Elements [at, at + count) of a row with unit stride, or the element at `at` times `step`.
template <int count>
ATTN_DEVICE void load(const void* row, i64 at, i64 step, float (&out)[count]) {
  if constexpr (count == 1) {
    out[0] = load_element<kType>(row, at * step);
  } else {
    const uint4 raw = *(const uint4*)((const u8*)row + at * kBytes);
#pragma unroll
    for (int i = 0; i < count; ++i) out[i] = load_element<kType>(&raw, i);
  }
}

template <int count>
ATTN_DEVICE void store(void* row, i64 at, i64 step, const float (&in)[count]) {
  if constexpr (count == 1) {
    store_element<kType>(row, at * step, in[0]);
  } else {
    uint4 raw;
#pragma unroll
    for (int i = 0; i < count; ++i) store_element<kType>(&raw, i, in[i]);
    *(uint4*)((u8*)row + at * kBytes) = raw;
  }
}

ATTN_DEVICE void turn(float& a, float& b, float c, float s) {
  const float first = __fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s));
  b = __fadd_rn(__fmul_rn(b, c), __fmul_rn(a, s));
  a = first;
}

// Unit `u` of a row. `cos` and `sin` are the rows of the tables, null for a row of zeros.
template <int count>
ATTN_DEVICE void unit(const RotaryParams& p, const void* src, void* dst, const void* cos,
                      const void* sin, int u) {
  const TransformParams& t = p.transform;
  const int half = t.width / 2, turned = half / count;
  const i64 from = p.input.channel, to = p.output.channel;
  if (u >= turned) {
    const int at = t.width + (u - turned) * count;
    if (p.in_place && cos) return;
    float x[count] = {};
    if (cos) load<count>(src, at, from, x);
    store<count>(dst, at, to, x);
    return;
  }
  // Half-split: partners lie half the width apart. Interleaved: they are neighbours.
  const int first = t.interleaved ? 2 * u * count : u * count;
  const int second = t.interleaved ? first + count : first + half;
  float x[count] = {}, y[count] = {};
  if (cos) {
    float c[count], s[count];
    load<count>(src, first, from, x);
    load<count>(src, second, from, y);
    load<count>(cos, u * count, t.cos_col, c);
    load<count>(sin, u * count, t.sin_col, s);
    if (count > 1 && t.interleaved) {
#pragma unroll
      for (int i = 0; i < count / 2; ++i) {
        turn(x[2 * i], x[2 * i + 1], c[i], s[i]);
        turn(y[2 * i], y[2 * i + 1], c[count / 2 + i], s[count / 2 + i]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < count; ++i) turn(x[i], y[i], c[i], s[i]);
    }
  }
  store<count>(dst, first, to, x);
  store<count>(dst, second, to, y);
}

ATTN_DEVICE i64 position_of(const TransformParams& t, i64 b, i64 row) {
  return t.explicit_positions ? t.positions[b * t.position_batch + row * t.position_row] : row;
}

ATTN_DEVICE bool outside(const TransformParams& t, i64 position) {
  return position < 0 || position >= t.table_rows;
}

extern "C" __global__ void __launch_bounds__(256)
    attn_rotary(const __grid_constant__ RotaryParams p) {
  const TransformParams& t = p.transform;
  const i64 b = blockIdx.x / p.grid.chunks, chunk = blockIdx.x % p.grid.chunks;
  const bool poisoned = p.faults->latch != 0;
  bool bad = false;
  if (t.explicit_positions) {
    for (i64 i = threadIdx.x; i < p.rows; i += blockDim.x) bad |= outside(t, position_of(t, b, i));
    bad = __syncthreads_or(bad);
  }
  if (bad && !poisoned && chunk == 0 && threadIdx.x == 0) {
    i64 i = 0;
    while (!outside(t, position_of(t, b, i))) ++i;
    raise_fault(p.faults, p.record, kFaultPosition, (u32)p.label, b, position_of(t, b, i));
  }
  const i64 begin = chunk * p.grid.span;
  const u32 count = (u32)min_of(p.grid.span, p.grid.total - begin);
  const u32 units = (u32)p.grid.units;
  const i64 first_item = begin / units;
  const u32 first_unit = (u32)(begin % units);
  const i64 inner = p.along_heads ? p.heads : p.rows;
  for (u32 k = threadIdx.x; k < count; k += blockDim.x) {
    const i64 item = first_item + (first_unit + k) / units;
    const int u = (int)((first_unit + k) % units);
    const i64 h = p.along_heads ? item % inner : item / inner;
    const i64 row = p.along_heads ? item / inner : item % inner;
    const void* src = (const u8*)p.input.data +
                      (b * p.input.batch + h * p.input.head + row * p.input.row) * kBytes;
    void* dst =
        (u8*)p.output.data + (b * p.output.batch + h * p.output.head + row * p.output.row) * kBytes;
    const void *cos = nullptr, *sin = nullptr;
    if (!bad && !poisoned) {
      const i64 position = position_of(t, b, row);
      cos = (const u8*)t.cos + (b * p.cos_batch + position * t.cos_row) * kBytes;
      sin = (const u8*)t.sin + (b * p.sin_batch + position * t.sin_row) * kBytes;
    }
    if (p.pieces) {
      unit<kPiece>(p, src, dst, cos, sin, u);
    } else {
      unit<1>(p, src, dst, cos, sin, u);
    }
  }
}

}  // namespace attnk
