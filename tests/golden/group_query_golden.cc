// Golden cases of com.microsoft GroupQueryAttention.
#include <cmath>
#include <limits>

#include "golden/golden_case.h"
#include "reference/group_query_attention.h"
#include "support/compare.h"

namespace attn::golden {
namespace {

enum class Caches : uint8_t { kNone, kPresent, kSeparate, kInPlace, kPastAlone };
enum class Layouts : uint8_t { kPlain, kStrided, kReversed };

// Everything about a case but its numbers.
struct Form {
  const char* name;
  const char* about;
  Type type = Type::kFloat32;
  int64_t rows = 1, heads = 4, kv_heads = 2, size = 8;
  std::vector<int64_t> totals = {5, 9};  // keys of each batch row, new ones included
  int64_t bound = 0;                     // total_sequence_length; 0: the longest
  Caches caches = Caches::kInPlace;
  int64_t capacity = 12;
  bool packed = false, causal = true;
  int64_t rotary_width = 0;
  bool interleaved = false, float_tables = false, positions = false;
  bool norm = false, sink = false, smooth = false, empty_slots = false;
  int64_t window = -1, qk_output = 0, bias_width = 0;
  double scale = 0, softcap = 0;
  bool log_sum_exp = false;
  Layouts layouts = Layouts::kPlain;
  bool plan = false;
  const char* engine = "";
};

class Builder {
 public:
  explicit Builder(const Form& form, uint64_t seed)
      : f_(form),
        random_(seed),
        case_(form.name, form.about, "com.microsoft", "GroupQueryAttention", 1) {}

  GoldenCase build() {
    set_attributes();
    add_tokens();
    add_caches();
    add_lengths();
    add_small_inputs();
    add_outputs();
    if (f_.plan) case_.by_plan(batch() + 1, f_.rows + 2, f_.capacity + 20);
    case_.force_engine(f_.engine);
    expect();
    return std::move(case_);
  }

 private:
  int64_t batch() const { return static_cast<int64_t>(f_.totals.size()); }

  int64_t bound() const {
    int64_t longest = f_.bound;
    for (const int64_t total : f_.totals) longest = std::max(longest, total);
    return longest;
  }

  void set_attributes() {
    case_.set_int("num_heads", f_.heads);
    case_.set_int("kv_num_heads", f_.kv_heads);
    if (!f_.causal) case_.set_int("causal", 0);
    if (f_.window >= 0) case_.set_int("local_window_size", f_.window);
    if (f_.scale != 0) case_.set_float("scale", f_.scale);
    if (f_.softcap != 0) case_.set_float("softcap", f_.softcap);
    if (f_.rotary_width > 0) case_.set_int("do_rotary", 1);
    if (f_.interleaved) case_.set_int("rotary_interleaved", 1);
    if (f_.smooth) case_.set_int("smooth_softmax", 1);
    if (f_.qk_output != 0) case_.set_int("qk_output", f_.qk_output);
    if (f_.empty_slots) case_.set_int("empty_slots", 1);
    problem_.num_heads = f_.heads;
    problem_.kv_num_heads = f_.kv_heads;
    problem_.scale = f_.scale;
    problem_.softcap = f_.softcap;
    problem_.local_window_size = f_.window;
    problem_.causal = f_.causal;
    problem_.do_rotary = f_.rotary_width > 0;
    problem_.rotary_interleaved = f_.interleaved;
    problem_.smooth_softmax = f_.smooth ? 1 : -1;
    problem_.qk_output = f_.qk_output;
    problem_.empty_slots = f_.empty_slots;
    problem_.qk_norm_epsilon = static_cast<float>(1e-6);
  }

  // A tensor of the operator's type; strided forms leave gaps, bytes in front and, where the
  // contract lets them, turn axes round.
  Place place(size_t rank, bool output) const {
    Place place;
    if (f_.layouts == Layouts::kPlain) return place;
    place.lead = 3 * 8;
    place.tail = 8;
    place.layout.gaps.assign(rank, 0);
    if (rank > 1) place.layout.gaps[rank - 2] = 3;
    if (f_.layouts == Layouts::kReversed) {
      place.layout.gaps[rank - 1] = 1;
      if (!output) {
        place.layout.reversed.assign(rank, false);
        place.layout.reversed[0] = true;
      }
    }
    return place;
  }

