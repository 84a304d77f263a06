// The parameter block of linear attention, shared by host and kernels. See core/linear_attention.h
// for what the views mean; letters as there.
#pragma once

#include "common/params.h"

namespace attnk {

enum { kDecayNone = 0, kDecayPerHead = 1, kDecayPerKey = 2 };

struct LinearParams {
  View query, key, value, decay, beta, past, present, output;
  const void* dt_bias;
  const void* decay_scale;
  i64 bias_head, bias_channel, scale_head, scale_channel;
  float* states;  // recurrent-serial: (B, Hkv, dk, dv) in scratch
  FaultState* faults;
  i64 batch, tokens;
  i64 q_heads, key_heads, kv_heads;
  i64 head_size, v_head_size;
  i64 blocks;  // of columns, for each state
  float scale;
  i32 delta, decay_form, state_type;
  i32 fold_beta, fold_decay, fold_exp, pad;
  i32 has_past, has_present, in_place, outputs;  // outputs: query heads of a state
};

}  // namespace attnk
