// One step of a model with its cache in place on the device, ready to be run eagerly or captured:
// tokens and lengths may change from run to run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "gpu/mirror.h"
#include "matrix/gqa_case.h"
#include "matrix/gqa_check.h"

namespace attn::gpu {

struct StepShape {
  test::Type type = test::Type::kBfloat16;
  int64_t batch = 3, heads = 8, kv_heads = 2, size = 128;
  int64_t rows = 1;        // new tokens a batch row
  int64_t capacity = 260;  // rows of the caches
  bool rotary = true;
  bool norm = false;
  bool log_sum_exp = false;
  int64_t window = -1;
  OnHost on_host;
  uint32_t prepare_flags = 0;
  std::string engine;  // forced; empty: chosen
};

// The outline of such a step at full length.
matrix::GqaOutline outline_of(const StepShape& shape);

class Step {
 public:
  // Equal shapes and seeds hold equal bits. Prepares a plan for the capacity.
  Step(const Gpu& gpu, const Stream& stream, const StepShape& shape, uint64_t seed);

  // Every batch row's total number of keys; goes to the device.
  void set_totals(const std::vector<int64_t>& totals);
  // Tokens number `which` of a pool that depends on the seed alone; go to the device.
  void set_tokens(uint64_t which);
  // The caches as they were built.
  void reset_caches();
  // Rows at and beyond each past are NaN, here and on the device.
  void poison_unwritten_rows();

  // Launches in the stream; returns at once.
  test::Outcome launch(attn_session* session, void* workspace = nullptr,
                       uint64_t workspace_bytes = 0, uint32_t flags = 0);
  void run(attn_session* session);  // launch() that throws, and waits

  // The bytes of the output, and of both caches.
  std::vector<unsigned char> output();
  std::vector<unsigned char> caches();

  // Takes what is on the device as the beginning of a step that is checked by check().
  void expect();
  // Compares everything on the device with float64; empty when all is right.
  std::string check();

  matrix::GqaCase& problem() { return case_; }
  Mirror& mirror() { return *mirror_; }
  attn_op* op() const { return op_.get(); }
  attn_plan* plan() const { return plan_.get(); }
  const test::Arguments& inputs() const { return inputs_; }
  const test::Arguments& outputs() const { return outputs_; }
  // Lets go of operator and plan, as a program does that keeps only a graph.
  void forget_plan();

 private:
  const Gpu& gpu_;
  const Stream& stream_;
  StepShape shape_;
  uint64_t seed_;
  matrix::GqaCase case_;
  std::unique_ptr<Mirror> mirror_;
  test::Arguments inputs_, outputs_;
  test::Handle<attn_op> op_;
  test::Handle<attn_plan> plan_;
  std::vector<std::vector<unsigned char>> pool_;
};

// Random totals in [least, most], one a batch row.
std::vector<int64_t> draw_totals(test::Random& random, int64_t batch, int64_t least, int64_t most);

}  // namespace attn::gpu
