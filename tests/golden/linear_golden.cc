// Golden cases of LinearAttention, com.microsoft and ai.onnx.
#include "golden/golden_case.h"
#include "reference/linear_attention.h"

namespace attn::golden {
namespace {

struct Form {
  const char* name;
  const char* about;
  Type type = Type::kFloat32, state = Type::kFloat32;
  const char* rule = "gated_delta";
  bool standard = false;
  int64_t tokens = 5, q_heads = 4, key_heads = 2, kv_heads = 2, size = 8, v_size = 6;
  bool per_key = false, shared_beta = false, folded = false;
  bool past = true, in_place = false, strided = false, plan = false;
  double scale = 0;
};

class Builder {
 public:
  Builder(const Form& form, uint64_t seed)
      : f_(form),
        random_(seed),
        case_(form.name, form.about, form.standard ? "ai.onnx" : "com.microsoft", "LinearAttention",
              form.standard ? 27 : 1) {
    const std::string rule = form.rule;
    problem_.decays = rule.starts_with("gated");
    problem_.delta = rule.ends_with("delta");
  }

  GoldenCase build() {
    set_attributes();
    problem_.query = input(0, "query", {kBatch, f_.tokens, f_.q_heads * f_.size}, 1);
    problem_.key = input(1, "key", {kBatch, f_.tokens, f_.key_heads * f_.size}, 0.35);
    problem_.value = input(2, "value", {kBatch, f_.tokens, f_.kv_heads * f_.v_size}, 1);
    add_state();
    if (problem_.decays) add_decay();
    if (problem_.delta) add_beta();
    if (f_.plan) case_.by_plan(kBatch + 1, f_.tokens + 4, 0);
    expect();
    return std::move(case_);
  }

 private:
  static constexpr int64_t kBatch = 2;

  int64_t output_heads() const { return std::max(f_.q_heads, f_.kv_heads); }

  void set_attributes() {
    case_.set_int("q_num_heads", f_.q_heads);
    case_.set_int("kv_num_heads", f_.kv_heads);
    case_.set_text("update_rule", f_.rule);
    if (f_.scale != 0) case_.set_float("scale", f_.scale);
    if (f_.folded) {
      case_.set_int("cuda_fuse_beta_sigmoid", 1);
      case_.set_int("cuda_fuse_decay_softplus", 1);
    }
    problem_.q_num_heads = f_.q_heads;
    problem_.kv_num_heads = f_.kv_heads;
    problem_.scale = f_.scale;
    problem_.state_type = f_.state;
    problem_.fold_beta = problem_.fold_decay = f_.folded;
  }

  Place place(size_t rank) const {
    Place place;
    if (!f_.strided) return place;
    place.lead = 32;
    place.tail = 8;
    place.layout.gaps.assign(rank, 0);
    if (rank > 1) place.layout.gaps[rank - 2] = 5;
    return place;
  }

  View input(uint32_t slot, const char* name, std::vector<int64_t> shape, double sigma,
             double middle = 0) {
    const size_t rank = shape.size();
    const size_t block = case_.memory(f_.type, std::move(shape), place(rank));
    const View& view = case_.view(block);
    fill(view, random_, sigma);
    for (int64_t i = 0; middle != 0 && i < view.elements(); ++i) {
      view.set_linear(i, middle + view.at_linear(i));
    }
    return case_.input(slot, name, block);
  }

  void add_state() {
    const std::vector<int64_t> shape = {kBatch, f_.kv_heads, f_.size, f_.v_size};
    case_.output(0, "output",
                 case_.memory(f_.type, {kBatch, f_.tokens, output_heads() * f_.v_size}, place(3)));
    if (!f_.past) {
      case_.output(1, "present_state", case_.memory(f_.state, shape));
      return;
    }
    const size_t past = case_.memory(f_.state, shape);
    fill(case_.view(past), random_, 0.5);
    problem_.past_state = case_.input(3, "past_state", past);
    case_.output(1, "present_state", f_.in_place ? past : case_.memory(f_.state, shape));
  }

  void add_decay() {
    const int64_t width = f_.kv_heads * (f_.per_key ? f_.size : 1);
    problem_.decay = input(4, "decay", {kBatch, f_.tokens, width}, 0.2, f_.folded ? 0.5 : -0.5);
    if (!f_.folded) return;
    problem_.dt_bias = input(6, "dt_bias", {width}, 0.3);
    problem_.decay_scale = input(7, "neg_exp_A", {width}, 0.1, -0.7);
  }

  void add_beta() {
    problem_.beta = input(5, "beta", {kBatch, f_.tokens, f_.shared_beta ? 1 : f_.kv_heads}, 0.15,
                          f_.folded ? 0.25 : 0.5);
  }

  void expect() {
    const reference::LinearAttentionResult result = run(problem_);
    case_.expect(0, result.output, f_.v_size,
                 bounds_of(f_.type, result.output, f_.v_size, result.output_size));
    case_.expect(1, result.present, f_.v_size,
                 bounds_of(f_.state, result.present, f_.v_size, result.present_size));
  }

  const Form& f_;
  test::Random random_;
  GoldenCase case_;
  reference::LinearAttention problem_;
};

}  // namespace

void add_linear(std::vector<GoldenCase>& cases) {
  constexpr Type f32 = Type::kFloat32, f16 = Type::kFloat16, bf16 = Type::kBfloat16;
  const std::vector<Form> forms = {
      {.name = "linear_plain",
       .about = "no gates, no past",
       .type = f32,
       .rule = "linear",
       .past = false},
      {.name = "linear_gated",
       .about = "a decay for each key channel",
       .type = f16,
       .state = f16,
       .rule = "gated",
       .per_key = true},
      {.name = "linear_delta",
       .about = "one rate for all heads",
       .type = bf16,
       .state = bf16,
       .rule = "delta",
       .shared_beta = true},
      {.name = "linear_gated_delta_float32",
       .about = "the state in place",
       .type = f32,
       .in_place = true},
      {.name = "linear_gated_delta_float16",
       .about = "a float32 state, one token",
       .type = f16,
       .tokens = 1,
       .in_place = true},
      {.name = "linear_gated_delta_bfloat16",
       .about = "a float32 state",
       .type = bf16,
       .plan = true},
      {.name = "linear_folded_gates",
       .about = "sigmoid and softplus inside the operator",
       .type = f32,
       .folded = true},
      {.name = "linear_inverse_groups",
       .about = "more states than query heads, shared keys",
       .type = f32,
       .q_heads = 2,
       .key_heads = 1,
       .kv_heads = 4,
       .scale = -0.5},
      {.name = "linear_standard_float32", .about = "ai.onnx 27", .type = f32, .standard = true},
      {.name = "linear_standard_float16",
       .about = "ai.onnx 27, a bfloat16 state",
       .type = f16,
       .state = bf16,
       .standard = true,
       .per_key = true},
      {.name = "linear_strided",
       .about = "gaps between rows, bytes in front",
       .type = f32,
       .tokens = 70,
       .size = 4,
       .v_size = 4,
       .strided = true},
      {.name = "linear_standard_bfloat16",
       .about = "ai.onnx 27, a state of its own type",
       .type = bf16,
       .state = bf16,
       .standard = true},
  };
  uint64_t seed = 400;
  for (const Form& form : forms) cases.push_back(Builder(form, ++seed).build());
}

}  // namespace attn::golden