  size_t random_memory(Type type, std::vector<int64_t> shape, bool output = false,
                       double sigma = 1) {
    const size_t rank = shape.size();
    const size_t block = case_.memory(type, std::move(shape), place(rank, output));
    fill(case_.view(block), random_, sigma);
    return block;
  }

  View random_input(uint32_t slot, const char* name, std::vector<int64_t> shape, double sigma = 1) {
    return case_.input(slot, name, random_memory(f_.type, std::move(shape), false, sigma));
  }

  void add_tokens() {
    const int64_t width = f_.heads * f_.size, kv_width = f_.kv_heads * f_.size;
    if (f_.packed) {
      problem_.query = random_input(0, "query", {batch(), f_.rows, width + 2 * kv_width}, 1.5);
      return;
    }
    problem_.query = random_input(0, "query", {batch(), f_.rows, width}, 2);
    problem_.key = random_input(1, "key", {batch(), f_.rows, kv_width});
    problem_.value = random_input(2, "value", {batch(), f_.rows, kv_width});
  }

  void add_cache(uint32_t past_slot, const char* past_name, const char* present_name, View& past,
                 reference::PresentCache& present, int64_t past_rows) {
    const std::vector<int64_t> past_shape = {batch(), f_.kv_heads, past_rows, f_.size};
    const std::vector<int64_t> shape = {batch(), f_.kv_heads, f_.capacity, f_.size};
    const uint32_t present_slot = past_slot - 2;
    if (f_.caches == Caches::kInPlace) {
      const size_t block = random_memory(f_.type, shape, true);
      View narrow = case_.view(block);
      narrow.shape[2] = past_rows;
      past = case_.input(past_slot, past_name, block, narrow);
      case_.output(present_slot, present_name, block);
      present = {true, f_.capacity, true};
      return;
    }
    if (f_.caches == Caches::kSeparate || f_.caches == Caches::kPastAlone) {
      past = random_input(past_slot, past_name, past_shape);
    }
    if (f_.caches == Caches::kSeparate || f_.caches == Caches::kPresent) {
      case_.output(present_slot, present_name, case_.memory(f_.type, shape, place(4, true)));
      present = {true, f_.capacity, false};
    }
  }

  void add_caches() {
    // Outputs are listed in the order in which they are bound, the first one first.
    output_ = case_.memory(f_.type, {batch(), f_.rows, f_.heads * f_.size}, place(3, true));
    case_.output(0, "output", output_);
    if (f_.caches == Caches::kNone) return;
    add_cache(3, "past_key", "present_key", problem_.past_key, problem_.present_key, f_.capacity);
    add_cache(4, "past_value", "present_value", problem_.past_value, problem_.present_value,
              f_.capacity - 1);
  }

  void add_lengths() {
    const size_t lengths = case_.memory(Type::kInt32, {batch()});
    for (int64_t b = 0; b < batch(); ++b) {
      case_.view(lengths).set({b}, static_cast<double>(f_.totals[static_cast<size_t>(b)] - 1));
    }
    problem_.seqlens_k = case_.input(5, "seqlens_k", lengths);
    const size_t total = case_.memory(Type::kInt32, {});
    case_.view(total).set({}, static_cast<double>(bound()));
    problem_.total_sequence_length = case_.input(6, "total_sequence_length", total);
  }

  void add_rotary() {
    const Type type = f_.float_tables ? Type::kFloat32 : f_.type;
    const int64_t rows = f_.capacity + 3, columns = f_.rotary_width / 2;
    for (const uint32_t slot : {7u, 8u}) {
      const size_t table = case_.memory(type, {rows, columns});
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < columns; ++i) {
          // Rotations by arcs with rational sines: no two libraries round them differently.
          const double t = std::fmod(static_cast<double>(row * (i + 1)) * 0.1875, 4.0) - 2;
          const double cosine = (1 - t * t) / (1 + t * t), sine = 2 * t / (1 + t * t);
          case_.view(table).set({row, i}, slot == 7 ? cosine : sine);
        }
      }
      (slot == 7 ? problem_.cos_cache : problem_.sin_cache) =
          case_.input(slot, slot == 7 ? "cos_cache" : "sin_cache", table);
    }
    if (!f_.positions) return;
    const size_t positions = case_.memory(Type::kInt64, {batch(), f_.rows});
    for (int64_t b = 0; b < batch(); ++b) {
      for (int64_t i = 0; i < f_.rows; ++i) {
        case_.view(positions).set({b, i}, static_cast<double>((7 * b + 5 * i + 3) % rows));
      }
    }
    problem_.position_ids = case_.input(9, "position_ids", positions);
  }

