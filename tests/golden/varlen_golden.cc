// Golden cases of pkg.nxrt VarlenAttention and PackedVarlenAttention. Both are Attention with valid
// lengths, on views of other layouts.
#include <cmath>
#include <limits>

#include "golden/golden_case.h"
#include "reference/onnx_attention.h"
#include "support/compare.h"

namespace attn::golden {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kSize = 8, kValueSize = 6;

// (B, rows, heads, channels) as (B, heads, rows, channels).
View heads_first(View view) {
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

// Rows [begin, end) of packed tokens (tokens, heads, channels) as a batch of one.
View sequence(const View& tokens, int64_t begin, int64_t end) {
  View view = tokens;
  view.data =
      static_cast<char*>(tokens.data) + begin * tokens.strides[0] * test::size_of(tokens.type);
  view.shape = {1, tokens.dim(1), end - begin, tokens.dim(2)};
  view.strides = {0, tokens.strides[1], tokens.strides[0], tokens.strides[2]};
  return view;
}

// Expected rows of (tokens, heads): the outputs, and what their errors are measured by.
struct Rows {
  std::vector<double> output, least, excess;
  std::vector<double> sums, sizes;  // (heads, tokens)
};

struct Form {
  const char* name;
  const char* about;
  Type type = Type::kFloat32;
  bool packed = false, causal = false, own_keys = false, log_sum_exp = false;
  int64_t left_window = -1;
  double softcap = 0;
};

class Builder {
 public:
  Builder(const Form& form, uint64_t seed)
      : f_(form),
        random_(seed),
        case_(form.name, form.about, "pkg.nxrt",
              form.packed ? "PackedVarlenAttention" : "VarlenAttention", 1) {
    case_.set_int("num_heads", kHeads);
    case_.set_int("kv_num_heads", kKvHeads);
    if (f_.causal) case_.set_int("is_causal", 1);
    if (f_.softcap != 0) case_.set_float("softcap", f_.softcap);
    if (f_.left_window >= 0) case_.set_int("left_window_size", f_.left_window);
    problem_.causal = f_.causal;
    problem_.softcap = f_.softcap;
    problem_.left_window = f_.left_window;
    problem_.scale = 1 / std::sqrt(static_cast<double>(kSize));
  }

  GoldenCase build() {
    if (f_.packed) {
      build_packed();
    } else {
      build_padded();
    }
    return std::move(case_);
  }

 private:
  View random_input(uint32_t slot, const char* name, std::vector<int64_t> shape, double sigma) {
    const size_t block = case_.memory(f_.type, std::move(shape));
    fill(case_.view(block), random_, sigma);
    return case_.input(slot, name, block);
  }

  View lengths(uint32_t slot, const char* name, Type type, const std::vector<int64_t>& values) {
    const size_t block = case_.memory(type, {static_cast<int64_t>(values.size())});
    for (size_t i = 0; i < values.size(); ++i) {
      case_.view(block).set_linear(static_cast<int64_t>(i), static_cast<double>(values[i]));
    }
    return case_.input(slot, name, block);
  }

  void build_padded() {
    constexpr int64_t batch = 3, rows = 3, keys = 7;
    problem_.query = heads_first(random_input(0, "query", {batch, rows, kHeads, kSize}, 1.5));
    problem_.key = heads_first(random_input(1, "key", {batch, keys, kKvHeads, kSize}, 1));
    problem_.value = heads_first(random_input(2, "value", {batch, keys, kKvHeads, kValueSize}, 1));
    problem_.nonpad = lengths(3, "nonpad_kv_seqlen", Type::kInt64, {7, 4, 0});
    case_.output(0, "output", case_.memory(f_.type, {batch, rows, kHeads, kValueSize}));
    const reference::OnnxAttentionResult result = run(problem_);
    Rows expected;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t h = 0; h < kHeads; ++h) {
          add_row(expected, result, static_cast<size_t>((b * kHeads + h) * rows + i));
        }
      }
    }
    expected.sums = result.log_sum_exp;
    expected.sizes = result.weighing_size;
    expect(expected, {batch, kHeads, rows});
  }

  static void add_row(Rows& rows, const reference::OnnxAttentionResult& result, size_t at) {
    const auto row = result.output.begin() + static_cast<int64_t>(at) * kValueSize;
    rows.output.insert(rows.output.end(), row, row + kValueSize);
    rows.least.push_back(result.output_size[at]);
    rows.excess.push_back(result.weighing_size[at]);
  }

  void build_packed() {
    // Two sequences with tokens between the ends of the lists and those of the tensors, one empty.
    const std::vector<int64_t> queries = {1, 4, 4, 9}, own = {0, 6, 8, 10};
    const std::vector<int64_t>& keys = f_.own_keys ? own : queries;
    constexpr int64_t tokens = 10;
    const View query = random_input(0, "query", {tokens, kHeads, kSize}, 1.5);
    const View key = random_input(1, "key", {tokens, kKvHeads, kSize}, 1);
    const View value = random_input(2, "value", {tokens, kKvHeads, kValueSize}, 1);
    lengths(3, "cu_seqlens_q", Type::kInt32, queries);
    if (f_.own_keys) lengths(4, "cu_seqlens_k", Type::kInt32, own);
    case_.output(0, "output", case_.memory(f_.type, {tokens, kHeads, kValueSize}));

    constexpr size_t rows = tokens * kHeads;
    Rows expected;
    expected.output.assign(rows * kValueSize, 0);
    expected.least.assign(rows, 0);
    expected.excess.assign(rows, 0);
    expected.sums.assign(rows, -std::numeric_limits<double>::infinity());
    expected.sizes.assign(rows, 0);
    for (size_t s = 0; s + 1 < queries.size(); ++s) {
      problem_.query = sequence(query, queries[s], queries[s + 1]);
      problem_.key = sequence(key, keys[s], keys[s + 1]);
      problem_.value = sequence(value, keys[s], keys[s + 1]);
      int64_t valid = keys[s + 1] - keys[s];
      problem_.nonpad = test::contiguous_view(&valid, Type::kInt64, {1});
      place_sequence(expected, run(problem_), queries[s], queries[s + 1], tokens);
    }
    expect(expected, {kHeads, tokens});
  }

  static void place_sequence(Rows& rows, const reference::OnnxAttentionResult& result,
                             int64_t begin, int64_t end, int64_t tokens) {
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = begin; i < end; ++i) {
        const size_t from = static_cast<size_t>(h * (end - begin) + i - begin);
        const size_t to = static_cast<size_t>(i * kHeads + h);
        for (size_t d = 0; d < kValueSize; ++d) {
          rows.output[to * kValueSize + d] = result.output[from * kValueSize + d];
        }
        rows.least[to] = result.output_size[from];
        rows.excess[to] = result.weighing_size[from];
        rows.sums[static_cast<size_t>(h * tokens + i)] = result.log_sum_exp[from];
        rows.sizes[static_cast<size_t>(h * tokens + i)] = result.weighing_size[from];
      }
    }
  }

  void expect(const Rows& rows, const std::vector<int64_t>& sum_shape) {
    case_.expect(
        0, rows.output, kValueSize,
        bounds_of(f_.type, rows.output, kValueSize, rows.least, excess_of(f_.type, rows.excess)));
    if (!f_.log_sum_exp) return;
    case_.output(0x1000, "log_sum_exp", case_.memory(Type::kFloat32, sum_shape));
    case_.expect(0x1000, rows.sums, 1,
                 log_sum_exp_bounds(rows.sums, rows.sizes, test::error_bar(Type::kFloat32)));
  }

  const Form& f_;
  test::Random random_;
  GoldenCase case_;
  reference::OnnxAttention problem_;
};

}  // namespace

