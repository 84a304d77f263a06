#include "gpu/step.h"

#include <cstring>
#include <limits>
#include <stdexcept>

namespace attn::gpu {
namespace {

constexpr uint64_t kPool = 16;
constexpr matrix::Input kTokens[] = {matrix::kQuery, matrix::kKey, matrix::kValue};
constexpr matrix::Input kCaches[] = {matrix::kPastKey, matrix::kPastValue};

matrix::GqaCase build(const StepShape& shape, uint64_t seed) {
  test::Random random(seed);
  matrix::GqaCase c = matrix::build_case(outline_of(shape), random, false);
  c.through_binding = c.own_workspace = c.wide_range = false;
  // The poison behind the past is of the length that it was built with; here it varies.
  for (matrix::Input slot : kCaches) test::fill_normal(c.in[slot].view(), random);
  c.renew();
  return c;
}

}  // namespace

matrix::GqaOutline outline_of(const StepShape& shape) {
  matrix::GqaOutline o;
  o.seed = 2;
  o.type = shape.type;
  o.step = shape.rows == 1 ? matrix::Step::kDecode : matrix::Step::kChunk;
  o.batch = shape.batch;
  o.rows = o.new_rows = shape.rows;
  o.heads = shape.heads;
  o.kv_heads = shape.kv_heads;
  o.size = shape.size;
  o.totals.assign(static_cast<size_t>(shape.batch), shape.capacity);
  o.bound = shape.capacity;
  o.past = true;
  for (matrix::CacheOutline* cache : {&o.key, &o.value}) {
    cache->present = {true, shape.capacity, true};
    cache->past_rows = shape.capacity;
  }
  o.rotary = shape.rotary;
  o.rotary_width = shape.rotary ? shape.size / 2 * 2 : 0;
  o.table_type = test::Type::kFloat32;
  o.norm = shape.norm;
  o.log_sum_exp = shape.log_sum_exp;
  o.window = shape.window;
  return o;
}

Step::Step(const Gpu& gpu, const Stream& stream, const StepShape& shape, uint64_t seed)
    : gpu_(gpu),
      stream_(stream),
      shape_(shape),
      seed_(seed),
      case_(build(shape, seed)),
      mirror_(std::make_unique<Mirror>(gpu, case_, shape.on_host)),
      inputs_(mirror_->inputs()),
      outputs_(mirror_->outputs()) {
  mirror_->upload(stream);
  test::Random random(test::derive_seed(seed, 4));
  for (uint64_t which = 0; which < kPool; ++which) {
    for (matrix::Input slot : kTokens) {
      test::fill_normal(case_.in[slot].view(), random);
      const test::Buffer& buffer = case_.in[slot].buffer();
      pool_.emplace_back(buffer.data(), buffer.data() + buffer.size());
    }
  }
  test::Outcome outcome = test::create_op(op_, gpu.context(), "com.microsoft",
                                          "GroupQueryAttention", 1, case_.attributes(), "step");
  if (!outcome.ok()) throw std::runtime_error("op_create: " + outcome.message);
  attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
  desc.engine = shape.engine.empty() ? nullptr : shape.engine.c_str();
  desc.flags = shape.prepare_flags;
  desc.inputs = inputs_.data();
  desc.input_count = inputs_.size();
  desc.outputs = outputs_.data();
  desc.output_count = outputs_.size();
  outcome = test::create(plan_, [&](attn_plan** plan, attn_error* error) {
    return attn_op_prepare(op_.get(), &desc, plan, error);
  });
  if (!outcome.ok()) throw std::runtime_error("op_prepare: " + outcome.message);
  set_tokens(0);
}

void Step::set_totals(const std::vector<int64_t>& totals) {
  const test::Tensor& lengths = case_.in[matrix::kSeqlensK];
  for (size_t b = 0; b < totals.size(); ++b) {
    lengths.view().set_linear(static_cast<int64_t>(b), static_cast<double>(totals[b] - 1));
  }
  case_.outline.totals = totals;
  if (!shape_.on_host.lengths) mirror_->upload(lengths, stream_);
}

void Step::set_tokens(uint64_t which) {
  for (size_t i = 0; i < 3; ++i) {
    const test::Tensor& tensor = case_.in[kTokens[i]];
    const std::vector<unsigned char>& bytes = pool_[which % kPool * 3 + i];
    std::memcpy(tensor.buffer().data(), bytes.data(), bytes.size());
    mirror_->upload(tensor, stream_);
  }
}

void Step::reset_caches() {
  test::Random random(test::derive_seed(seed_, 5));
  for (matrix::Input slot : kCaches) {
    test::fill_normal(case_.in[slot].view(), random);
    mirror_->upload(case_.in[slot], stream_);
  }
}

void Step::poison_unwritten_rows() {
  const matrix::GqaOutline& o = case_.outline;
  for (matrix::Input slot : kCaches) {
    const test::View& cache = case_.in[slot].view();
    for (int64_t b = 0; b < o.batch; ++b) {
      for (int64_t h = 0; h < o.kv_heads; ++h) {
        for (int64_t row = o.past_of(b); row < cache.dim(2); ++row) {
          for (int64_t d = 0; d < o.size; ++d) {
            cache.set({b, h, row, d}, std::numeric_limits<double>::quiet_NaN());
          }
        }
      }
    }
    mirror_->upload(case_.in[slot], stream_);
  }
}

test::Outcome Step::launch(attn_session* session, void* workspace, uint64_t workspace_bytes,
                           uint32_t flags) {
  attn_execute_desc desc = ATTN_EXECUTE_DESC_INIT;
  desc.stream = stream_.get();
  desc.workspace = workspace;
  desc.workspace_bytes = workspace_bytes;
  desc.flags = flags;
  return test::outcome_of([&](attn_error* error) {
    return attn_plan_execute(plan_.get(), session, inputs_.data(), inputs_.size(), outputs_.data(),
                             outputs_.size(), &desc, error);
  });
}

void Step::run(attn_session* session) {
  const test::Outcome outcome = launch(session);
  stream_.wait();
  if (!outcome.ok()) throw std::runtime_error("execute: " + outcome.message);
}

std::vector<unsigned char> Step::output() {
  const test::Tensor& tensor = case_.out[matrix::kOutput];
  mirror_->download(tensor, stream_);
  return {tensor.buffer().data(), tensor.buffer().data() + tensor.buffer().size()};
}

std::vector<unsigned char> Step::caches() {
  std::vector<unsigned char> bytes;
  for (matrix::Input slot : kCaches) {
    const test::Buffer& buffer = case_.in[slot].buffer();
    mirror_->download(case_.in[slot], stream_);
    bytes.insert(bytes.end(), buffer.data(), buffer.data() + buffer.size());
  }
  return bytes;
}

void Step::expect() {
  for (matrix::Input slot : kCaches) mirror_->download(case_.in[slot], stream_);
  case_.out[matrix::kOutput].buffer().fill(0xCD);
  mirror_->upload(case_.out[matrix::kOutput], stream_);
  case_.renew();
}

std::string Step::check() {
  std::string findings = mirror_->download(stream_);
  return findings + check_result(case_, nullptr);
}

void Step::forget_plan() {
  plan_.reset();
  op_.reset();
}

std::vector<int64_t> draw_totals(test::Random& random, int64_t batch, int64_t least, int64_t most) {
  std::vector<int64_t> totals;
  for (int64_t b = 0; b < batch; ++b) {
    totals.push_back(random.chance(0.1) ? (random.chance(0.5) ? least : most)
                                        : random.between(least, most));
  }
  return totals;
}

}  // namespace attn::gpu
