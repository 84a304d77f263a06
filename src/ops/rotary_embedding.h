// ai.onnx RotaryEmbedding, version 23: the contract and its lowering.
// docs/operators/rotary_embedding.md is the contract in words.
//
//   rotary_embedding.cc         tables for introspection, attributes, shape inference
//   rotary_embedding_lower.cc   every rule of type and shape, and the problem
//
// Letters: B batch, H heads, S rows, D head size.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "core/problem.h"
#include "core/tensor.h"
#include "ops/operator.h"

namespace attn {

extern const OperatorSchema kRotaryEmbeddingSchema;

// Checks the values of the attributes. Throws Error.
std::unique_ptr<Operator> create_rotary_embedding(const Attributes& attributes, int32_t version);

namespace rotary {

// Positions in the schema, which are the standard's slots.
enum Input : int { kX, kCosCache, kSinCache, kPositionIds, kInputCount };
enum Output : int { kY, kOutputCount };

inline constexpr std::array<const char*, kInputCount> kInputNames = {"X", "cos_cache", "sin_cache",
                                                                     "position_ids"};
inline constexpr const char* kOutputName = "Y";

// The attributes after their values were checked.
struct Settings {
  bool interleaved = false;
  int64_t width = 0;  // rotated channels, 0: all of the head
  int64_t heads = 0;  // 0: not stated
};

// The sizes of one call, kAnyDim where a query leaves them open.
struct Sizes {
  bool heads_apart = false;  // X is (B, H, S, D), otherwise (B, S, H*D)
  bool positions = false;    // position_ids are bound: one table for all batch rows
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t head_size = 0;
  int64_t width = 0;
  int64_t table_rows = 0;
};

// Checks types and shapes of the inputs. Throws Error.
Sizes check_inputs(const Settings& settings, const Arguments& arguments);

// Checks the output where it is bound. Throws Error.
void check_output(const Arguments& arguments);

// Fills `out` from checked arguments. Allocates nothing.
void lower(const Settings& settings, const Sizes& sizes, const Arguments& arguments, Lowering& out);

}  // namespace rotary
}  // namespace attn