void add_varlen(std::vector<GoldenCase>& cases) {
  constexpr Type f32 = Type::kFloat32, f16 = Type::kFloat16, bf16 = Type::kBfloat16;
  const std::vector<Form> forms = {
      {.name = "varlen_float32",
       .about = "a padded batch, one row of it empty",
       .type = f32,
       .log_sum_exp = true},
      {.name = "varlen_float16", .about = "a padded batch, causal", .type = f16, .causal = true},
      {.name = "varlen_bfloat16",
       .about = "a padded batch, capped scores",
       .type = bf16,
       .softcap = 2},
      {.name = "packed_varlen_float32",
       .about = "packed tokens, one list for both",
       .type = f32,
       .packed = true,
       .causal = true,
       .log_sum_exp = true},
      {.name = "packed_varlen_float16",
       .about = "packed tokens, keys of their own lengths",
       .type = f16,
       .packed = true,
       .own_keys = true},
      {.name = "packed_varlen_bfloat16",
       .about = "packed tokens, a window behind the query",
       .type = bf16,
       .packed = true,
       .causal = true,
       .own_keys = true,
       .log_sum_exp = true,
       .left_window = 2},
  };
  uint64_t seed = 300;
  for (const Form& form : forms) cases.push_back(Builder(form, ++seed).build());
}

}  // namespace attn::golden
