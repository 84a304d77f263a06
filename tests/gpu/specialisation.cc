#include "gpu/specialisation.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace attn::gpu {
namespace {

using matrix::Breach;
using matrix::GqaOutline;
using matrix::Step;
using test::Random;
using test::Type;

constexpr Type kF16 = Type::kFloat16, kBf16 = Type::kBfloat16, kF32 = Type::kFloat32;

// type, D, bias, sink, smooth, softcap, log-sum-exp, transform, negative scale
constexpr Specialisation kTable[] = {
    {kBf16, 128, false, false, false, false, false, true, false},
    {kBf16, 128, false, false, false, false, false, false, false},
    {kBf16, 64, true, false, false, true, true, true, false},
    {kBf16, 192, false, false, false, false, false, false, false},
    {kBf16, 256, false, false, false, false, true, true, false},
    {kBf16, 128, false, true, false, false, false, true, false},
    {kBf16, 72, false, false, true, false, false, false, false},
    {kF16, 64, false, false, false, false, false, true, false},
    {kF16, 128, false, false, false, false, true, true, false},
    {kF16, 128, true, false, false, false, false, false, false},
    {kF16, 256, false, false, false, true, false, false, false},
    {kF16, 80, false, false, true, false, true, false, true},

    {kF32, 64, false, false, false, false, false, true, false},
    {kF32, 128, true, false, false, false, true, false, false},
    {kF32, 96, false, true, false, false, false, true, false},
    {kF32, 256, false, false, false, true, false, false, false},
    {kF32, 80, false, false, true, false, true, true, true},
    {kF32, 20, true, true, false, false, false, false, false},
    {kF32, 128, false, false, false, false, false, false, false},
};

double cost_of(const GqaOutline& o) {
  return static_cast<double>(o.batch * o.heads * o.rows) *
         static_cast<double>(std::max(o.longest(), o.bound) * o.size);
}

void apply_transform(const Specialisation& spec, GqaOutline& o, Random& random) {
  const bool had_positions = o.positions;
  o.rotary = o.norm = o.positions = false;
  if (spec.transform) {
    o.norm = o.step == Step::kFreeKeys || random.chance(0.2);
    o.rotary = o.step != Step::kFreeKeys && (!o.norm || random.chance(0.6));
  }
  if (o.rotary) {
    o.ignored_rotary = false;
    o.positions = had_positions || random.chance(0.25);
  }
  if (o.rotary || o.ignored_rotary) {
    o.rotary_width = o.size / 2 * 2;
    if (random.chance(0.4)) o.rotary_width = 2 * random.between(1, o.size / 2);
    o.interleaved = random.chance(0.4);
    o.table_type = random.chance(0.5) ? o.type : Type::kFloat32;
  }
}

void apply(const Specialisation& spec, GqaOutline& o, Random& random) {
  o.type = spec.type;
  o.size = spec.size;
  o.bias = spec.bias;
  o.sink = spec.sink;
  if (spec.smooth) {
    o.smooth = 1;
  } else if (!spec.sink && o.smooth == 1) {
    o.smooth = 0;
  }
  if (spec.softcap != (o.softcap > 0)) o.softcap = spec.softcap ? random.pick({5.0, 30.0}) : 0;
  o.log_sum_exp = spec.log_sum_exp;
  o.qk_output = 0;
  if (spec.negative_scale) {
    o.scale = -(o.scale == 0 ? 0.11 : std::fabs(o.scale));
  } else {
    o.scale = std::fabs(o.scale);
  }
  apply_transform(spec, o, random);
  if (o.breach == Breach::kPosition && !(o.rotary && o.positions)) o.breach = Breach::kBeyondBound;
}

bool fits_wish(const GqaOutline& o, Wish wish) {
  if (wish == Wish::kManyRows) return o.rows >= 32;
  return wish != Wish::kFewRows || (o.rows <= 8 && o.rows * (o.heads / o.kv_heads) <= 64);
}

}  // namespace

std::span<const Specialisation> specialisations() { return kTable; }

std::string text_of(const Specialisation& spec) {
  std::ostringstream text;
  text << test::name_of(spec.type) << " D " << spec.size;
  const struct {
    bool is;
    const char* name;
  } features[] = {{spec.bias, "bias"},
                  {spec.sink, "sink"},
                  {spec.smooth, "smooth"},
                  {spec.softcap, "softcap"},
                  {spec.log_sum_exp, "lse"},
                  {spec.transform, "transform"},
                  {spec.negative_scale, "negative scale"}};
  for (const auto& feature : features) {
    if (feature.is) text << ", " << feature.name;
  }
  return text.str();
}

bool serves(const std::string& engine, const Specialisation& spec) {
  if (engine == "generic" || engine == "split-decode") return true;
  return (engine == "float32-prefill") == (spec.type == Type::kFloat32);
}

GqaOutline draw_inside(const Specialisation& spec, uint64_t seed, Wish wish) {
  Random random(test::derive_seed(seed, 77));
  matrix::DrawOptions options;
  options.model_heads_only = true;
  options.decode_only = wish == Wish::kFewRows && random.chance(0.7);
  // The cost was drawn for another head size, so some draws are too large; most small ones are not.
  const double limit = random.chance(0.02) ? 2e8 : 6e6;
  for (uint64_t attempt = 0;; ++attempt) {
    Random drawn(test::derive_seed(seed, attempt));
    GqaOutline o = matrix::draw_outline(seed, options, drawn);
    apply(spec, o, drawn);
    if (cost_of(o) > limit || !fits_wish(o, wish)) continue;
    if (wish != Wish::kAny) {
      o.inner_steps = false;
      o.strided = o.strided && random.chance(0.3);
      // Without a present buffer old and new keys lie apart, which one engine alone reads.
      for (matrix::CacheOutline* cache : {&o.key, &o.value}) {
        if (!o.past || cache->present.bound) continue;
        cache->present.bound = true;
        cache->present.rows =
            std::max<int64_t>({cache->past_rows, o.longest(), o.new_rows, int64_t{1}});
        cache->present.in_place = cache->past_rows == cache->present.rows;
      }
    }
    return o;
  }
}

}  // namespace attn::gpu
