// Golden cases of ai.onnx Attention.
#include <cmath>
#include <limits>

#include "golden/golden_case.h"
#include "reference/onnx_attention.h"
#include "support/compare.h"

namespace attn::golden {
namespace {

enum class Keys : uint8_t {
  kPlain,
  kNonpad,            // with a valid length for each batch row
  kDense,             // past and new rows into a present of both
  kCapacity,          // new rows in place in a larger buffer
  kCapacitySeparate,  // the same into another buffer
  kFrozen,            // a full buffer in place: the mask tells the length
};
enum class Masks : uint8_t { kNone, kBool, kFloat, kScalar, kFloat32 };

// Everything about a case but its numbers.
struct Form {
  const char* name;
  const char* about;
  Type type = Type::kFloat32;
  int32_t version = 24;
  Keys keys = Keys::kPlain;
  int64_t batch = 2, rows = 3, new_rows = 5, heads = 4, kv_heads = 2, size = 8, v_size = 8;
  int64_t past = 6, capacity = 13;
  bool three = false;  // tensors of three dimensions
  Masks mask = Masks::kNone;
  std::vector<int64_t> mask_shape = {};
  bool causal = false;
  int64_t left_window = -1, right_window = -1;
  double scale = 0, softcap = 0;
  int64_t score_mode = -1;
  bool log_sum_exp = false, strided = false, plan = false;
};

// A tensor of three dimensions (B, rows, heads * channels) as (B, heads, rows, channels).
View by_heads(const View& view, int64_t heads) {
  if (!view.bound || view.shape.size() == 4) return view;
  View out = view;
  const int64_t channels = view.dim(2) / heads, step = view.strides[2];
  out.shape = {view.dim(0), heads, view.dim(1), channels};
  out.strides = {view.strides[0], channels * step, view.strides[1], step};
  return out;
}

class Builder {
 public:
  Builder(const Form& form, uint64_t seed)
      : f_(form),
        random_(seed),
        case_(form.name, form.about, "ai.onnx", "Attention", form.version) {}

  GoldenCase build() {
    set_attributes();
    problem_.query =
        by_heads(random_input(0, "Q", shape(f_.heads, f_.rows, f_.size), 1.5), f_.heads);
    problem_.key =
        by_heads(random_input(1, "K", shape(f_.kv_heads, f_.new_rows, f_.size)), f_.kv_heads);
    problem_.value =
        by_heads(random_input(2, "V", shape(f_.kv_heads, f_.new_rows, f_.v_size)), f_.kv_heads);
    if (f_.mask != Masks::kNone) add_mask();
    output_ = case_.memory(f_.type, shape(f_.heads, f_.rows, f_.v_size), place(true));
    case_.output(0, "Y", output_);
    add_caches();
    if (f_.keys == Keys::kNonpad) add_lengths();
    add_outputs();
    if (f_.plan) case_.by_plan(f_.batch + 1, f_.rows + 3, 64);
    expect();
    return std::move(case_);
  }

 private:
  std::vector<int64_t> shape(int64_t heads, int64_t rows, int64_t channels) const {
    if (f_.three) return {f_.batch, rows, heads * channels};
    return {f_.batch, heads, rows, channels};
  }

  bool has_past() const { return f_.keys >= Keys::kDense; }
  bool in_place() const { return f_.keys == Keys::kCapacity || f_.keys == Keys::kFrozen; }

  int64_t columns() const {
    if (f_.keys == Keys::kFrozen) return f_.capacity;
    return has_past() ? f_.past + f_.new_rows : f_.new_rows;
  }

  Place place(bool output) const {
    Place place;
    if (!f_.strided) return place;
    const size_t rank = f_.three ? 3 : 4;
    place.lead = 16;
    place.tail = 24;
    place.layout.gaps.assign(rank, 0);
    place.layout.gaps[rank - 2] = 2;
    place.layout.reversed.assign(rank, false);
    place.layout.reversed[1] = !output;
    if (!f_.three) place.layout.order = {0, 2, 1, 3};  // rows before heads
    return place;
  }

  View random_input(uint32_t slot, const char* name, std::vector<int64_t> shape, double sigma = 1) {
    const size_t block = case_.memory(f_.type, std::move(shape), place(false));
    fill(case_.view(block), random_, sigma);
    return case_.input(slot, name, block);
  }

