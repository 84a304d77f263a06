// Equal bits: fused and unfused, run after run, and whatever the strides are.
#include <gtest/gtest.h>

#include <cstring>

#include "gpu/run.h"
#include "gpu/step.h"

namespace attn::gpu {
namespace {

using matrix::GqaCase;
using matrix::GqaOutline;
using test::Type;
using test::View;

class GpuBits : public GpuTest {};

void copy_bits(const View& from, std::initializer_list<int64_t> at, const View& to,
               std::initializer_list<int64_t> target) {
  std::memcpy(to.address({target.begin(), target.size()}), from.address({at.begin(), at.size()}),
              static_cast<size_t>(test::size_of(from.type)));
}

// A case that keeps its buffers as they were drawn.
GqaCase build(const GqaOutline& outline, uint64_t seed) {
  test::Random random(seed);
  GqaCase c = matrix::build_case(outline, random, false);
  c.through_binding = c.own_workspace = c.wide_range = false;
  return c;
}

GqaOutline step_outline(Type type, int64_t rows, bool norm, bool interleaved, bool positions) {
  StepShape shape;
  shape.type = type;
  shape.size = type == Type::kBfloat16 ? 128 : 64;
  shape.rows = rows;
  shape.capacity = 90;
  shape.norm = norm;
  GqaOutline o = outline_of(shape);
  o.interleaved = interleaved;
  o.positions = positions;
  o.table_type = type;
  o.totals = {90, 71, 78};
  return o;
}

// Runs a case and checks it; its host buffers then hold what the device left.
void run_checked(Lane& lane, GqaCase& c, const std::string& engine) {
  c.renew();
  const RunResult result = run_case(lane, c, {}, engine);
  ASSERT_EQ(result.verdict, Verdict::kPassed) << result.text;
}

// The rows of `tokens` (B, S, H D) after norm and rotary embedding, as the library stores them in a
// cache: (B, H, S, D). A call without a past whose keys they are.
GqaCase transformed(Lane& lane, const GqaCase& fused, matrix::Input tokens, int64_t heads) {
  GqaOutline o = fused.outline;
  o.heads = o.kv_heads = heads;
  o.past = false;
  o.step = matrix::Step::kPrompt;
  o.positions = o.rotary;
  o.totals.assign(static_cast<size_t>(o.batch), o.rows);
  o.bound = o.rows;
  for (matrix::CacheOutline* cache : {&o.key, &o.value}) {
    cache->past_rows = 0;
    cache->present = {true, o.rows, false};
  }
  GqaCase c = build(o, 51);
  const View& from = fused.in[tokens].view();
  for (matrix::Input slot : {matrix::kQuery, matrix::kKey, matrix::kValue}) {
    for (int64_t k = 0; k < from.elements(); ++k) {
      std::memcpy(c.in[slot].view().address_of(k), from.address_of(k),
                  static_cast<size_t>(test::size_of(from.type)));
    }
  }
  if (o.rotary) {
    for (uint32_t slot : {matrix::kCosCache, matrix::kSinCache}) {
      c.in[slot] = test::Tensor(o.table_type, fused.in[slot].view().shape);
      std::memcpy(c.in[slot].buffer().data(), fused.in[slot].buffer().data(),
                  static_cast<size_t>(fused.in[slot].buffer().size()));
    }
    const View& positions = c.in[matrix::kPositionIds].view();
    for (int64_t b = 0; b < o.batch; ++b) {
      for (int64_t i = 0; i < o.rows; ++i) {
        const View& given = fused.in[matrix::kPositionIds].view();
        positions.set({b, i}, given.bound ? given.at({b, i})
                                          : static_cast<double>(fused.outline.start_of(b) + i));
      }
    }
    c.problem.cos_cache = c.in[matrix::kCosCache].view();
    c.problem.sin_cache = c.in[matrix::kSinCache].view();
  }
  if (o.norm) {
    const uint32_t weight = tokens == matrix::kQuery ? matrix::kQNormWeight : matrix::kKNormWeight;
    for (uint32_t slot : {matrix::kQNormWeight, matrix::kKNormWeight}) {
      std::memcpy(c.in[slot].buffer().data(), fused.in[weight].buffer().data(),
                  static_cast<size_t>(fused.in[weight].buffer().size()));
    }
  }
  run_checked(lane, c, "generic");
  return c;
}

// The same step with tokens that are transformed already. `append`: the call appends them; else
// they lie in the cache before it, and nothing is new.
GqaCase unfused(const GqaCase& fused, const GqaCase& queries, const GqaCase& keys, bool append) {
  GqaOutline o = fused.outline;
  o.rotary = o.norm = o.positions = false;
  o.rotary_width = 0;
  if (!append) {
    o.new_rows = 0;
    o.step = matrix::Step::kSharedCache;
  }
  GqaCase c = build(o, 52);
  const View& query = c.in[matrix::kQuery].view();
  for (int64_t b = 0; b < o.batch; ++b) {
    for (int64_t i = 0; i < o.rows; ++i) {
      for (int64_t d = 0; d < o.size; ++d) {
        for (int64_t h = 0; h < o.heads; ++h) {
          copy_bits(queries.out[matrix::kPresentKey].view(), {b, h, i, d}, query,
                    {b, i, h * o.size + d});
        }
        for (int64_t h = 0; append && h < o.kv_heads; ++h) {
          copy_bits(keys.out[matrix::kPresentKey].view(), {b, h, i, d}, c.in[matrix::kKey].view(),
                    {b, i, h * o.size + d});
          copy_bits(fused.in[matrix::kValue].view(), {b, i, h * o.size + d},
                    c.in[matrix::kValue].view(), {b, i, h * o.size + d});
        }
      }
    }
  }
  for (uint32_t slot : {matrix::kPastKey, matrix::kPastValue}) {
    const View& cache = c.in[slot].view();
    std::memcpy(c.in[slot].buffer().data(), fused.in[slot].buffer().remembered().data(),
                static_cast<size_t>(c.in[slot].buffer().size()));
    for (int64_t b = 0; !append && b < o.batch; ++b) {
      for (int64_t h = 0; h < o.kv_heads; ++h) {
        for (int64_t i = 0; i < o.rows; ++i) {
          for (int64_t d = 0; d < o.size; ++d) {
            const int64_t row = fused.outline.past_of(b) + i;
            if (slot == matrix::kPastKey) {
              copy_bits(keys.out[matrix::kPresentKey].view(), {b, h, i, d}, cache, {b, h, row, d});
            } else {
              copy_bits(fused.in[matrix::kValue].view(), {b, i, h * o.size + d}, cache,
                        {b, h, row, d});
            }
          }
        }
      }
    }
  }
  return c;
}

std::vector<unsigned char> bytes_of(const test::Tensor& tensor) {
  return {tensor.buffer().data(), tensor.buffer().data() + tensor.buffer().size()};
}

TEST_F(GpuBits, FusedStepsEqualTheUnfusedChain) {
  const Gpu& gpu = Gpu::first();
  Lane lane(gpu);
  struct Form {
    bool norm, interleaved, positions;
  };
  for (Type type : {Type::kBfloat16, Type::kFloat16, Type::kFloat32}) {
    for (int64_t rows : {1, 3, 40}) {
      for (const Form& form : {Form{false, false, false}, Form{false, true, false},
                               Form{true, false, false}, Form{false, false, true}}) {
        GqaCase fused =
            build(step_outline(type, rows, form.norm, form.interleaved, form.positions), 50);
        for (const char* engine : kEngines) {
          const std::string what = test::name_of(type) + ", " + std::to_string(rows) + " rows, " +
                                   engine + (form.norm ? ", norm" : "") +
                                   (form.interleaved ? ", interleaved" : "") +
                                   (form.positions ? ", positions" : "");
          fused.restore();
          fused.renew();
          const RunResult result = run_case(lane, fused, {}, engine);
          if (result.verdict == Verdict::kRefused) continue;
          ASSERT_EQ(result.verdict, Verdict::kPassed) << what << "\n" << result.text;
          const std::vector<unsigned char> output = bytes_of(fused.out[matrix::kOutput]);
          const std::vector<unsigned char> keys_after = bytes_of(fused.in[matrix::kPastKey]);
          const std::vector<unsigned char> values_after = bytes_of(fused.in[matrix::kPastValue]);
          const GqaCase queries = transformed(lane, fused, matrix::kQuery, fused.outline.heads);
          const GqaCase keys = transformed(lane, fused, matrix::kKey, fused.outline.kv_heads);
          for (bool append : {true, false}) {
            GqaCase plain = unfused(fused, queries, keys, append);
            run_checked(lane, plain, engine);
            const std::string which = what + (append ? ", appended" : ", appended before");
            EXPECT_EQ(bytes_of(plain.out[matrix::kOutput]) == output, true) << which << ": output";
            EXPECT_EQ(bytes_of(plain.in[matrix::kPastKey]) == keys_after, true)
                << which << ": keys";
            EXPECT_EQ(bytes_of(plain.in[matrix::kPastValue]) == values_after, true)
                << which << ": values";
          }
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST_F(GpuBits, RunAfterRun) {
  const Gpu& gpu = Gpu::first();
  const Stream stream(gpu);
  for (const char* engine : kEngines) {
    for (Type type : {Type::kBfloat16, Type::kFloat32}) {
      for (int64_t rows : {1, 70}) {
        StepShape shape;
        shape.engine = engine;
        shape.type = type;
        shape.size = 64 + 64 * (type == Type::kBfloat16);
        shape.rows = rows;
        shape.capacity = 1500;
        std::unique_ptr<Step> step;
        try {
          step = std::make_unique<Step>(gpu, stream, shape, 60);
        } catch (const std::runtime_error&) {
          continue;  // not an engine for this type; the matrix counts what each one takes
        }
        const test::Handle<attn_session> session = make_session(gpu);
        std::vector<unsigned char> first;
        for (int run = 0; run < 20; ++run) {
          const test::Outcome outcome = step->launch(session.get());
          stream.wait();
          if (outcome.status == ATTN_UNSUPPORTED) break;
          ASSERT_TRUE(outcome.ok()) << outcome.message;
          std::vector<unsigned char> bytes = step->output();
          const std::vector<unsigned char> caches = step->caches();
          bytes.insert(bytes.end(), caches.begin(), caches.end());
          if (first.empty()) first = bytes;
          ASSERT_TRUE(bytes == first) << engine << ", " << test::name_of(type) << ", run " << run;
        }
      }
    }
  }
}

// The values in row-major order, whatever the strides; a strided problem and its plain twin.
TEST_F(GpuBits, StridesOffsetsAndStrideZeroGiveThePlainBits) {
  const Gpu& gpu = Gpu::first();
  Lane lane(gpu);
  int compared = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    StepShape shape;
    shape.type = seed % 2 ? Type::kBfloat16 : Type::kFloat32;
    shape.size = 64 + 64 * (shape.type == Type::kBfloat16);
    shape.rows = seed % 3 ? 1 : 33;
    shape.capacity = 80;
    GqaOutline o = outline_of(shape);
    GqaCase plain = build(o, seed);
    o.strided = true;
    o.inner_steps = seed % 4 == 0;
    GqaCase strided = build(o, seed + 1000);
    strided.describe_memory = seed % 5 < 2;
    // Where the strided case has stride 0 its values repeat, so they are the ones that count.
    matrix::transplant_inputs(plain, strided);
    matrix::transplant_inputs(strided, plain);
    run_checked(lane, plain, "generic");
    run_checked(lane, strided, "generic");
    if (HasFatalFailure()) return;
    for (uint32_t slot : {matrix::kOutput, matrix::kPresentKey, matrix::kPresentValue}) {
      const View& a = plain.target(slot).view();
      const View& b = strided.target(slot).view();
      ASSERT_TRUE(test::values_of(a) == test::values_of(b)) << "seed " << seed << ", slot " << slot;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 40);
}

// Copies sequence `b` of every tensor with a batch axis.
void copy_sequence(Step& from, int64_t b, Step& to, const Stream& stream) {
  for (uint32_t slot :
       {matrix::kQuery, matrix::kKey, matrix::kValue, matrix::kPastKey, matrix::kPastValue}) {
    const test::Tensor& target = to.problem().in[slot];
    const View& view = target.view();
    const int64_t size = view.elements();
    for (int64_t i = 0; i < size; ++i) {
      view.set_linear(i, from.problem().in[slot].view().at_linear(b * size + i));
    }
    to.mirror().upload(target, stream);
  }
}

// With ATTN_PREPARE_BATCH_INVARIANT a sequence alone gives the bits that it has among others.
TEST_F(GpuBits, ASequenceAloneGivesItsBitsOfTheBatch) {
  const Gpu& gpu = Gpu::first();
  const Stream stream(gpu);
  const test::Handle<attn_session> session = make_session(gpu);
  for (Type type : {Type::kBfloat16, Type::kFloat32}) {
    for (int64_t rows : {1, 5, 40}) {
      StepShape shape;
      shape.type = type;
      shape.batch = 40;  // alone, a sequence would be cut into other parts
      shape.rows = rows;
      shape.capacity = 700;
      shape.rotary = false;
      shape.prepare_flags = ATTN_PREPARE_BATCH_INVARIANT;
      StepShape alone = shape;
      alone.batch = 1;
      Step all(gpu, stream, shape, 71), one(gpu, stream, alone, 72);
      test::Random random(73);
      const std::vector<int64_t> totals = draw_totals(random, shape.batch, rows, shape.capacity);
      all.set_totals(totals);
      for (int64_t b : {0, 7, 39}) {
        copy_sequence(all, b, one, stream);
        one.set_totals({totals[static_cast<size_t>(b)]});
        one.run(session.get());
        all.run(session.get());
        const std::vector<unsigned char> want = one.output(), got = all.output();
        ASSERT_EQ(got.size(), 40 * want.size());
        EXPECT_EQ(std::memcmp(got.data() + static_cast<size_t>(b) * want.size(), want.data(),
                              want.size()),
                  0)
            << test::name_of(type) << ", " << rows << " rows, sequence " << b;
      }
    }
  }
}

}  // namespace
}  // namespace attn::gpu
