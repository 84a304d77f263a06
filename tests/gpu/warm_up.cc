#include "gpu/warm_up.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <set>
#include <thread>

#include "gpu/mirror.h"
#include "matrix/gqa_case.h"

namespace attn::gpu {
namespace {

// A decode step in place inside the specialisation: no lengths matter for what is compiled.
matrix::GqaOutline plain_step(const Specialisation& spec) {
  matrix::GqaOutline o;
  o.seed = 1;
  o.type = spec.type;
  o.size = spec.size;
  o.heads = 2;
  o.kv_heads = 1;
  o.step = matrix::Step::kDecode;
  o.totals = {5};
  o.bound = 6;
  o.past = true;
  for (matrix::CacheOutline* cache : {&o.key, &o.value}) {
    cache->present = {true, 8, true};
    cache->past_rows = 8;
  }
  o.bias = spec.bias;
  o.sink = spec.sink;
  o.smooth = spec.smooth ? 1 : 0;
  o.softcap = spec.softcap ? 30 : 0;
  o.log_sum_exp = spec.log_sum_exp;
  o.scale = spec.negative_scale ? -0.1 : 0;
  o.rotary = spec.transform;
  o.rotary_width = spec.transform ? spec.size / 2 * 2 : 0;
  o.table_type = spec.type;
  return o;
}

void prepare(const Gpu& gpu, const Specialisation& spec) {
  test::Random random(1);
  matrix::GqaCase c = matrix::build_case(plain_step(spec), random, false);
  const Mirror mirror(gpu, c, {});
  const test::Arguments inputs = mirror.inputs(), outputs = mirror.outputs();
  test::Handle<attn_op> op;
  test::Outcome outcome =
      test::create_op(op, gpu.context(), "com.microsoft", "GroupQueryAttention", 1, c.attributes());
  if (!outcome.ok()) throw std::runtime_error("op_create: " + outcome.message);
  attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
  desc.inputs = inputs.data();
  desc.input_count = inputs.size();
  desc.outputs = outputs.data();
  desc.output_count = outputs.size();
  test::Handle<attn_plan> plan;
  outcome = test::create(plan, [&](attn_plan** out, attn_error* error) {
    return attn_op_prepare(op.get(), &desc, out, error);
  });
  if (!outcome.ok()) throw std::runtime_error(text_of(spec) + ": " + outcome.message);
}

}  // namespace

int worker_count() {
  const int64_t all = std::max(1u, std::thread::hardware_concurrency());
  return static_cast<int>(std::clamp<int64_t>(
      number_from_environment("ATTN_C_TEST_THREADS", std::min<int64_t>(all, 16)), 1, 64));
}

void warm_up(const Gpu& gpu, const std::vector<Specialisation>& specs) {
  static std::mutex mutex;
  static std::set<std::pair<int32_t, std::string>> done;
  const std::lock_guard lock(mutex);
  std::vector<Specialisation> missing;
  for (const Specialisation& spec : specs) {
    if (done.insert({gpu.id(), text_of(spec)}).second) missing.push_back(spec);
  }
  std::atomic<size_t> next{0};
  std::vector<std::exception_ptr> errors(missing.size());
  std::vector<std::thread> workers;
  for (int w = 0; w < worker_count(); ++w) {
    workers.emplace_back([&] {
      for (size_t i = next++; i < missing.size(); i = next++) {
        try {
          prepare(gpu, missing[i]);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace attn::gpu
