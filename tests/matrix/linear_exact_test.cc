// LinearAttention over many tokens, cut into calls, and what must not change a bit: folding gates,
// the number of threads, the run. Every case is also compared with the reference by run_case.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "matrix/linear_case.h"
#include "matrix/run.h"
#include "support/compare.h"

namespace attn::matrix {
namespace {

using namespace linear;
using test::Random;
using test::View;

// The engines that take a problem: decays of key channels have no chunks.
std::vector<std::string> engines_of(const LinearOutline& o) {
  if (o.gated && o.decay_per_key) return {"recurrent", "recurrent-serial"};
  return {"chunked", "recurrent", "recurrent-serial"};
}
constexpr Type kTypes[] = {Type::kFloat32, Type::kFloat16, Type::kBfloat16};

LinearOutline small_outline(Type type) {
  LinearOutline o;
  o.seed = 3;
  o.type = type;
  o.state_type = Type::kFloat32;
  o.tokens = 24;
  o.q_heads = o.key_heads = o.kv_heads = 2;
  o.head_size = 24;
  o.v_head_size = 40;
  o.past = true;
  return o;
}

LinearCase make(const LinearOutline& outline, uint64_t seed = 5) {
  Random random(seed);
  LinearCase c = build_linear_case(outline, random);
  c.wide_range = false;
  return c;
}

void expect_passed(LinearCase& c, Device& device, const std::string& engine) {
  const RunResult result = run_case(c, device, engine);
  EXPECT_EQ(result.verdict, Verdict::kPassed)
      << engine << ": " << result.text << "\n  " << c.text();
}

std::vector<std::vector<unsigned char>> bytes_of(const LinearCase& c) {
  std::vector<std::vector<unsigned char>> bytes;
  for (const test::Buffer* buffer : c.results()) {
    bytes.emplace_back(buffer->data(), buffer->data() + buffer->size());
  }
  return bytes;
}

// Copies tokens [first, first + count) of a (B, T, ...) input.
void copy_tokens(const View& from, int64_t first, const View& to) {
  for (int64_t b = 0; b < to.dim(0); ++b) {
    for (int64_t t = 0; t < to.dim(1); ++t) {
      for (int64_t c = 0; c < to.dim(2); ++c) to.set({b, t, c}, from.at({b, first + t, c}));
    }
  }
}

void copy_all(const View& from, const View& to) {
  for (int64_t k = 0; k < to.elements(); ++k) to.set_linear(k, from.at_linear(k));
}

TEST(LinearExact, FoldingChangesNoBit) {
  Device device = make_device({});
  for (const Type type : kTypes) {
    for (const bool per_key : {false, true}) {
      for (const bool fold_exp : {false, true}) {
        LinearOutline o = small_outline(type);
        o.decay_per_key = per_key;
        o.fold_beta = o.fold_decay = true;
        o.fold_exp = fold_exp;
        LinearCase folded = make(o);
        o.fold_beta = o.fold_decay = o.fold_exp = false;
        LinearCase apart = make(o);
        for (const Input slot : {kQuery, kKey, kValue, kPastState}) {
          copy_all(folded.in[slot].view(), apart.in[slot].view());
        }
        const std::vector<double> decay = reference::folded_decay(folded.problem);
        const std::vector<double> beta = reference::folded_beta(folded.problem);
        for (size_t k = 0; k < decay.size(); ++k) {
          apart.in[kDecay].view().set_linear(static_cast<int64_t>(k), decay[k]);
        }
        for (size_t k = 0; k < beta.size(); ++k) {
          apart.in[kBeta].view().set_linear(static_cast<int64_t>(k), beta[k]);
        }
        apart.renew();
        for (const std::string& engine : engines_of(o)) {
          expect_passed(folded, device, engine);
          expect_passed(apart, device, engine);
          EXPECT_EQ(bytes_of(folded), bytes_of(apart)) << engine << " " << folded.text();
        }
      }
    }
  }
}

TEST(LinearExact, ManyTokens) {
  Device device = make_device({});
  for (const Type type : kTypes) {
    for (const DecayKind decays : {DecayKind::kWeak, DecayKind::kSteady, DecayKind::kOrdinary}) {
      for (const bool per_key : {false, true}) {
        LinearOutline o = small_outline(type);
        o.tokens = 4096;
        o.head_size = o.v_head_size = 16;
        o.kv_heads = o.key_heads = 1;
        o.decays = decays;
        o.decay_per_key = per_key;
        LinearCase c = make(o);
        for (const std::string& engine : engines_of(o)) expect_passed(c, device, engine);
      }
    }
    for (const bool gated : {false, true}) {  // without the delta rule
      LinearOutline o = small_outline(type);
      o.tokens = 4096;
      o.head_size = o.v_head_size = 16;
      o.delta = false;
      o.gated = gated;
      o.decays = DecayKind::kWeak;
      LinearCase c = make(o);
      for (const std::string& engine : engines_of(o)) expect_passed(c, device, engine);
    }
  }
}

// Equal keys, a rate of 1 and of 2 and no decay: what makes inverses of chunks useless.
TEST(LinearExact, KeysThatAreEqual) {
  Device device = make_device({});
  for (const Type type : kTypes) {
    for (const double beta : {0.999, 1.0, 2.0}) {
      LinearOutline o = small_outline(type);
      o.tokens = 1000;
      o.keys = KeyKind::kEqual;
      o.beta = beta;
      o.decays = DecayKind::kWeak;
      LinearCase c = make(o);
      for (const std::string& engine : engines_of(o)) expect_passed(c, device, engine);
    }
  }
}

TEST(LinearExact, EveryNumberOfTokens) {
  Device device = make_device({});
  for (int64_t tokens = 0; tokens <= 130; ++tokens) {
    LinearOutline o = small_outline(kTypes[tokens % 3]);
    o.tokens = tokens;
    o.decay_per_key = tokens % 2 == 1;
    o.seed = static_cast<uint64_t>(tokens);
    LinearCase c = make(o);
    for (const std::string& engine : engines_of(o)) expect_passed(c, device, engine);
  }
}

// One call of 24 tokens and calls of fewer, the state handed on in float32.
TEST(LinearExact, CallsThatAreCut) {
  Device device = make_device({});
  for (const Type type : kTypes) {
    for (const std::string& engine : engines_of(small_outline(type))) {
      for (const int64_t step : {1, 5, 12}) {
        LinearCase whole = make(small_outline(type));
        expect_passed(whole, device, engine);
        test::ErrorMeter meter(type);
        std::vector<double> state = test::values_of(whole.in[kPastState].view());
        for (int64_t first = 0; first < whole.outline.tokens; first += step) {
          LinearOutline o = whole.outline;
          o.tokens = std::min(step, whole.outline.tokens - first);
          LinearCase part = make(o);
          for (const Input slot : {kQuery, kKey, kValue, kDecay, kBeta}) {
            copy_tokens(whole.in[slot].view(), first, part.in[slot].view());
          }
          for (size_t k = 0; k < state.size(); ++k) {
            part.in[kPastState].view().set_linear(static_cast<int64_t>(k), state[k]);
          }
          part.renew();
          expect_passed(part, device, engine);
          state = test::values_of(part.out[kPresentState].view());
          std::vector<double> got, want;
          for (int64_t t = 0; t < o.tokens; ++t) {
            for (int64_t c = 0; c < o.kv_heads * o.v_head_size; ++c) {
              got.push_back(part.out[kOutput].view().at({0, t, c}));
              want.push_back(whole.out[kOutput].view().at({0, first + t, c}));
            }
          }
          meter.add(got, want);
        }
        meter.add(state, test::values_of(whole.out[kPresentState].view()));
        EXPECT_TRUE(meter.passed()) << engine << ", " << step << " tokens: " << meter.error();
      }
    }
  }
}

// One token alone takes a path of its own; the output is that of the same token before another one.
TEST(LinearExact, AStepIsTheFirstTokenOfALongerCall) {
  for (const std::string& level : test::simd_levels()) {
    if (level == "generic") continue;
    test::ContextOptions options;
    options.level = level;
    Device device = make_device(options);
    for (const Type type : kTypes) {
      for (const bool per_key : {false, true}) {
        for (const DecayKind decays : {DecayKind::kOrdinary, DecayKind::kStrong}) {
          LinearOutline o = small_outline(type);
          o.state_type = type;
          o.tokens = 2;
          o.q_heads = 4;  // two outputs of a state
          o.delta = decays == DecayKind::kOrdinary;
          o.decay_per_key = per_key;
          o.decays = decays;
          o.v_head_size = 43;
          o.head_size = 131;  // more than one part of a sum, and no whole groups of rows
          LinearCase both = make(o);
          o.tokens = 1;
          LinearCase step = make(o);
          for (const Input slot : {kQuery, kKey, kValue, kDecay, kBeta}) {
            if (!step.in[slot].bound()) continue;
            copy_tokens(both.in[slot].view(), 0, step.in[slot].view());
          }
          copy_all(both.in[kPastState].view(), step.in[kPastState].view());
          step.renew();
          expect_passed(both, device, "recurrent");
          expect_passed(step, device, "recurrent");
          for (int64_t c = 0; c < o.q_heads * o.v_head_size; ++c) {
            ASSERT_EQ(step.out[kOutput].view().at({0, 0, c}),
                      both.out[kOutput].view().at({0, 0, c}))
                << level << ", channel " << c << " of " << step.text();
          }
        }
      }
    }
  }
}

// Enough work for threads, and few enough states that columns are split among them.
TEST(LinearExact, ThreadsAndRunsGiveTheSameBits) {
  for (const std::string& level : test::simd_levels()) {
    for (const std::string& engine : engines_of(small_outline(Type::kFloat16))) {
      if (level == "generic" && engine != "recurrent-serial") continue;
      for (const int64_t tokens : {1, 80}) {
        LinearOutline o = small_outline(Type::kFloat16);
        o.tokens = tokens;
        o.kv_heads = 2;
        o.key_heads = 1;
        o.q_heads = 4;
        o.head_size = tokens == 1 ? 700 : 128;
        o.v_head_size = 200;
        LinearCase c = make(o);
        std::vector<std::vector<unsigned char>> first;
        for (const int threads : {1, 2, 3, 5, 5}) {
          test::ContextOptions options;
          options.threads = threads;
          options.level = level;
          Device device = make_device(options);
          expect_passed(c, device, engine);
          if (first.empty()) first = bytes_of(c);
          EXPECT_EQ(bytes_of(c), first)
              << engine << " at " << level << ", " << tokens << " tokens, " << threads;
        }
      }
    }
  }
}

// States that share keys and queries are carried together where there are enough of them for the
// threads, and apart where not; columns that are no whole panel, several outputs of a state.
TEST(LinearExact, ChunksOfSharedStates) {
  for (const std::string& level : test::simd_levels()) {
    if (level == "generic") continue;
    for (const Type type : kTypes) {
      for (const int64_t queries : {1, 24}) {
        LinearOutline o = small_outline(type);
        o.tokens = 150;
        o.key_heads = 2;
        o.q_heads = queries;
        o.kv_heads = 12;
        o.head_size = 67;
        o.v_head_size = 83;
        o.decays = DecayKind::kMixed;
        LinearCase c = make(o);
        std::vector<std::vector<unsigned char>> first;
        for (const int threads : {1, 7}) {
          test::ContextOptions options;
          options.threads = threads;
          options.level = level;
          Device device = make_device(options);
          expect_passed(c, device, "chunked");
          if (first.empty()) first = bytes_of(c);
          EXPECT_EQ(bytes_of(c), first) << level << ", " << threads << " threads: " << c.text();
        }
      }
    }
  }
}

// What the fast engines have to take at every level: an engine that refuses everything would pass
// the rest.
TEST(LinearAcceptance, FastEnginesTakeTheList) {
  for (const std::string& level : test::simd_levels()) {
    if (level == "generic") continue;
    test::ContextOptions options;
    options.level = level;
    Device device = make_device(options);
    for (const Type type : kTypes) {
      for (const int64_t size : {64, 80, 128, 192, 256}) {
        for (const bool gated : {false, true}) {
          for (const bool delta : {false, true}) {
            LinearOutline o = small_outline(type);
            o.gated = gated;
            o.delta = delta;
            o.head_size = size;
            o.v_head_size = 64;
            o.tokens = 33;
            o.q_heads = 1;
            o.kv_heads = 2;
            LinearCase c = make(o);
            for (const char* engine : {"chunked", "recurrent"}) expect_passed(c, device, engine);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace attn::matrix
