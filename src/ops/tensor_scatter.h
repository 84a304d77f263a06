// ai.onnx TensorScatter, version 24: the contract and its lowering.
// docs/operators/tensor_scatter.md is the contract in words.
//
//   tensor_scatter.cc         tables for introspection, attributes, shape inference
//   tensor_scatter_lower.cc   every rule of type and shape, and the problem
//
// Letters: B batch, N new rows, L rows of the cache.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "core/problem.h"
#include "core/tensor.h"
#include "ops/operator.h"

namespace attn {

extern const OperatorSchema kTensorScatterSchema;

// Checks the values of the attributes. Throws Error.
std::unique_ptr<Operator> create_tensor_scatter(const Attributes& attributes, int32_t version);

namespace scatter {

// Positions in the schema, which are the standard's slots.
enum Input : int { kPastCache, kUpdate, kWriteIndices, kInputCount };
enum Output : int { kPresentCache, kOutputCount };

inline constexpr std::array<const char*, kInputCount> kInputNames = {"past_cache", "update",
                                                                     "write_indices"};
inline constexpr const char* kOutputName = "present_cache";

// The element types, in words.
inline constexpr char kTypeNames[] =
    "float32,float16,bfloat16,float64,int8,int16,int32,int64,uint8,uint16,uint32,uint64,bool,"
    "float8e4m3fn,float8e4m3fnuz,float8e5m2,float8e5m2fnuz";

// The attributes after their values were checked.
struct Settings {
  bool circular = false;
  int64_t axis = -2;  // of the rows; negative from the end, never the batch axis
};

// The sizes of one call, kAnyDim where a query leaves them open.
struct Sizes {
  int axis = 1;  // of the rows, from the begin
  int64_t batch = 0;
  int64_t new_rows = 0;
  int64_t cache_rows = 0;
};

// Checks types and shapes of the inputs. Throws Error.
Sizes check_inputs(const Settings& settings, const Arguments& arguments);

// Checks the output where it is bound. Throws Error.
void check_output(const Arguments& arguments);

// Fills `out` from checked arguments. Allocates nothing.
void lower(const Settings& settings, const Sizes& sizes, const Arguments& arguments, Lowering& out);

}  // namespace scatter
}  // namespace attn
