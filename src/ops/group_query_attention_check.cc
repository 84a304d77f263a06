// Every rule of presence, type and shape of GroupQueryAttention.
#include <limits>

#include "core/error.h"
#include "ops/group_query_attention.h"
#include "ops/shape_check.h"

namespace attn::gqa {
namespace {

// ---- presence -----------------------------------------------------------------------------------

void check_both_or_neither(const Arguments& arguments, Input first, Input second) {
  const bool has_first = arguments.in[first].present;
  if (has_first == arguments.in[second].present) return;
  fail_argument(kInputNames[first], " and ", kInputNames[second],
                ": expected both or neither; got only ", kInputNames[has_first ? first : second]);
}

void check_presence(const Settings& settings, const Arguments& arguments) {
  const auto& in = arguments.in;
  check_present(kInputNames[kQuery], in[kQuery], "(B, S, Hq*D)");
  check_present(kInputNames[kSeqlensK], in[kSeqlensK], "(B)");
  check_present(kInputNames[kTotalLength], in[kTotalLength], "()");
  check_both_or_neither(arguments, kKey, kValue);
  check_both_or_neither(arguments, kPastKey, kPastValue);
  check_both_or_neither(arguments, kQNormWeight, kKNormWeight);
  if (settings.rotary) {
    // The message of a missing table says why it is needed.
    for (const Input table : {kCosCache, kSinCache}) {
      if (in[table].present) continue;
      fail_argument(kInputNames[table],
                    ": expected a tensor of shape (positions, width/2) since "
                    "do_rotary is 1; got none");
    }
  }
  for (const Input scale : {kKScale, kVScale}) {
    if (!in[scale].present) continue;
    fail_argument(kInputNames[scale], ": expected none, as the cache is not quantised; got ",
                  tensor_text(in[scale]));
  }
  if (in[kQuerySeqlens].present) {
    fail_unsupported(
        "query_seqlens: query lengths of their own for each batch row are not built; "
        "expected none; got ",
        tensor_text(in[kQuerySeqlens]));
  }
}

// ---- types --------------------------------------------------------------------------------------

bool quantised(DType type) {
  const bool integer = type.code == kCodeInt || type.code == kCodeUInt;
  constexpr uint8_t kFirstFloat8 = 7;  // DLPack's codes from 7 on are floats of 8 bits and fewer
  return type.bits <= 8 && (integer || type.code >= kFirstFloat8);
}

void check_cache_type(const char* name, const Tensor& cache, DType type) {
  if (cache.type == type) return;
  if (quantised(cache.type)) {
    fail_unsupported(name, ": quantised caches are not built; expected ", name_of(type),
                     ", the type of query; got ", name_of(cache.type));
  }
  fail_type_of(name, cache, type, kInputNames[kQuery]);
}

void check_types(const Settings& settings, const Arguments& arguments) {
  const auto& in = arguments.in;
  const DType type = in[kQuery].type;
  if (type != kFloat32 && type != kFloat16 && type != kBfloat16) {
    fail_type(kInputNames[kQuery], in[kQuery], "float32, float16 or bfloat16");
  }
  for (const Input same : {kKey, kValue, kAttentionBias, kHeadSink, kQNormWeight, kKNormWeight}) {
    if (in[same].present) check_type_of(kInputNames[same], in[same], type, kInputNames[kQuery]);
  }
  for (const Input cache : {kPastKey, kPastValue}) {
    if (in[cache].present) check_cache_type(kInputNames[cache], in[cache], type);
  }
  if (!settings.rotary) return;  // tables and positions are ignored
  const Tensor& cos = in[kCosCache];
  if (cos.type != type && cos.type != kFloat32) {
    fail_argument("cos_cache: expected float32",
                  type == kFloat32 ? "" : cat(" or ", name_of(type), ", the type of query"),
                  "; got ", name_of(cos.type));
  }
  check_type_of(kInputNames[kSinCache], in[kSinCache], cos.type, kInputNames[kCosCache]);
  const Tensor& positions = in[kPositionIds];
  if (positions.present && positions.type != kInt64) {
    fail_type(kInputNames[kPositionIds], positions, "int64");
  }
}

// ---- shapes -------------------------------------------------------------------------------------

// Where key and value agree on a head size, it is the query that is too wide or too narrow.
void check_query_width(const Settings& settings, const Arguments& arguments, const Sizes& sizes) {
  const Tensor& query = arguments.in[kQuery];
  const Tensor& key = arguments.in[kKey];
  const Tensor& value = arguments.in[kValue];
  if (key.rank != 3 || value.rank != 3 || query.shape[2] == kAnyDim) return;
  const int64_t channels = key.shape[2];
  if (channels <= 0 || channels != value.shape[2] || channels % settings.kv_heads != 0) return;
  const int64_t head_size = channels / settings.kv_heads;
  int64_t width;
  if (head_size == sizes.head_size || __builtin_mul_overflow(head_size, settings.q_heads, &width)) {
    return;
  }
  fail_argument("query: expected a last dimension of ", width, " (num_heads ", settings.q_heads,
                " times the head size ", head_size, " of key and value, which with kv_num_heads ",
                settings.kv_heads, " are ", shape_text(key), "); got ", shape_text(query));
}

void check_keys(const Settings& settings, const Arguments& arguments, Sizes& sizes) {
  const auto& in = arguments.in;
  const int64_t channels = product(settings.kv_heads, sizes.head_size);
  if (!sizes.packed) {
    check_query_width(settings, arguments, sizes);
    for (const Input input : {kKey, kValue}) {
      check_shape(kInputNames[input], in[input], "(B, N, Hkv*D)",
                  {sizes.batch, sizes.new_rows, channels});
    }
  }
  if (sizes.has_past) {
    for (const Input input : {kPastKey, kPastValue}) {
      check_shape(kInputNames[input], in[input], "(B, Hkv, P, D)",
                  {sizes.batch, settings.kv_heads, kAnyDim, sizes.head_size});
    }
    sizes.past_key_rows = in[kPastKey].shape[2];
    sizes.past_value_rows = in[kPastValue].shape[2];
  }
  const bool appends_nothing = sizes.new_rows == 0 && sizes.has_past;
  if (settings.rotary && !fits(sizes.new_rows, sizes.query_rows) && !appends_nothing) {
    fail_argument("key: expected ", sizes.query_rows,
                  " new rows, as many as query has (or 0 with "
                  "a past, which appends nothing), since do_rotary is 1; got ",
                  sizes.new_rows, sizes.has_past ? "" : " and no past");
  }
}

void check_lengths(const Arguments& arguments, bool read_values, Sizes& sizes) {
  const Tensor& lengths = arguments.in[kSeqlensK];
  const int64_t batch = sizes.batch;
  const bool form = lengths.rank == 0   ? fits(batch, 1)
                    : lengths.rank == 1 ? fits(lengths.shape[0], batch)
                                        : lengths.rank == 2 && fits(lengths.shape[0], batch) &&
                                              fits(lengths.shape[1], 1);
  if (lengths.type != kInt32 || !form) {
    fail_argument("seqlens_k: expected int32 of shape (B), (B, 1) or, when B is 1, a scalar",
                  batch == kAnyDim ? "" : cat(", where B is ", batch), "; got ",
                  tensor_text(lengths));
  }
  const Tensor& total = arguments.in[kTotalLength];
  if (total.type != kInt32 || !fits(total.elements(), 1)) {
    fail_argument(
        "total_sequence_length: expected int32 with exactly one element, of any rank; "
        "got ",
        tensor_text(total));
  }
  if (!read_values) return;
  sizes.total = host_int32(total);
  if (sizes.total && *sizes.total < 0) {
    fail_argument("total_sequence_length: expected a value of at least 0; got ", *sizes.total);
  }
}

void check_rotary(const Arguments& arguments, Sizes& sizes) {
  const Tensor& cos = arguments.in[kCosCache];
  const Tensor& sin = arguments.in[kSinCache];
  check_shape(kInputNames[kCosCache], cos, "(positions, width/2)", {kAnyDim, kAnyDim});
  check_shape(kInputNames[kSinCache], sin, "(positions, width/2), as cos_cache has it,",
              {cos.shape[0], cos.shape[1]});
  sizes.table_rows = known_of(cos.shape[0], sin.shape[0]);
  const int64_t columns = known_of(cos.shape[1], sin.shape[1]);
  const int64_t most =
      sizes.head_size == kAnyDim ? std::numeric_limits<int32_t>::max() / 2 : sizes.head_size / 2;
  if (columns != kAnyDim && (columns < 1 || columns > most)) {
    fail_argument("cos_cache: expected 1 to ", most,
                  " columns, half of the channels that are "
                  "rotated",
                  sizes.head_size == kAnyDim ? "" : cat(" (head size ", sizes.head_size, ")"),
                  "; got ", shape_text(cos));
  }
  sizes.rotary_width = product(columns, 2);
  if (arguments.in[kPositionIds].present) {
    check_shape(kInputNames[kPositionIds], arguments.in[kPositionIds], "(B, S)",
                {sizes.batch, sizes.query_rows});
  }
}

void check_bias(const Settings& settings, const Arguments& arguments, const Sizes& sizes) {
  const Tensor& bias = arguments.in[kAttentionBias];
  const bool good = bias.rank == 4 && fits_or_one(bias.shape[0], sizes.batch) &&
                    fits_or_one(bias.shape[1], settings.q_heads) &&
                    fits_or_one(bias.shape[2], sizes.query_rows) &&
                    (!sizes.total || bias.shape[3] == kAnyDim || bias.shape[3] >= *sizes.total);
  if (good) return;
  const int64_t leading[] = {sizes.batch, settings.q_heads, sizes.query_rows};
  fail_argument("attention_bias: expected shape (B|1, Hq|1, S|1, width) with (B, Hq, S) = ",
                sizes_text(leading), " and a width of at least total_sequence_length",
                sizes.total ? cat(" ", *sizes.total) : "", "; got ",
                bias.rank == 0 ? "a scalar" : shape_text(bias));
}

void check_vectors(const Settings& settings, const Arguments& arguments, const Sizes& sizes) {
  const auto& in = arguments.in;
  if (in[kHeadSink].present) {
    check_shape(kInputNames[kHeadSink], in[kHeadSink], "(Hq)", {settings.q_heads});
  }
  if (!sizes.q_norm) return;
  for (const Input weight : {kQNormWeight, kKNormWeight}) {
    check_shape(kInputNames[weight], in[weight], "(D)", {sizes.head_size});
  }
}

// ---- outputs ------------------------------------------------------------------------------------

// The past buffer is used through the present one's strides, so both must agree on every axis that
// has more than one element.
void check_in_place(const Settings& settings, const Arguments& arguments, Input past_slot,
                    Output present_slot) {
  const Tensor& past = arguments.in[past_slot];
  const Tensor& present = arguments.out[present_slot];
  if (past.elements() <= 0 || present.elements() <= 0) return;  // empty, or open in a query
  const bool same =
      (present.shape[0] <= 1 || past.strides[0] == present.strides[0]) &&
      (settings.kv_heads <= 1 || past.strides[1] == present.strides[1]) &&
      (past.shape[2] <= 1 || present.shape[2] <= 1 || past.strides[2] == present.strides[2]) &&
      (present.shape[3] <= 1 || past.strides[3] == present.strides[3]);
  if (same) return;
  fail_argument(kOutputNames[present_slot], ": it shares the memory of ", kInputNames[past_slot],
                ", which needs equal strides; got ", shape_text(present), " with strides ",
                strides_text(present), " over ", shape_text(past), " with strides ",
                strides_text(past));
}

void check_present_cache(const Settings& settings, const Sizes& sizes, const Arguments& arguments,
                         Input past_slot, Output present_slot) {
  const Tensor& present = arguments.out[present_slot];
  if (!present.present) return;
  check_cache_type(kOutputNames[present_slot], present, arguments.in[kQuery].type);
  check_shape(kOutputNames[present_slot], present, "(B, Hkv, L, D)",
              {sizes.batch, settings.kv_heads, kAnyDim, sizes.head_size});
  if (arguments.aliases(past_slot, present_slot)) {
    check_in_place(settings, arguments, past_slot, present_slot);
  }
}

}  // namespace

void fail_no_scores() {
  fail_argument(
      "output_qk: expected none, as attribute 'qk_output' is 0 (1 or 2 fills it); got "
      "a request for it");
}

Sizes check_inputs(const Settings& settings, const Arguments& arguments, bool read_values) {
  check_presence(settings, arguments);
  check_types(settings, arguments);
  Sizes sizes = read_sizes(settings, arguments);
  check_keys(settings, arguments, sizes);
  check_lengths(arguments, read_values, sizes);
  if (settings.rotary) check_rotary(arguments, sizes);
  if (arguments.in[kAttentionBias].present) check_bias(settings, arguments, sizes);
  check_vectors(settings, arguments, sizes);
  return sizes;
}

void check_outputs(const Settings& settings, const Sizes& sizes, const Arguments& arguments) {
  const DType type = arguments.in[kQuery].type;
  const Tensor& output = arguments.out[kOutput];
  if (output.present) {
    check_type_of(kOutputNames[kOutput], output, type, kInputNames[kQuery]);
    check_shape(kOutputNames[kOutput], output, "(B, S, Hq*D)",
                {sizes.batch, sizes.query_rows, product(settings.q_heads, sizes.head_size)});
  }
  check_present_cache(settings, sizes, arguments, kPastKey, kPresentKey);
  check_present_cache(settings, sizes, arguments, kPastValue, kPresentValue);
  const Tensor& scores = arguments.out[kOutputQk];
  if (scores.present) {
    if (settings.qk_output == 0) fail_no_scores();
    check_type_of(kOutputNames[kOutputQk], scores, type, kInputNames[kQuery]);
    check_shape(
        kOutputNames[kOutputQk], scores, "(B, Hq, S, total_sequence_length)",
        {sizes.batch, settings.q_heads, sizes.query_rows, sizes.total ? *sizes.total : kAnyDim});
  }
  const Tensor& log_sum_exp = arguments.out[kLogSumExp];
  if (log_sum_exp.present) {
    if (log_sum_exp.type != kFloat32) {
      fail_type(kOutputNames[kLogSumExp], log_sum_exp, "float32");
    }
    check_shape(kOutputNames[kLogSumExp], log_sum_exp, "(B, Hq, S)",
                {sizes.batch, settings.q_heads, sizes.query_rows});
  }
}

}  // namespace attn::gqa
