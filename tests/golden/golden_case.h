// A golden case as the generator builds it: the call of one operator with all its memory, and what
// must come out. docs/golden-cases.md has the format of the files that it is written to.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "support/random.h"
#include "support/tensor.h"

namespace attn::golden {

using test::Layout;
using test::Type;
using test::View;

// An element type by name, with DLPack's code; `carrier` is what the tests move it in.
struct ElementType {
  const char* name;
  int code;
  int bits;
  Type carrier;
};
ElementType element_of(Type type);

// How a tensor lies in its memory block.
struct Place {
  Layout layout;
  int64_t lead = 0;  // bytes before its first byte, and behind its last one
  int64_t tail = 0;
};

// The rows of a result and how far each may be off: Frobenius norms of the difference.
struct Bounds {
  std::vector<double> rows;
  double whole = 0;
};

class GoldenCase {
 public:
  GoldenCase(std::string name, std::string about, std::string domain, std::string type,
             int32_t version);
  GoldenCase(GoldenCase&&) noexcept = default;
  GoldenCase(const GoldenCase&) = delete;

  // ---- the call ----

  void set_int(const std::string& name, int64_t value);
  void set_float(const std::string& name, double value);
  void set_text(const std::string& name, const std::string& value);
  // Runs by a plan that serves these sizes (0: what the tensors have) instead of by a binding.
  void by_plan(int64_t max_batch = 0, int64_t max_query_length = 0, int64_t max_total_length = 0);
  void force_engine(const std::string& engine) { engine_ = engine; }

  // Memory for one tensor, with values that the caller writes through the view.
  size_t memory(ElementType type, std::vector<int64_t> shape, const Place& place = {});
  size_t memory(Type type, std::vector<int64_t> shape, const Place& place = {}) {
    return memory(element_of(type), std::move(shape), place);
  }
  const View& view(size_t block) const { return blocks_[block].tensor.view(); }

  // Arguments: the whole of a block, or another view of its memory.
  View input(uint32_t slot, const std::string& name, size_t block) {
    return input(slot, name, block, view(block));
  }
  View input(uint32_t slot, const std::string& name, size_t block, const View& view);
  void output(uint32_t slot, const std::string& name, size_t block) {
    output(slot, name, block, view(block));
  }
  void output(uint32_t slot, const std::string& name, size_t block, const View& view);

  // ---- what must come of it ----

  // Values in row-major order of the output's shape; NaN is a cell that may hold anything.
  void expect(uint32_t slot, std::vector<double> values, int64_t row_length, Bounds bounds);
  // Values to the bit: as the output's type holds them.
  void expect_exact(uint32_t slot, const std::vector<double>& values);
  void expect_bytes(uint32_t slot, std::vector<unsigned char> bytes);
  void expect_error(int32_t status, const std::string& message);

  const std::string& name() const { return name_; }
  std::string json() const;
  std::vector<unsigned char> data() const;

 private:
  struct Block {
    ElementType type;
    test::Tensor tensor;
    int64_t lead, tail;
    bool read = false;  // by an input: its contents count
    int64_t bytes() const { return lead + tensor.buffer().size() + tail; }
  };
  struct Attribute {
    std::string name, kind, value;
  };
  struct Argument {
    uint32_t slot;
    std::string name;
    size_t block;
    View view;
  };
  struct Result {
    uint32_t slot;
    std::vector<double> values;
    int64_t row_length = 0;
    Bounds bounds;
    std::vector<unsigned char> bytes;  // instead of values
  };

  const Argument& output_at(uint32_t slot) const;
  std::string argument_text(const Argument& argument) const;

  std::string name_, about_, domain_, type_;
  int32_t version_;
  std::vector<Attribute> attributes_;
  std::string engine_;
  bool by_plan_ = false;
  int64_t max_batch_ = 0, max_query_length_ = 0, max_total_length_ = 0;
  std::deque<Block> blocks_;
  std::vector<Argument> inputs_, outputs_;
  std::vector<Result> results_;
  int32_t status_ = 0;
  std::string message_;
};

// ---- numbers ----

// Numbers of deviation 1 that need no function of libm: the same bits on every machine.
void fill(const View& view, test::Random& random, double sigma = 1);

// Bounds by docs/numerics.md: rows of `row_length` values of a type, each with the least norm that
// its error is measured by (empty: its own) and the factor by which its scores exceed the bar.
Bounds bounds_of(Type type, const std::vector<double>& values, int64_t row_length,
                 const std::vector<double>& least = {}, const std::vector<double>& excess = {});
// Of values that are each right or off by one rounding, row by row.
Bounds rounding_bounds(Type type, const std::vector<double>& values, int64_t row_length);
Bounds exact_bounds(const std::vector<double>& values, int64_t row_length);
// Of log-sum-exps whose scores have these expected sizes.
Bounds log_sum_exp_bounds(const std::vector<double>& values, const std::vector<double>& sizes,
                          double bar);
// By how much the rounding of float32 and float64 scores is felt beyond the bar.
std::vector<double> excess_of(Type type, const std::vector<double>& weighing_sizes);

// Every case, family by family.
std::vector<GoldenCase> all_cases();
void add_group_query(std::vector<GoldenCase>& cases);
void add_attention(std::vector<GoldenCase>& cases);
void add_varlen(std::vector<GoldenCase>& cases);
void add_linear(std::vector<GoldenCase>& cases);
void add_rows(std::vector<GoldenCase>& cases);
void add_errors(std::vector<GoldenCase>& cases);

}  // namespace attn::golden
