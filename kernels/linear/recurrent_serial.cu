// Linear attention for everything: any strides, types and sizes. A thread carries a state column,
// which lies in scratch in float32; what one token does to it is computed in double. Rows of key,
// query and decay come through shared memory in pieces of one row a thread.
//
// Macros: ATTN_TYPE.
#include "linear/state.h"

namespace attnk {

constexpr int kType = ATTN_TYPE;
constexpr int kThreads = 128;

extern "C" __global__ void __launch_bounds__(kThreads)
    attn_linear_recurrent_serial(const __grid_constant__ LinearParams p) {
  __shared__ double weights[kThreads], keeps[kThreads];
  const StatePlace at = place_of(p, kThreads);
  const int tid = threadIdx.x;
  const i64 column = at.column + tid;
  const bool owns = column < p.v_head_size;
  wait_for_previous();
  if (p.faults->latch != 0) {
    write_poisoned<kType>(p, at, kThreads);
    return;
  }
  const i64 depth = p.head_size, width = p.v_head_size;
  float* state = p.states + (at.batch * p.kv_heads + at.head) * depth * width + column;
  if (owns) {
    for (i64 i = 0; i < depth; i++) {
      const i64 o = offset_of(p.past, at.batch, at.head, i) + column * p.past.channel;
      state[i * width] = p.has_past ? load_state(p.past.data, o, p.state_type) : 0.0f;
    }
  }

  double head_keep = 1;
  // Rows [first, first + kThreads) of a token's vector and of exp(decay).
  const auto load_rows = [&](const View& v, i64 head, i64 token, i64 first, bool with_decay) {
    __syncthreads();
    const i64 row = first + tid;
    if (row < depth) {
      weights[tid] =
          load_element<kType>(v.data, offset_of(v, at.batch, head, token) + row * v.channel);
      keeps[tid] = head_keep;
      if (with_decay && p.decay_form == kDecayPerKey) {
        const float raw = load_element<kType>(
            p.decay.data, offset_of(p.decay, at.batch, at.head, token) + row * p.decay.channel);
        const DecayConstants constants = decay_constants<kType>(p, at.head, row);
        keeps[tid] = exp_double((double)decay_of<kType>(p, raw, constants));
      }
    }
    __syncthreads();
    return (int)min_of((i64)kThreads, depth - first);
  };

  for (i64 token = 0; token < p.tokens; token++) {
    if (p.decay_form == kDecayPerHead) {
      const float raw =
          load_element<kType>(p.decay.data, offset_of(p.decay, at.batch, at.head, token));
      const DecayConstants constants = decay_constants<kType>(p, at.head, 0);
      head_keep = exp_double((double)decay_of<kType>(p, raw, constants));
    }
    double change = 0;
    if (owns) {
      change = load_element<kType>(
          p.value.data, offset_of(p.value, at.batch, at.head, token) + column * p.value.channel);
    }
    if (p.delta) {
      double held = 0;
      for (i64 first = 0; first < depth; first += kThreads) {
        const int rows = load_rows(p.key, at.key_head, token, first, true);
        for (int i = 0; owns && i < rows; i++) {
          held += weights[i] * (keeps[i] * state[(first + i) * width]);
        }
      }
      const float raw =
          load_element<kType>(p.beta.data, offset_of(p.beta, at.batch, at.head, token));
      change = beta_of<kType>(p, raw) * (change - held);
    }
    for (i64 first = 0; first < depth; first += kThreads) {
      const int rows = load_rows(p.key, at.key_head, token, first, true);
      for (int i = 0; owns && i < rows; i++) {
        float& cell = state[(first + i) * width];
        cell = (float)(keeps[i] * cell + weights[i] * change);
      }
    }
    for (int o = 0; o < p.outputs; o++) {
      double sum = 0;
      for (i64 first = 0; first < depth; first += kThreads) {
        const int rows = load_rows(p.query, query_head_of(p, at.head, o), token, first, false);
        for (int i = 0; owns && i < rows; i++) sum += weights[i] * state[(first + i) * width];
      }
      if (!owns) continue;
      const i64 row = offset_of(p.output, at.batch, at.head * p.outputs + o, token);
      store_element<kType>(p.output.data, row + column * p.output.channel, (float)(p.scale * sum));
    }
  }

  if (!p.has_present || !owns) return;
  for (i64 i = 0; i < depth; i++) {
    const i64 o = offset_of(p.present, at.batch, at.head, i) + column * p.present.channel;
    store_state(p.present.data, o, p.state_type, state[i * width]);
  }
}

}  // namespace attnk