  void set_attributes() {
    if (f_.three) {
      case_.set_int("q_num_heads", f_.heads);
      case_.set_int("kv_num_heads", f_.kv_heads);
    }
    if (f_.causal) case_.set_int("is_causal", 1);
    if (f_.scale != 0) case_.set_float("scale", f_.scale);
    if (f_.softcap != 0) case_.set_float("softcap", f_.softcap);
    if (f_.score_mode >= 0) case_.set_int("qk_matmul_output_mode", f_.score_mode);
    if (f_.left_window >= 0) case_.set_int("left_window_size", f_.left_window);
    if (f_.right_window >= 0) case_.set_int("right_window_size", f_.right_window);
    problem_.causal = f_.causal;
    problem_.scale = f_.scale != 0 ? f_.scale : 1 / std::sqrt(static_cast<double>(f_.size));
    problem_.softcap = f_.softcap;
    problem_.left_window = f_.left_window;
    problem_.right_window = f_.right_window;
    problem_.score_mode = f_.score_mode < 0 ? 0 : f_.score_mode;
    problem_.scores = f_.score_mode >= 0;
  }

  void add_mask() {
    const Type type = f_.mask == Masks::kBool      ? Type::kBool
                      : f_.mask == Masks::kFloat32 ? Type::kFloat32
                                                   : f_.type;
    // What 16 bits do not hold beside the whole quarters.
    const double fine = f_.mask == Masks::kFloat32 ? 1.0 / 4096 : 0;
    const size_t block = case_.memory(type, f_.mask_shape);
    const View& mask = case_.view(block);
    for (int64_t i = 0; i < mask.elements(); ++i) {
      const bool shown = random_.chance(0.7);
      if (f_.mask == Masks::kBool) {
        mask.set_linear(i, shown ? 1 : 0);
      } else {
        const double bias = static_cast<double>(random_.between(-12, 12)) * 0.25 + fine;
        mask.set_linear(i, shown ? bias : -std::numeric_limits<double>::infinity());
      }
    }
    if (f_.mask == Masks::kScalar) mask.set_linear(0, 0.75);
    if (f_.keys == Keys::kFrozen) {  // the last query row shows as many keys as there are
      const int64_t columns = mask.dim(1), rows = mask.dim(0);
      for (int64_t j = 0; j < columns; ++j) mask.set({rows - 1, j}, j <= 9 ? 1 : 0);
    }
    problem_.mask = case_.input(3, "attn_mask", block);
  }

  void add_cache(uint32_t past_slot, const char* past_name, const char* present_name, View& past,
                 reference::PresentCache& present, int64_t channels) {
    const uint32_t present_slot = past_slot - 3;
    const std::vector<int64_t> whole = {f_.batch, f_.kv_heads, f_.capacity, channels};
    const std::vector<int64_t> old = {f_.batch, f_.kv_heads, f_.past, channels};
    if (in_place()) {
      const size_t block = case_.memory(f_.type, whole);
      fill(case_.view(block), random_);
      View narrow = case_.view(block);
      if (f_.keys == Keys::kCapacity) narrow.shape[2] = f_.past;
      past = case_.input(past_slot, past_name, block, narrow);
      case_.output(present_slot, present_name, block);
      present = {true, f_.capacity, true};
      return;
    }
    const size_t block = case_.memory(f_.type, old);
    fill(case_.view(block), random_);
    past = case_.input(past_slot, past_name, block);
    const int64_t rows = f_.keys == Keys::kDense ? f_.past + f_.new_rows : f_.capacity;
    case_.output(present_slot, present_name,
                 case_.memory(f_.type, {f_.batch, f_.kv_heads, rows, channels}));
    present = {true, rows, false};
  }

  void add_caches() {
    if (!has_past()) return;
    add_cache(4, "past_key", "present_key", problem_.past_key, problem_.present_key, f_.size);
    add_cache(5, "past_value", "present_value", problem_.past_value, problem_.present_value,
              f_.v_size);
  }

  void add_lengths() {
    const size_t block = case_.memory(Type::kInt64, {f_.batch});
    for (int64_t b = 0; b < f_.batch; ++b) {
      case_.view(block).set({b}, static_cast<double>(f_.new_rows - 2 * b));
    }
    problem_.nonpad = case_.input(6, "nonpad_kv_seqlen", block);
  }