  void add_small_inputs() {
    if (f_.rotary_width > 0) add_rotary();
    if (f_.bias_width > 0) {
      const size_t bias = random_memory(f_.type, {1, f_.heads, f_.rows, f_.bias_width});
      // One key that a head may not see, and a number that is low but a number.
      case_.view(bias).set({0, 0, 0, 0}, -std::numeric_limits<double>::infinity());
      case_.view(bias).set({0, 1, 0, 1}, -1e4);
      problem_.attention_bias = case_.input(10, "attention_bias", bias);
    }
    if (f_.sink) problem_.head_sink = random_input(11, "head_sink", {f_.heads});
    if (f_.norm) {
      problem_.q_norm_weight = random_input(14, "q_norm_weight", {f_.size});
      problem_.k_norm_weight = random_input(15, "k_norm_weight", {f_.size});
    }
  }

  void add_outputs() {
    if (f_.qk_output != 0) {
      case_.output(3, "output_qk",
                   case_.memory(f_.type, {batch(), f_.heads, f_.rows, bound()}, place(4, true)));
    }
    if (f_.log_sum_exp) {
      case_.output(0x1000, "log_sum_exp",
                   case_.memory(Type::kFloat32, {batch(), f_.heads, f_.rows}, place(3, true)));
    }
  }

  // The sizes of (B, Hq, S) in the order of output rows, (B, S, Hq).
  std::vector<double> by_output_row(const std::vector<double>& by_head) const {
    std::vector<double> rows;
    for (int64_t b = 0; b < batch(); ++b) {
      for (int64_t i = 0; i < f_.rows; ++i) {
        for (int64_t h = 0; h < f_.heads; ++h) {
          rows.push_back(by_head[static_cast<size_t>((b * f_.heads + h) * f_.rows + i)]);
        }
      }
    }
    return rows;
  }

  bool free_row(const reference::GroupQueryResult& result, int64_t b, int64_t i) const {
    return result.rows[static_cast<size_t>(b * f_.rows + i)] == reference::RowKind::kPadded;
  }

  // Values of (B, Hq, S, width) with NaN where a padded query row may hold anything.
  std::vector<double> freed(const reference::GroupQueryResult& result, std::vector<double> values,
                            int64_t width) const {
    for (int64_t b = 0; b < batch(); ++b) {
      for (int64_t h = 0; h < f_.heads; ++h) {
        for (int64_t i = 0; i < f_.rows; ++i) {
          if (!free_row(result, b, i)) continue;
          for (int64_t j = 0; j < width; ++j) {
            values[static_cast<size_t>(((b * f_.heads + h) * f_.rows + i) * width + j)] = NAN;
          }
        }
      }
    }
    return values;
  }

  void expect_cache(uint32_t slot, const reference::PresentCache& present, const View& before,
                    std::vector<double> values, const std::vector<reference::CacheRow>& kinds,
                    bool exact) {
    if (!present.bound) return;
    for (int64_t b = 0; b < batch(); ++b) {
      for (int64_t h = 0; h < f_.kv_heads; ++h) {
        for (int64_t row = 0; row < present.rows; ++row) {
          if (kinds[static_cast<size_t>(b * present.rows + row)] !=
              reference::CacheRow::kUntouched) {
            continue;
          }
          for (int64_t d = 0; d < f_.size; ++d) {
            values[static_cast<size_t>(((b * f_.kv_heads + h) * present.rows + row) * f_.size +
                                       d)] = before.at({b, h, row, d});
          }
        }
      }
    }
    Bounds bounds =
        exact ? exact_bounds(values, f_.size) : rounding_bounds(f_.type, values, f_.size);
    case_.expect(slot, std::move(values), f_.size, std::move(bounds));
  }

