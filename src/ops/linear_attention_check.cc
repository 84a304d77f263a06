// Every rule of presence, type and shape of LinearAttention.
#include <limits>

#include "core/error.h"
#include "ops/linear_attention.h"
#include "ops/shape_check.h"

namespace attn::linear {
namespace {

// ---- presence -----------------------------------------------------------------------------------

// A gate that the rule uses, which must be there, or one that it does not, which com.microsoft
// ignores and the standard refuses.
void check_gate(const Settings& settings, const Arguments& arguments, Input gate, bool used,
                const char* shape) {
  const Tensor& tensor = arguments.in[gate];
  const bool constant = gate == kDtBias || gate == kDecayScale;
  if (used && !tensor.present) {
    fail_argument(
        kInputNames[gate], ": expected a tensor of shape ", shape, ", since ",
        constant ? "cuda_fuse_decay_softplus is set" : cat("update_rule is ", settings.rule),
        "; got none");
  }
  if (!used && tensor.present && settings.standard) {
    fail_argument(kInputNames[gate], ": expected none, since update_rule ", settings.rule,
                  constant ? " folds no gate that needs " : " has no ", kInputNames[gate], "; got ",
                  tensor_text(tensor));
  }
}

void check_presence(const Settings& settings, const Arguments& arguments) {
  check_present(kInputNames[kQuery], arguments.in[kQuery], "(B, T, Hq*dk)");
  check_present(kInputNames[kKey], arguments.in[kKey], "(B, T, Hk*dk)");
  check_present(kInputNames[kValue], arguments.in[kValue], "(B, T, Hkv*dv)");
  check_gate(settings, arguments, kDecay, settings.gated, "(B, T, Hkv) or (B, T, Hkv*dk)");
  check_gate(settings, arguments, kBeta, settings.delta, "(B, T, Hkv) or (B, T, 1)");
  for (const Input constant : {kDtBias, kDecayScale}) {
    check_gate(settings, arguments, constant, settings.fold_decay, "(Hkv) or (Hkv*dk)");
  }
}

// ---- types --------------------------------------------------------------------------------------

bool is_float(DType type) { return type == kFloat32 || type == kFloat16 || type == kBfloat16; }

void check_state_type(const Settings& settings, const char* name, const Tensor& state, DType type) {
  if (settings.standard) {
    if (!is_float(state.type)) fail_type(name, state, "float32, float16 or bfloat16");
    return;
  }
  if (state.type == type || state.type == kFloat32) return;
  fail_argument(name, ": expected ", name_of(type), ", the type of query",
                type == kFloat32 ? "" : ", or float32", "; got ", name_of(state.type));
}

void check_types(const Settings& settings, const Arguments& arguments) {
  const auto& in = arguments.in;
  const DType type = in[kQuery].type;
  if (!is_float(type)) fail_type(kInputNames[kQuery], in[kQuery], "float32, float16 or bfloat16");
  for (const Input same : {kKey, kValue}) {
    check_type_of(kInputNames[same], in[same], type, kInputNames[kQuery]);
  }
  if (settings.gated) check_type_of(kInputNames[kDecay], in[kDecay], type, kInputNames[kQuery]);
  if (settings.delta) check_type_of(kInputNames[kBeta], in[kBeta], type, kInputNames[kQuery]);
  if (settings.fold_decay) {
    for (const Input constant : {kDtBias, kDecayScale}) {
      check_type_of(kInputNames[constant], in[constant], type, kInputNames[kQuery]);
    }
  }
  if (in[kPastState].present) {
    check_state_type(settings, kInputNames[kPastState], in[kPastState], type);
  }
}

// ---- sizes --------------------------------------------------------------------------------------

int64_t size_of_axis(const Tensor& tensor, int axis) {
  return tensor.present && axis < tensor.rank ? tensor.shape[static_cast<size_t>(axis)] : kAnyDim;
}

int64_t head_size_of(const char* name, const Tensor& tensor, int64_t heads, const char* words) {
  const int64_t channels = size_of_axis(tensor, 2);
  if (channels == kAnyDim) return kAnyDim;
  if (channels % heads != 0) {
    fail_argument(name, ": expected a last dimension that is a multiple of ", heads, " (", words,
                  "); got ", shape_text(tensor));
  }
  return channels / heads;
}

void check_head_size(const char* name, const Tensor& tensor, int64_t size) {
  if (size == 0) {
    fail_argument(name, ": expected a head size of at least 1; got ", shape_text(tensor),
                  ", which is a head size of 0");
  }
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  if (size > kLargest) {
    fail_unsupported(name, ": head sizes beyond ", kLargest, " are not built; got ", size);
  }
}

// A query may leave sizes open: the first argument that has them decides, and the checks that
// follow compare all.
Sizes read_sizes(const Settings& settings, const Arguments& arguments) {
  const auto& in = arguments.in;
  const auto& out = arguments.out;
  for (const Input packed : {kQuery, kKey, kValue}) {
    check_shape(kInputNames[packed], in[packed], "(B, T, heads * head size)",
                {kAnyDim, kAnyDim, kAnyDim});
  }
  Sizes sizes;
  sizes.batch = kAnyDim;
  sizes.tokens = kAnyDim;
  for (const Input packed : {kQuery, kKey, kValue}) {
    sizes.batch = known_of(sizes.batch, in[packed].shape[0]);
    sizes.tokens = known_of(sizes.tokens, in[packed].shape[1]);
  }
  sizes.batch = known_of(sizes.batch, size_of_axis(in[kPastState], 0));
  sizes.batch = known_of(sizes.batch, size_of_axis(out[kOutput], 0));
  sizes.batch = known_of(sizes.batch, size_of_axis(out[kPresentState], 0));
  sizes.tokens = known_of(sizes.tokens, size_of_axis(out[kOutput], 1));

  sizes.head_size = head_size_of(kInputNames[kQuery], in[kQuery], settings.q_heads, "q_num_heads");
  if (sizes.head_size == kAnyDim && settings.standard) {
    sizes.head_size = head_size_of(kInputNames[kKey], in[kKey], settings.kv_heads, "kv_num_heads");
  }
  sizes.head_size = known_of(sizes.head_size, size_of_axis(in[kPastState], 2));
  sizes.head_size = known_of(sizes.head_size, size_of_axis(out[kPresentState], 2));
  check_head_size(kInputNames[kQuery], in[kQuery], sizes.head_size);

  sizes.v_head_size =
      head_size_of(kInputNames[kValue], in[kValue], settings.kv_heads, "kv_num_heads");
  sizes.v_head_size = known_of(sizes.v_head_size, size_of_axis(in[kPastState], 3));
  sizes.v_head_size = known_of(sizes.v_head_size, size_of_axis(out[kPresentState], 3));
  sizes.v_head_size =
      known_of(sizes.v_head_size,
               head_size_of(kOutputNames[kOutput], out[kOutput], settings.output_heads(),
                            settings.q_heads > settings.kv_heads ? "q_num_heads" : "kv_num_heads"));
  check_head_size(kInputNames[kValue], in[kValue], sizes.v_head_size);
  return sizes;
}

// ---- shapes -------------------------------------------------------------------------------------

// com.microsoft: the key has heads of its own, as many as its width says.
void check_key(const Settings& settings, const Arguments& arguments, Sizes& sizes) {
  const Tensor& key = arguments.in[kKey];
  if (settings.standard) {
    sizes.key_heads = settings.kv_heads;
    check_shape(kInputNames[kKey], key, "(B, T, Hkv*dk)",
                {sizes.batch, sizes.tokens, product(settings.kv_heads, sizes.head_size)});
    return;
  }
  check_shape(kInputNames[kKey], key, "(B, T, Hk*dk)", {sizes.batch, sizes.tokens, kAnyDim});
  sizes.key_heads = kAnyDim;
  const int64_t channels = key.shape[2];
  if (channels == kAnyDim || sizes.head_size == kAnyDim) return;
  const int64_t heads = channels / sizes.head_size;
  if (heads == 0 || channels % sizes.head_size != 0 || settings.kv_heads % heads != 0) {
    fail_argument("key: expected a last dimension of Hk*dk with dk = ", sizes.head_size,
                  " (of query) and Hk a divisor of kv_num_heads ", settings.kv_heads, "; got ",
                  shape_text(key));
  }
  sizes.key_heads = heads;
}

void check_gates(const Settings& settings, const Arguments& arguments, Sizes& sizes) {
  const int64_t per_key = product(settings.kv_heads, sizes.head_size);
  if (settings.gated) {
    const Tensor& decay = arguments.in[kDecay];
    const int64_t width = size_of_axis(decay, 2);
    const bool form = decay.rank == 3 && fits(decay.shape[0], sizes.batch) &&
                      fits(decay.shape[1], sizes.tokens) &&
                      (fits(width, settings.kv_heads) || fits(width, per_key));
    if (!form) {
      const int64_t leading[] = {sizes.batch, sizes.tokens};
      fail_argument("decay: expected shape (B, T, Hkv) or (B, T, Hkv*dk) with (B, T) = ",
                    sizes_text(leading), ", Hkv = ", settings.kv_heads,
                    sizes.head_size == kAnyDim ? "" : cat(" and dk = ", sizes.head_size), "; got ",
                    decay.rank == 0 ? "a scalar" : shape_text(decay));
    }
    sizes.decay = width == per_key && width != kAnyDim ? DecayForm::kPerKey : DecayForm::kPerHead;
  }
  if (settings.delta) {
    const Tensor& beta = arguments.in[kBeta];
    const bool form = beta.rank == 3 && fits(beta.shape[0], sizes.batch) &&
                      fits(beta.shape[1], sizes.tokens) &&
                      fits_or_one(beta.shape[2], settings.kv_heads);
    if (!form) {
      const int64_t expected[] = {sizes.batch, sizes.tokens, settings.kv_heads};
      fail_argument("beta: expected shape (B, T, Hkv) or (B, T, 1) with (B, T, Hkv) = ",
                    sizes_text(expected), "; got ", beta.rank == 0 ? "a scalar" : shape_text(beta));
    }
  }
  if (!settings.fold_decay) return;
  const bool keyed = sizes.decay == DecayForm::kPerKey;
  // A query may leave the decay's form open, and with it this number.
  const int64_t expected = size_of_axis(arguments.in[kDecay], 2) == kAnyDim
                               ? kAnyDim
                               : (keyed ? per_key : settings.kv_heads);
  for (const Input constant : {kDtBias, kDecayScale}) {
    const Tensor& tensor = arguments.in[constant];
    if (fits(tensor.elements(), expected)) continue;
    fail_argument(kInputNames[constant], ": expected ", expected, " elements, ",
                  keyed ? "Hkv*dk" : "Hkv", " as decay has a token, of any rank; got ",
                  tensor_text(tensor));
  }
}

// The past state is written through the present one's strides, so both must agree on every axis
// that has more than one element.
void check_in_place(const Arguments& arguments) {
  const Tensor& past = arguments.in[kPastState];
  const Tensor& present = arguments.out[kPresentState];
  if (past.elements() <= 0 || present.elements() <= 0) return;  // empty, or open in a query
  for (size_t axis = 0; axis < 4; ++axis) {
    if (present.shape[axis] <= 1 || past.strides[axis] == present.strides[axis]) continue;
    fail_argument("present_state: it shares the memory of past_state, which needs equal strides; ",
                  "got strides ", strides_text(present), " over ", strides_text(past));
  }
}

}  // namespace

Sizes check_inputs(const Settings& settings, const Arguments& arguments) {
  check_presence(settings, arguments);
  check_types(settings, arguments);
  Sizes sizes = read_sizes(settings, arguments);
  const auto& in = arguments.in;
  check_shape(kInputNames[kQuery], in[kQuery], "(B, T, Hq*dk)",
              {sizes.batch, sizes.tokens, product(settings.q_heads, sizes.head_size)});
  check_key(settings, arguments, sizes);
  check_shape(kInputNames[kValue], in[kValue], "(B, T, Hkv*dv)",
              {sizes.batch, sizes.tokens, product(settings.kv_heads, sizes.v_head_size)});
  const Tensor& past = in[kPastState];
  if (past.present) {
    check_shape(kInputNames[kPastState], past, "(B, Hkv, dk, dv)",
                {sizes.batch, settings.kv_heads, sizes.head_size, sizes.v_head_size});
  }
  check_gates(settings, arguments, sizes);
  const Tensor& present = arguments.out[kPresentState];
  sizes.state_type = past.present ? past.type : present.present ? present.type : in[kQuery].type;
  return sizes;
}

void check_outputs(const Settings& settings, const Sizes& sizes, const Arguments& arguments) {
  const DType type = arguments.in[kQuery].type;
  const Tensor& output = arguments.out[kOutput];
  if (output.present) {
    check_type_of(kOutputNames[kOutput], output, type, kInputNames[kQuery]);
    check_shape(kOutputNames[kOutput], output, "(B, T, max(Hq, Hkv)*dv)",
                {sizes.batch, sizes.tokens, product(settings.output_heads(), sizes.v_head_size)});
  }
  const Tensor& present = arguments.out[kPresentState];
  if (!present.present) return;
  if (arguments.in[kPastState].present) {
    check_type_of(kOutputNames[kPresentState], present, sizes.state_type, kInputNames[kPastState]);
  } else {
    check_state_type(settings, kOutputNames[kPresentState], present, type);
  }
  check_shape(kOutputNames[kPresentState], present, "(B, Hkv, dk, dv)",
              {sizes.batch, settings.kv_heads, sizes.head_size, sizes.v_head_size});
  if (arguments.aliases(kPastState, kPresentState)) check_in_place(arguments);
}

}  // namespace attn::linear