  void add_outputs() {
    if (problem_.scores) {
      case_.output(3, "qk_matmul_output",
                   case_.memory(f_.type, {f_.batch, f_.heads, f_.rows, columns()}));
    }
    if (f_.log_sum_exp) {
      case_.output(0x1000, "log_sum_exp",
                   case_.memory(Type::kFloat32, {f_.batch, f_.heads, f_.rows}));
    }
  }

  // (B, Hq, S, width) in the order of an output of three dimensions, (B, S, Hq, width).
  std::vector<double> in_order(const std::vector<double>& by_head, int64_t width) const {
    if (!f_.three) return by_head;
    std::vector<double> values;
    for (int64_t b = 0; b < f_.batch; ++b) {
      for (int64_t i = 0; i < f_.rows; ++i) {
        for (int64_t h = 0; h < f_.heads; ++h) {
          const auto row = by_head.begin() + ((b * f_.heads + h) * f_.rows + i) * width;
          values.insert(values.end(), row, row + width);
        }
      }
    }
    return values;
  }

  void expect_cache(uint32_t slot, const reference::PresentCache& present, const View& before,
                    std::vector<double> values, const std::vector<reference::CacheRow>& kinds,
                    int64_t channels) {
    if (!present.bound) return;
    for (int64_t b = 0; b < f_.batch; ++b) {
      for (int64_t row = 0; row < present.rows; ++row) {
        if (kinds[static_cast<size_t>(b * present.rows + row)] != reference::CacheRow::kUntouched) {
          continue;
        }
        for (int64_t h = 0; h < f_.kv_heads; ++h) {
          for (int64_t d = 0; d < channels; ++d) {
            values[static_cast<size_t>(((b * f_.kv_heads + h) * present.rows + row) * channels +
                                       d)] = before.at({b, h, row, d});
          }
        }
      }
    }
    case_.expect_exact(slot, values);
  }

  void expect() {
    const reference::OnnxAttentionResult result = run(problem_);
    std::vector<double> output = in_order(result.output, f_.v_size);
    Bounds bounds = bounds_of(f_.type, output, f_.v_size, in_order(result.output_size, 1),
                              excess_of(f_.type, in_order(result.weighing_size, 1)));
    case_.expect(0, std::move(output), f_.v_size, std::move(bounds));
    expect_cache(1, problem_.present_key, problem_.past_key, result.present_key, result.key_rows,
                 f_.size);
    expect_cache(2, problem_.present_value, problem_.past_value, result.present_value,
                 result.value_rows, f_.v_size);
    if (problem_.scores) {
      Bounds score_bounds = f_.score_mode < 3
                                ? bounds_of(f_.type, result.scores, columns(), result.score_size)
                                : bounds_of(f_.type, result.scores, columns(), {},
                                            excess_of(f_.type, result.weighing_size));
      case_.expect(3, result.scores, columns(), std::move(score_bounds));
    }
    if (f_.log_sum_exp) {
      case_.expect(0x1000, result.log_sum_exp, 1,
                   log_sum_exp_bounds(result.log_sum_exp, result.weighing_size,
                                      test::error_bar(Type::kFloat32)));
    }
  }

