#include "matrix/gqa_outline.h"

#include <algorithm>
#include <cmath>

namespace attn::matrix {
namespace {

int64_t log_uniform(Random& random, int64_t low, int64_t high) {
  const double span = std::log(static_cast<double>(high + 1)) - std::log(static_cast<double>(low));
  const double value = static_cast<double>(low) * std::exp(span * random.uniform());
  return std::clamp(static_cast<int64_t>(value), low, high);
}

void draw_heads(GqaOutline& o, const DrawOptions& options, Random& random) {
  struct Heads {
    int64_t q, kv;
  };
  const Heads heads = random.pick<Heads>({{1, 1},
                                          {2, 1},
                                          {2, 2},
                                          {3, 1},
                                          {4, 2},
                                          {4, 4},
                                          {5, 5},
                                          {6, 1},
                                          {8, 1},
                                          {8, 2},
                                          {8, 8},
                                          {9, 3},
                                          {12, 2},
                                          {14, 2},
                                          {16, 2},
                                          {32, 8}});
  o.heads = heads.q;
  o.kv_heads = heads.kv;
  const double which = random.uniform();
  if (which < 0.7 || options.model_heads_only) {
    o.size = random.pick<int64_t>({64, 80, 96, 128, 192, 256});
  } else if (which < 0.9) {
    o.size = random.pick<int64_t>({1, 2, 3, 4, 7, 8, 16, 24, 32, 40, 48, 56, 72, 112, 120, 160});
  } else {
    o.size = log_uniform(random, 1, 1024);
  }
}

Step draw_step(const DrawOptions& options, Random& random) {
  if (options.decode_only) return Step::kDecode;
  const double which = random.uniform();
  if (which < 0.25) return Step::kPrompt;
  if (which < 0.66) return Step::kDecode;
  if (which < 0.87) return Step::kChunk;
  if (which < 0.93) return Step::kSharedCache;
  if (which < 0.985) return Step::kFreeKeys;
  return Step::kNothing;
}

// Rows and the longest total that the cost allows.
void draw_lengths(GqaOutline& o, const DrawOptions& options, Random& random) {
  const double large = random.uniform();
  // Rare large problems take most of the time: many small ones find more.
  int64_t cost = large < 0.94 ? 1500000 : large < 0.995 ? 12000000 : 150000000;
  if (options.cost_limit > 0) cost = std::min(cost, options.cost_limit);
  const double reach = random.uniform();
  int64_t longest = reach < 0.6 ? 80 : reach < 0.9 ? 400 : reach < 0.97 ? 1400 : 4200;
  o.batch = random.pick<int64_t>({1, 1, 1, 2, 2, 3, 4, 5, 8});
  o.rows = 1;
  if (o.step == Step::kPrompt) o.rows = log_uniform(random, 1, longest);
  if (o.step == Step::kChunk) {
    o.rows = log_uniform(random, 2, random.chance(0.4) ? 4 : std::min<int64_t>(longest, 200));
  }
  if (o.step == Step::kSharedCache || o.step == Step::kFreeKeys) o.rows = random.between(1, 12);
  const auto product = [&] {
    return static_cast<double>(o.batch * o.heads * o.rows) * static_cast<double>(longest * o.size);
  };
  // A prompt's keys are its rows; other steps shorten either.
  const bool prompt = o.step == Step::kPrompt;
  while (product() > static_cast<double>(cost)) {
    if (o.batch > 1) {
      o.batch = (o.batch + 1) / 2;
    } else if (o.rows > (prompt ? 12 : 24)) {
      o.rows = o.rows * 3 / 4;
    } else if (!prompt && longest > 12) {
      longest = longest * 3 / 4;
    } else if (o.heads > o.kv_heads && o.heads > 6) {
      o.heads = o.kv_heads;
    } else {
      break;
    }
    if (prompt) longest = o.rows;
  }
  longest = std::max(longest, o.rows);
  o.new_rows = o.rows;
  if (o.step == Step::kSharedCache) o.new_rows = 0;
  if (o.step == Step::kFreeKeys) o.new_rows = log_uniform(random, 1, longest + 1) - 1;
  if (o.step == Step::kNothing) {
    if (random.chance(0.5))
      o.batch = 0;
    else
      o.rows = o.new_rows = 0;
  }
  const int64_t least = std::max({o.rows, o.new_rows, int64_t{1}});
  for (int64_t b = 0; b < o.batch; ++b) {
    int64_t total = log_uniform(random, least, std::max(least, longest));
    if (random.chance(0.3)) total = std::max(least, longest);
    if (o.step == Step::kPrompt) total = o.rows;
    if (o.step == Step::kFreeKeys && random.chance(0.4)) total = least;
    o.totals.push_back(total);
  }
  if (o.step == Step::kPrompt && random.chance(0.45)) {
    for (int64_t& total : o.totals) total = random.between(1, o.rows);
  }
  if (o.batch > 0 && random.chance(o.batch > 1 ? 0.15 : 0.03)) {
    o.empty_slots = true;
    for (int64_t& total : o.totals) {
      if (random.chance(0.35)) total = 0;
    }
  }
  o.bound = o.step == Step::kPrompt ? o.rows : o.longest();
  if (o.step != Step::kPrompt && random.chance(0.4)) o.bound += random.between(1, 40);
}

int64_t draw_slack(Random& random) {
  if (random.chance(0.4)) return 0;
  return random.chance(0.7) ? random.between(1, 7) : random.between(8, 70);
}

void draw_caches(GqaOutline& o, Random& random) {
  int64_t longest_past = 0;
  for (int64_t b = 0; b < o.batch; ++b) longest_past = std::max(longest_past, o.past_of(b));
  o.past = longest_past > 0 || random.chance(0.4);
  // Without a past, N = 0 would be an absent key.
  if (o.new_rows == 0 && o.rows > 0) o.past = true;
  const bool in_place = random.chance(0.6);  // both alike, mostly
  for (CacheOutline* cache : {&o.key, &o.value}) {
    cache->present.bound = random.chance(o.past ? 0.9 : 0.7);
    const int64_t needed = o.longest();
    cache->present.rows = std::max<int64_t>(needed + draw_slack(random), 1);
    if (needed < o.new_rows && o.first_prompt() && random.chance(0.8)) {
      cache->present.rows = std::max(cache->present.rows, o.new_rows);
    }
    if (!o.past) continue;
    cache->past_rows = longest_past + draw_slack(random);
    cache->present.in_place = cache->present.bound && (random.chance(0.2) ? !in_place : in_place);
    if (!cache->present.in_place) continue;
    // The past is the whole buffer, or a view of its first rows.
    cache->past_rows = cache->present.rows;
    if (random.chance(0.25)) cache->past_rows = random.between(longest_past, cache->past_rows);
    cache->past_rows = std::max<int64_t>(cache->past_rows, 1);
  }
}

void draw_transform(GqaOutline& o, Random& random) {
  const bool possible = o.size >= 2 && o.step != Step::kFreeKeys;
  o.rotary = possible && random.chance(0.5);
  o.ignored_rotary = !o.rotary && o.size >= 2 && random.chance(0.08);
  if (o.rotary || o.ignored_rotary) {
    o.rotary_width = o.size / 2 * 2;
    if (random.chance(0.4)) o.rotary_width = 2 * random.between(1, o.size / 2);
    o.interleaved = random.chance(0.4);
    o.table_type = random.chance(0.5) ? o.type : Type::kFloat32;
    o.positions = random.chance(0.4);
  }
  o.norm = random.chance(0.15);
  if (o.norm && random.chance(0.5)) o.epsilon = random.pick({1e-5, 1e-3});
}

void draw_options(GqaOutline& o, Random& random) {
  if (random.chance(0.1)) o.causal = false;
  if (o.causal && random.chance(0.25)) {
    o.window = random.pick<int64_t>({1, 2, 3, 5, 17, 64, o.longest() / 3 + 1, o.longest() + 3});
  }
  if (random.chance(0.15)) o.softcap = random.pick({0.7, 5.0, 20.0, 50.0});
  if (random.chance(0.3)) o.scale = std::exp(random.uniform() * 4 - 3.5);
  if (o.scale != 0 && random.chance(0.25)) o.scale = -o.scale;
  o.bias = random.chance(0.25);
  o.bias_batch = random.chance(0.5);
  o.bias_head = random.chance(0.5);
  o.bias_row = random.chance(0.8);
  if (random.chance(0.35)) o.bias_extra = random.between(1, 20);
  o.sink = random.chance(0.15);
  o.smooth = random.chance(0.1) ? 1 : random.pick<int64_t>({-1, 0});
  if (random.chance(0.09)) o.qk_output = random.between(1, 2);
  o.log_sum_exp = random.chance(0.3);
  o.packed = o.new_rows == o.rows && random.chance(0.3);
  o.strided = random.chance(0.45);
  o.inner_steps = o.strided && random.chance(0.25);
  o.spread = random.pick({1.0, 1.0, 3.0, 6.0});
}

void draw_breach(GqaOutline& o, Random& random) {
  if (o.batch == 0 || o.rows == 0 || !random.chance(0.05)) return;
  o.breach = random.pick({Breach::kNegativeLength, Breach::kHugeLength, Breach::kBeyondBound,
                          Breach::kBeyondPresent, Breach::kBeyondPast, Breach::kShorterThanNew,
                          Breach::kPosition});
  if (o.breach == Breach::kPosition && !(o.rotary && o.positions)) o.breach = Breach::kBeyondBound;
}

}  // namespace

int64_t GqaOutline::longest() const {
  int64_t longest = 0;
  for (int64_t total : totals) longest = std::max(longest, total);
  return longest;
}

int64_t GqaOutline::past_of(int64_t b) const {
  const int64_t total = totals[static_cast<size_t>(b)];
  return total == 0 || first_prompt() ? 0 : total - new_rows;
}

int64_t GqaOutline::start_of(int64_t b) const {
  const int64_t total = totals[static_cast<size_t>(b)];
  return total == 0 || first_prompt() ? 0 : total - rows;
}

GqaOutline draw_outline(uint64_t seed, const DrawOptions& options, Random& random) {
  GqaOutline o;
  o.seed = seed;
  const double type = random.uniform();
  o.type = type < 0.4 ? Type::kFloat32 : type < 0.7 ? Type::kFloat16 : Type::kBfloat16;
  draw_heads(o, options, random);
  o.step = draw_step(options, random);
  draw_lengths(o, options, random);
  draw_caches(o, random);
  draw_transform(o, random);
  draw_options(o, random);
  draw_breach(o, random);
  return o;
}

}  // namespace attn::matrix
