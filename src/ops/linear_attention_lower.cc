// From checked arguments of LinearAttention to the problem. Runs on every execute: no allocation.
#include "core/error.h"
#include "ops/linear_attention.h"
#include "ops/score_scale.h"
#include "ops/shape_check.h"
#include "ops/views.h"

namespace attn::linear {
namespace {

// A gate of one number a head, (B, T, Hkv) or (B, T, 1).
View4 head_gate_view(const Tensor& gate) {
  View4 view;
  view.data = gate.data;
  view.batch = gate.strides[0];
  view.row = gate.strides[1];
  view.head = broadcast_stride(gate, 2);
  view.rows = gate.shape[1];
  return view;
}

[[noreturn]] void fail_constant(const char* name, const Tensor& tensor, int64_t inner) {
  fail_unsupported(name, ": strides that neither one step nor one step a head and one a channel ",
                   "(", inner, " a head) go through are not built; got ", shape_text(tensor),
                   " with strides ", strides_text(tensor));
}

// A constant of any rank, which in row-major order has `inner` elements a head. Neighbouring axes
// that one stride goes through are joined; what is left must be one axis, or heads and channels.
GateVector constant_view(const char* name, const Tensor& tensor, int64_t inner) {
  int64_t sizes[2] = {1, 1}, strides[2] = {0, 0};  // of the joined axes, the outer one first
  int joined = 0;
  for (int axis = 0; axis < tensor.rank; ++axis) {
    const int64_t size = tensor.shape[static_cast<size_t>(axis)];
    const int64_t stride = tensor.strides[static_cast<size_t>(axis)];
    if (size == 1) continue;
    int64_t step;
    if (joined > 0 && !__builtin_mul_overflow(stride, size, &step) && strides[joined - 1] == step) {
      sizes[joined - 1] *= size;
      strides[joined - 1] = stride;
    } else {
      if (joined == 2) fail_constant(name, tensor, inner);
      sizes[joined] = size;
      strides[joined++] = stride;
    }
  }
  GateVector out;
  out.data = tensor.data;
  if (joined == 2) {
    if (sizes[1] != inner) fail_constant(name, tensor, inner);
    out.head = strides[0];
    out.channel = strides[1];
  } else {
    out.channel = strides[0];
    if (__builtin_mul_overflow(strides[0], inner, &out.head)) fail_stride(name, strides[0]);
  }
  return out;
}

void set_gates(const Settings& settings, const Sizes& sizes, const Arguments& arguments,
               LinearAttentionProblem& problem) {
  const Tensor& decay = arguments.in[kDecay];
  problem.spec.decay = sizes.decay;
  if (sizes.decay == DecayForm::kPerKey) {
    problem.decay = heads_view(decay, kInputNames[kDecay], sizes.head_size, 0);
    problem.spec.unit_channel &= problem.decay.channel == 1;
  } else if (sizes.decay == DecayForm::kPerHead) {
    problem.decay = head_gate_view(decay);
  }
  if (settings.delta) problem.beta = head_gate_view(arguments.in[kBeta]);
  if (!settings.fold_decay || sizes.head_size == kAnyDim) return;
  for (const Input constant : {kDtBias, kDecayScale}) {
    const Tensor& tensor = arguments.in[constant];
    if (tensor.elements() == kAnyDim) continue;
    const int64_t inner = sizes.decay == DecayForm::kPerKey ? sizes.head_size : 1;
    (constant == kDtBias ? problem.dt_bias : problem.decay_scale) =
        constant_view(kInputNames[constant], tensor, inner);
  }
}

}  // namespace

void lower(const Settings& settings, const Sizes& sizes, const Arguments& arguments,
           Lowering& out) {
  out.batch = sizes.batch;
  out.lengths.batch = sizes.batch;
  out.lengths.query_rows = sizes.tokens;
  out.lengths.new_rows = sizes.tokens;

  LinearAttentionProblem& problem = out.linear_attention.emplace();
  LinearAttentionSpec& spec = problem.spec;
  const auto& in = arguments.in;
  spec.type = in[kQuery].type;
  spec.state_type = sizes.state_type;
  spec.q_heads = settings.q_heads;
  spec.key_heads = static_cast<int32_t>(sizes.key_heads);
  spec.kv_heads = settings.kv_heads;
  spec.head_size = static_cast<int32_t>(sizes.head_size);
  spec.v_head_size = static_cast<int32_t>(sizes.v_head_size);
  spec.scale = scale_or_default(settings.scale != 0, settings.scale, sizes.head_size);
  spec.delta = settings.delta;
  spec.fold_beta = settings.fold_beta;
  spec.fold_decay = settings.fold_decay;
  spec.fold_exp = settings.fold_exp;

  problem.batch = sizes.batch;
  problem.tokens = sizes.tokens;
  problem.query = heads_view(in[kQuery], kInputNames[kQuery], sizes.head_size, 0);
  problem.key = heads_view(in[kKey], kInputNames[kKey], sizes.head_size, 0);
  problem.value = heads_view(in[kValue], kInputNames[kValue], sizes.v_head_size, 0);
  bool unit = problem.query.channel == 1 && problem.key.channel == 1 && problem.value.channel == 1;
  const Tensor& output = arguments.out[kOutput];
  if (output.present) {
    problem.output = heads_view(output, kOutputNames[kOutput], sizes.v_head_size, 0);
    unit = unit && problem.output.channel == 1;
  }
  spec.has_past = in[kPastState].present;
  if (spec.has_past) {
    problem.past = cache_view(in[kPastState]);
    unit = unit && problem.past.channel == 1;
  }
  spec.has_present = arguments.out[kPresentState].present;
  if (spec.has_present) {
    problem.present = cache_view(arguments.out[kPresentState]);
    unit = unit && problem.present.channel == 1;
  }
  spec.unit_channel = unit;
  set_gates(settings, sizes, arguments, problem);
}

}  // namespace attn::linear