  const Form& f_;
  test::Random random_;
  GoldenCase case_;
  reference::OnnxAttention problem_;
  size_t output_ = 0;
};

std::vector<Form> forms() {
  constexpr Type f32 = Type::kFloat32, f16 = Type::kFloat16, bf16 = Type::kBfloat16,
                 f64 = Type::kFloat64;
  return {
      {.name = "attention_float32", .about = "no mask, grouped heads", .type = f32},
      {.name = "attention_float16",
       .about = "no mask, values wider than keys",
       .type = f16,
       .v_size = 12},
      {.name = "attention_bfloat16",
       .about = "no mask, as many key heads as query heads",
       .type = bf16,
       .version = 23,
       .kv_heads = 4},
      {.name = "attention_float64",
       .about = "float64 is computed in float64",
       .type = f64,
       .version = 23,
       .log_sum_exp = true},
      {.name = "attention_causal_packed_heads",
       .about = "tensors of three dimensions, causal",
       .type = f32,
       .rows = 5,
       .three = true,
       .causal = true,
       .log_sum_exp = true},
      {.name = "attention_plan",
       .about = "one plan for several sizes, three dimensions",
       .type = f16,
       .three = true,
       .plan = true},
      {.name = "attention_bool_mask",
       .about = "a mask of truth values, (S, T)",
       .type = f32,
       .mask = Masks::kBool,
       .mask_shape = {3, 5},
       .log_sum_exp = true},
      {.name = "attention_head_mask",
       .about = "a mask of numbers for each head",
       .type = f16,
       .mask = Masks::kFloat,
       .mask_shape = {1, 4, 3, 5}},
      {.name = "attention_short_mask",
       .about = "a mask hides the keys behind its end",
       .type = bf16,
       .mask = Masks::kFloat,
       .mask_shape = {2, 1, 1, 4}},
      {.name = "attention_scalar_mask",
       .about = "one number for all keys",
       .type = f64,
       .mask = Masks::kScalar,
       .mask_shape = {}},
      {.name = "attention_dense_cache",
       .about = "past and new rows into a present of both",
       .type = f32,
       .keys = Keys::kDense,
       .causal = true},
      {.name = "attention_dense_cache_bfloat16",
       .about = "the same, three dimensions",
       .type = bf16,
       .keys = Keys::kDense,
       .three = true,
       .causal = true},
      {.name = "attention_capacity_in_place",
       .about = "new rows in a larger buffer, in place",
       .type = f16,
       .keys = Keys::kCapacity,
       .causal = true},
      {.name = "attention_capacity_copied",
       .about = "a larger buffer beside the past",
       .type = f64,
       .keys = Keys::kCapacitySeparate,
       .v_size = 6},
      {.name = "attention_frozen_cache",
       .about = "a full buffer: the mask tells the length",
       .type = f32,
       .keys = Keys::kFrozen,
       .rows = 2,
       .new_rows = 2,
       .past = 13,
       .mask = Masks::kBool,
       .mask_shape = {2, 13}},
      {.name = "attention_valid_lengths",
       .about = "keys beyond a length are not felt",
       .type = f32,
       .keys = Keys::kNonpad,
       .causal = true,
       .log_sum_exp = true},
      {.name = "attention_windows",
       .about = "windows on both sides, opset 27",
       .type = bf16,
       .version = 27,
       .rows = 5,
       .left_window = 2,
       .right_window = 1},
      {.name = "attention_scores_products",
       .about = "scaled products as an output",
       .type = f32,
       .scale = 0.5,
       .score_mode = 0},
      {.name = "attention_scores_capped",
       .about = "scores after the soft cap as an output",
       .type = f16,
       .softcap = 1.5,
       .score_mode = 1},
      {.name = "attention_scores_masked",
       .about = "scores after the mask as an output",
       .type = f64,
       .mask = Masks::kFloat,
       .mask_shape = {3, 5},
       .score_mode = 2},
      {.name = "attention_probabilities",
       .about = "probabilities as an output",
       .type = bf16,
       .causal = true,
       .score_mode = 3},
      {.name = "attention_strided_float32",
       .about = "rows before heads, heads turned round",
       .type = f32,
       .strided = true},
      {.name = "attention_strided_float64",
       .about = "gaps between rows, three dimensions",
       .type = f64,
       .three = true,
       .strided = true},
      {.name = "attention_many_rows",
       .about = "more rows and keys than a block has",
       .type = f16,
       .batch = 1,
       .rows = 50,
       .new_rows = 50,
       .heads = 2,
       .kv_heads = 1,
       .size = 16,
       .v_size = 16,
       .causal = true},
      {.name = "attention_float32_mask_float16",
       .about = "a float32 mask beside 16-bit tensors",
       .type = f16,
       .mask = Masks::kFloat32,
       .mask_shape = {3, 5}},
      {.name = "attention_float32_mask_bfloat16",
       .about = "the same in bfloat16, a mask for each head, causal",
       .type = bf16,
       .rows = 5,
       .mask = Masks::kFloat32,
       .mask_shape = {2, 4, 5, 5},
       .causal = true},
  };
}

}  // namespace

void add_attention(std::vector<GoldenCase>& cases) {
  uint64_t seed = 200;
  for (const Form& form : forms()) cases.push_back(Builder(form, ++seed).build());
}

}  // namespace attn::golden