  void expect() {
    const reference::GroupQueryResult result = run(problem_);
    std::vector<double> output = result.output;
    for (int64_t b = 0; b < batch(); ++b) {
      for (int64_t i = 0; i < f_.rows; ++i) {
        if (!free_row(result, b, i)) continue;
        const int64_t width = f_.heads * f_.size;
        for (int64_t d = 0; d < width; ++d) {
          output[static_cast<size_t>((b * f_.rows + i) * width + d)] = NAN;
        }
      }
    }
    Bounds bounds = bounds_of(f_.type, output, f_.size, by_output_row(result.output_size),
                              excess_of(f_.type, by_output_row(result.weighing_size)));
    case_.expect(0, std::move(output), f_.size, std::move(bounds));

    // In place the past's view has the memory of the whole buffer.
    View keys = problem_.past_key, values = problem_.past_value;
    expect_cache(1, problem_.present_key, keys, result.present_key, result.key_rows,
                 result.new_keys_exact);
    expect_cache(2, problem_.present_value, values, result.present_value, result.value_rows, true);
    if (f_.qk_output != 0) {
      std::vector<double> scores = freed(result, result.scores, bound());
      Bounds score_bounds =
          f_.qk_output == 1
              ? bounds_of(f_.type, scores, bound(), result.score_size)
              : bounds_of(f_.type, scores, bound(), {}, excess_of(f_.type, result.weighing_size));
      case_.expect(3, std::move(scores), bound(), std::move(score_bounds));
    }
    if (f_.log_sum_exp) {
      const bool rounded = f_.norm && f_.type != Type::kFloat32;
      const double bar =
          rounded ? test::kRowFactor * test::error_bar(f_.type) : test::error_bar(Type::kFloat32);
      std::vector<double> sums = freed(result, result.log_sum_exp, 1);
      Bounds sum_bounds = log_sum_exp_bounds(sums, result.weighing_size, bar);
      case_.expect(0x1000, std::move(sums), 1, std::move(sum_bounds));
    }
  }

  const Form& f_;
  test::Random random_;
  GoldenCase case_;
  reference::GroupQueryAttention problem_;
  size_t output_ = 0;
};

