// Every rule of presence, type and shape of Attention.
#include "core/error.h"
#include "ops/attention.h"
#include "ops/shape_check.h"

namespace attn::attention {
namespace {

// ---- presence and ranks -------------------------------------------------------------------------

void check_presence(const Settings& settings, const Arguments& arguments) {
  const auto& in = arguments.in;
  check_present(kInputNames[kQ], in[kQ], "(B, Hq, S, D) or (B, S, Hq*D)");
  check_present(kInputNames[kK], in[kK], "(B, Hkv, N, D) or (B, N, Hkv*D)");
  check_present(kInputNames[kV], in[kV], "(B, Hkv, N, Dv) or (B, N, Hkv*Dv)");
  if (in[kPastKey].present != in[kPastValue].present) {
    fail_argument("past_key and past_value: expected both or neither; got only ",
                  kInputNames[in[kPastKey].present ? kPastKey : kPastValue]);
  }
  if (!in[kNonpad].present) return;
  if (settings.rules < 24) {
    fail_argument("nonpad_kv_seqlen: expected none in version 23 (it is of version 24); got ",
                  tensor_text(in[kNonpad]));
  }
  if (in[kPastKey].present) {
    fail_argument("nonpad_kv_seqlen: expected none together with past_key and past_value; got ",
                  tensor_text(in[kNonpad]));
  }
}

void check_ranks(const Arguments& arguments) {
  for (const Input input : {kQ, kK, kV, kPastKey, kPastValue}) {
    const Tensor& tensor = arguments.in[input];
    if (!tensor.present || tensor.rank == 3 || tensor.rank == 4) continue;
    fail_argument(kInputNames[input],
                  ": expected 4 dimensions (B, heads, rows, channels) or 3 "
                  "(B, rows, heads*channels); got ",
                  tensor.rank == 0 ? "a scalar" : shape_text(tensor));
  }
}

// ---- types --------------------------------------------------------------------------------------

bool is_floating(DType type) {
  return type == kFloat32 || type == kFloat16 || type == kBfloat16 || type == kFloat64;
}

void check_types(const Arguments& arguments) {
  const auto& in = arguments.in;
  const DType type = in[kQ].type;
  if (!is_floating(type)) {
    fail_type(kInputNames[kQ], in[kQ], "float32, float16, bfloat16 or float64");
  }
  for (const Input same : {kK, kPastKey}) {
    if (in[same].present) check_type_of(kInputNames[same], in[same], type, kInputNames[kQ]);
  }
  for (const Input same : {kV, kPastValue}) {
    if (!in[same].present || in[same].type == type) continue;
    if (!is_floating(in[same].type)) fail_type_of(kInputNames[same], in[same], type, "Q");
    fail_unsupported(kInputNames[same], ": values of another type than Q's ", name_of(type),
                     " are not built; got ", name_of(in[same].type));
  }
  if (in[kNonpad].present && in[kNonpad].type != kInt64) {
    fail_type(kInputNames[kNonpad], in[kNonpad], "int64");
  }
  const Tensor& mask = in[kMask];
  if (!mask.present || mask.type == kBool) return;
  const bool known = mask.type == kFloat32 || mask.type == kFloat16 || mask.type == kBfloat16 ||
                     (mask.type == kFloat64 && type == kFloat64);
  if (!known) {
    fail_unsupported("attn_mask: expected bool, float32, float16 or bfloat16",
                     type == kFloat64 ? ", or float64 with Q of float64" : "", "; got ",
                     name_of(mask.type));
  }
}

// ---- shapes -------------------------------------------------------------------------------------

// (B, heads, rows, channels), or (B, rows, heads*channels) with `letters3`.
void check_layout(const char* name, const Tensor& tensor, int64_t batch, int64_t heads,
                  int64_t rows, int64_t channels, const char* letters4, const char* letters3) {
  if (tensor.rank == 3) {
    check_shape(name, tensor, letters3, {batch, rows, product(heads, channels)});
  } else {
    check_shape(name, tensor, letters4, {batch, heads, rows, channels});
  }
}

void check_tokens(const Arguments& arguments, const Sizes& sizes) {
  const auto& in = arguments.in;
  check_layout("Q", in[kQ], sizes.batch, sizes.q_heads, sizes.query_rows, sizes.head_size,
               "(B, Hq, S, D)", "(B, S, Hq*D)");
  check_layout("K", in[kK], sizes.batch, sizes.kv_heads, sizes.new_rows, sizes.head_size,
               "(B, Hkv, N, D)", "(B, N, Hkv*D)");
  check_layout("V", in[kV], sizes.batch, sizes.kv_heads, sizes.new_rows, sizes.v_head_size,
               "(B, Hkv, N, Dv)", "(B, N, Hkv*Dv)");
  if (sizes.has_past) {
    check_layout("past_key", in[kPastKey], sizes.batch, sizes.kv_heads, kAnyDim, sizes.head_size,
                 "(B, Hkv, P, D)", "(B, P, Hkv*D)");
    check_layout("past_value", in[kPastValue], sizes.batch, sizes.kv_heads, kAnyDim,
                 sizes.v_head_size, "(B, Hkv, P, Dv)", "(B, P, Hkv*Dv)");
  }
  if (in[kNonpad].present) {
    check_shape(kInputNames[kNonpad], in[kNonpad], "(B)", {sizes.batch});
  }
}

void check_mask(const Arguments& arguments, const Sizes& sizes) {
  const Tensor& mask = arguments.in[kMask];
  if (!mask.present) return;
  const int64_t expected[] = {sizes.batch, sizes.q_heads, sizes.query_rows};
  bool good = mask.rank <= 4;
  for (int32_t back = 2; good && back <= mask.rank; ++back) {
    good = fits_or_one(mask.shape[static_cast<size_t>(mask.rank - back)], expected[4 - back]);
  }
  if (good) return;
  fail_argument(
      "attn_mask: expected at most 4 dimensions that broadcast to (B, Hq, S, width) with "
      "(B, Hq, S) = ",
      sizes_text(expected), "; got ", shape_text(mask));
}

void check_present_cache(const Arguments& arguments, const Sizes& sizes, Output slot,
                         int64_t channels, const char* letters) {
  const Tensor& present = arguments.out[slot];
  if (!present.present) return;
  check_type_of(kOutputNames[slot], present, arguments.in[kQ].type, kInputNames[kQ]);
  check_shape(kOutputNames[slot], present, letters,
              {sizes.batch, sizes.kv_heads, kAnyDim, channels});
}

}  // namespace

Sizes check_inputs(const Settings& settings, const Arguments& arguments) {
  check_presence(settings, arguments);
  check_ranks(arguments);
  check_types(arguments);
  const Sizes sizes = read_sizes(settings, arguments);
  check_tokens(arguments, sizes);
  check_mask(arguments, sizes);
  return sizes;
}

void check_outputs(const Settings& settings, Sizes& sizes, const Arguments& arguments) {
  const DType type = arguments.in[kQ].type;
  const Tensor& output = arguments.out[kY];
  if (output.present) {
    check_type_of(kOutputNames[kY], output, type, kInputNames[kQ]);
    if (arguments.in[kQ].rank == 4) {
      check_shape(kOutputNames[kY], output, "(B, Hq, S, Dv)",
                  {sizes.batch, sizes.q_heads, sizes.query_rows, sizes.v_head_size});
    } else {
      check_shape(kOutputNames[kY], output, "(B, S, Hq*Dv)",
                  {sizes.batch, sizes.query_rows, product(sizes.q_heads, sizes.v_head_size)});
    }
  }
  check_present_cache(arguments, sizes, kPresentKey, sizes.head_size, "(B, Hkv, R, D)");
  check_present_cache(arguments, sizes, kPresentValue, sizes.v_head_size, "(B, Hkv, R, Dv)");
  read_form(settings, arguments, sizes);
  const Tensor& scores = arguments.out[kScores];
  if (scores.present) {
    check_type_of(kOutputNames[kScores], scores, type, kInputNames[kQ]);
    check_shape(kOutputNames[kScores], scores, "(B, Hq, S, T)",
                {sizes.batch, sizes.q_heads, sizes.query_rows, sizes.score_columns});
  }
  const Tensor& log_sum_exp = arguments.out[kLogSumExp];
  if (log_sum_exp.present) {
    if (log_sum_exp.type != kFloat32) {
      fail_type(kOutputNames[kLogSumExp], log_sum_exp, "float32");
    }
    check_shape(kOutputNames[kLogSumExp], log_sum_exp, "(B, Hq, S)",
                {sizes.batch, sizes.q_heads, sizes.query_rows});
  }
}

}  // namespace attn::attention
