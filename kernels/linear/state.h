// What the kernels of linear attention share: which state a block works on, gates, stored states.
#pragma once

#include "common/device.h"
#include "common/linear_params.h"

namespace attnk {

// ---- gates: the arithmetic of the separate operators, see docs/operators/linear_attention.md ----

// e^x in double, within 1e-15: x = n ln 2 + r, and the series in r. Inline, where the library's
// function costs the caller its registers.
ATTN_DEVICE double exp_double(double x) {
  if (!(x > -745.0)) return x != x ? x : 0.0;
  if (x > 709.0) return (double)infinity();
  const double n = rint(x * 1.4426950408889634);
  double r = fma(n, -0.6931471805599453, x);
  r = fma(n, -2.3190468138462996e-17, r);
  double sum = 1.0;
#pragma unroll
  for (int k = 13; k > 0; k--) sum = fma(sum, r * (1.0 / k), 1.0);
  // Two factors, since 2^n alone may be too small for a normal number.
  const int whole = (int)n, half = whole / 2;
  const double first = __builtin_bit_cast(double, (i64)(half + 1023) << 52);
  const double second = __builtin_bit_cast(double, (i64)(whole - half + 1023) << 52);
  return sum * first * second;
}

ATTN_DEVICE float sigmoid_of(float x) {
  const float e = (float)exp_double(-fabs((double)x));
  return (x >= 0 ? 1.0f : e) / (1.0f + e);
}

ATTN_DEVICE float softplus_of(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

template <int type>
ATTN_DEVICE float beta_of(const LinearParams& p, float x) {
  return p.fold_beta ? round_element<type>(sigmoid_of(x)) : x;
}

// The constants of one head, or of one key channel of it.
struct DecayConstants {
  float bias, scale;
};

template <int type>
ATTN_DEVICE DecayConstants decay_constants(const LinearParams& p, i64 head, i64 channel) {
  DecayConstants out = {0.0f, 0.0f};
  if (!p.fold_decay) return out;
  out.bias = load_element<type>(p.dt_bias, head * p.bias_head + channel * p.bias_channel);
  const float a =
      load_element<type>(p.decay_scale, head * p.scale_head + channel * p.scale_channel);
  out.scale = p.fold_exp ? -round_element<type>(expf(a)) : a;
  return out;
}

template <int type>
ATTN_DEVICE float decay_of(const LinearParams& p, float x, const DecayConstants& c) {
  if (!p.fold_decay) return x;
  const float sum = round_element<type>(__fadd_rn(x, c.bias));
  return round_element<type>(__fmul_rn(c.scale, round_element<type>(softplus_of(sum))));
}

// ---- states -------------------------------------------------------------------------------------

struct StatePlace {
  i64 batch, head, column;  // the first column of the block
  i64 key_head;
};

// Block numbers and head counts fit 32 bits, whose division is no function call.
ATTN_DEVICE StatePlace place_of(const LinearParams& p, int columns) {
  const u32 blocks = (u32)p.blocks, heads = (u32)p.kv_heads;
  const u32 state = blockIdx.x / blocks, head = state % heads;
  StatePlace out;
  out.batch = state / heads;
  out.head = head;
  out.column = (i64)(blockIdx.x % blocks) * columns;
  out.key_head = head / (heads / (u32)p.key_heads);
  return out;
}

// The query head that output `index` of a state reads.
ATTN_DEVICE i64 query_head_of(const LinearParams& p, i64 head, int index) {
  if (p.q_heads >= p.kv_heads) return head * p.outputs + index;
  return (u32)head / ((u32)p.kv_heads / (u32)p.q_heads);
}

ATTN_DEVICE i64 offset_of(const View& v, i64 b, i64 head, i64 row) {
  return b * v.batch + head * v.head + row * v.row;
}

ATTN_DEVICE float load_state(const void* base, i64 index, int type) {
  return load_any(base, index, type);
}
ATTN_DEVICE void store_state(void* base, i64 index, int type, float value) {
  if (type == kTypeFloat16) {
    store_element<kTypeFloat16>(base, index, value);
  } else if (type == kTypeBfloat16) {
    store_element<kTypeBfloat16>(base, index, value);
  } else {
    store_element<kTypeFloat32>(base, index, value);
  }
}

// A poisoned session: outputs are zeros, a state in place is left alone, another one zeroed. All
// threads of the block, for its columns [first, last).
template <int type>
ATTN_DEVICE void write_poisoned(const LinearParams& p, const StatePlace& at, int columns) {
  const int count = (int)min_of((i64)columns, p.v_head_size - at.column);
  for (i64 token = 0; token < p.tokens; token++) {
    for (int o = 0; o < p.outputs; o++) {
      const i64 row = offset_of(p.output, at.batch, at.head * p.outputs + o, token);
      for (int c = threadIdx.x; c < count; c += blockDim.x) {
        store_element<type>(p.output.data, row + (at.column + c) * p.output.channel, 0.0f);
      }
    }
  }
  if (!p.has_present || p.in_place) return;
  for (i64 i = 0; i < p.head_size; i++) {
    const i64 row = offset_of(p.present, at.batch, at.head, i);
    for (int c = threadIdx.x; c < count; c += blockDim.x) {
      store_state(p.present.data, row + (at.column + c) * p.present.channel, p.state_type, 0.0f);
    }
  }
}

}  // namespace attnk