std::vector<Form> forms() {
  constexpr Type f32 = Type::kFloat32, f16 = Type::kFloat16, bf16 = Type::kBfloat16;
  return {
      {.name = "gqa_prompt_float32",
       .about = "a first prompt; no cache is kept",
       .type = f32,
       .rows = 5,
       .totals = {5, 5},
       .caches = Caches::kNone},
      {.name = "gqa_prompt_float16",
       .about = "a first prompt, packed, into new caches",
       .type = f16,
       .rows = 5,
       .totals = {5, 5},
       .caches = Caches::kPresent,
       .packed = true},
      {.name = "gqa_prompt_bfloat16",
       .about = "a first prompt into new caches, rows of the batch "
                "padded on the right",
       .type = bf16,
       .rows = 6,
       .totals = {6, 3},
       .caches = Caches::kPresent,
       .log_sum_exp = true},
      {.name = "gqa_decode_float32",
       .about = "one token, caches in place, lengths that differ",
       .type = f32},
      {.name = "gqa_decode_float16",
       .about = "one token, caches in place, lengths that differ",
       .type = f16,
       .log_sum_exp = true},
      {.name = "gqa_decode_bfloat16",
       .about = "one token, caches in place, lengths that differ",
       .type = bf16,
       .plan = true},
      {.name = "gqa_chunk_separate_caches",
       .about = "a chunk on top of a past, which is copied",
       .type = f32,
       .rows = 3,
       .totals = {7, 11},
       .caches = Caches::kSeparate,
       .plan = true},
      {.name = "gqa_past_alone",
       .about = "attention reads past and new rows where they are",
       .type = f16,
       .rows = 2,
       .totals = {6, 10},
       .caches = Caches::kPastAlone},
      {.name = "gqa_rotary_packed",
       .about = "rotary embedding over half of the head, packed",
       .type = f32,
       .rows = 2,
       .packed = true,
       .rotary_width = 4},
      {.name = "gqa_rotary_interleaved",
       .about = "interleaved pairs, float32 tables under float16",
       .type = f16,
       .rows = 2,
       .rotary_width = 8,
       .interleaved = true,
       .float_tables = true},
      {.name = "gqa_position_ids",
       .about = "each token has a position of its own",
       .type = bf16,
       .rows = 3,
       .totals = {4, 9},
       .rotary_width = 8,
       .positions = true},
      {.name = "gqa_norm_float32",
       .about = "RMS norm of queries and keys, then rotation",
       .type = f32,
       .rows = 2,
       .rotary_width = 8,
       .norm = true,
       .log_sum_exp = true},
      {.name = "gqa_norm_bfloat16",
       .about = "RMS norm of queries and keys, then rotation",
       .type = bf16,
       .rows = 2,
       .rotary_width = 8,
       .norm = true},
      {.name = "gqa_window",
       .about = "a local window and a soft cap of the scores",
       .type = f32,
       .rows = 4,
       .totals = {6, 12},
       .window = 3,
       .softcap = 2.5},
      {.name = "gqa_sink",
       .about = "a sink for each head",
       .type = f16,
       .sink = true,
       .log_sum_exp = true},
      {.name = "gqa_smooth_softmax",
       .about = "exp(0) joins the denominator",
       .type = f32,
       .smooth = true},
      {.name = "gqa_bias",
       .about = "a bias that is broadcast over the batch and hides a key",
       .type = f32,
       .rows = 2,
       .bias_width = 14,
       .log_sum_exp = true},
      {.name = "gqa_scores",
       .about = "the scores before the softmax as an output",
       .type = f32,
       .rows = 2,
       .qk_output = 1},
      {.name = "gqa_probabilities",
       .about = "the probabilities as an output",
       .type = f16,
       .rows = 2,
       .qk_output = 2},
      {.name = "gqa_all_keys",
       .about = "without causality, a scale of its own",
       .type = bf16,
       .rows = 3,
       .causal = false,
       .scale = 0.25},
      {.name = "gqa_empty_slot",
       .about = "a batch row without a sequence",
       .type = f32,
       .totals = {0, 7, 12},
       .empty_slots = true,
       .log_sum_exp = true},
      {.name = "gqa_strided_float32",
       .about = "gaps between rows, bytes in front of every tensor",
       .type = f32,
       .rows = 2,
       .layouts = Layouts::kStrided},
      {.name = "gqa_strided_float16",
       .about = "gaps between elements, inputs with their batch "
                "axis turned round",
       .type = f16,
       .rows = 2,
       .layouts = Layouts::kReversed},
      {.name = "gqa_strided_bfloat16",
       .about = "gaps between rows, a packed query",
       .type = bf16,
       .rows = 3,
       .packed = true,
       .layouts = Layouts::kStrided,
       .plan = true},
      {.name = "gqa_long_prompt",
       .about = "more rows and keys than a block of the engines has",
       .type = f32,
       .rows = 40,
       .heads = 2,
       .kv_heads = 1,
       .size = 16,
       .totals = {70},
       .capacity = 72},
      {.name = "gqa_long_decode",
       .about = "one token over keys that several spans share",
       .type = f16,
       .heads = 2,
       .kv_heads = 1,
       .size = 8,
       .totals = {300},
       .capacity = 300},
      {.name = "gqa_generic_engine",
       .about = "an engine is forced by name",
       .type = f32,
       .rows = 2,
       .plan = true,
       .engine = "generic"},
      {.name = "gqa_bias_float16",
       .about = "a bias of 16 bits that is broadcast over the batch",
       .type = f16,
       .rows = 3,
       .bias_width = 14},
      {.name = "gqa_bias_bfloat16",
       .about = "the same in bfloat16, one token",
       .type = bf16,
       .bias_width = 14},
  };
}

}  // namespace

void add_group_query(std::vector<GoldenCase>& cases) {
  uint64_t seed = 100;
  for (const Form& form : forms()) cases.push_back(Builder(form, ++seed).build());
}

}  // namespace attn::golden
