// What a front end is: the contract of one operator, and its lowering to problems.
//
// A front end knows shapes, types and rules; it knows nothing of devices. One file pair an
// operator; `registry.cc` lists them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/problem.h"
#include "core/tensor.h"

namespace attn {

// ---- schema: what introspection shows, and what the API layer checks by itself ------------------

struct SlotSchema {
  uint32_t slot = 0;  // the standard's index, extensions from ATTN_SLOT_EXTENSION
  const char* name = "";
  bool optional = false;
  uint32_t memory = 0;     // accepted ATTN_MEMORY_... bits of a CUDA context
  int32_t may_alias = -1;  // outputs: slot of the input whose memory it may share
  const char* types = "";  // "float32,float16,bfloat16"
  const char* shape = "";  // "(B, S, Hq*D)"
};

struct AttributeSchema {
  const char* name = "";
  uint32_t type = 0;  // ATTN_ATTRIBUTE_...
  bool required = false;
  const char* default_text = "";
  const char* summary = "";
};

struct OperatorSchema {
  const char* domain = "";  // "ai.onnx" or "com.microsoft" ...
  const char* type = "";
  int32_t version_first = 1;
  int32_t version_last = 1;
  const char* summary = "";
  std::span<const SlotSchema> inputs;  // Arguments::in is indexed by position here
  std::span<const SlotSchema> outputs;
  std::span<const AttributeSchema> attributes;
};

// ---- attributes ---------------------------------------------------------------------------------

struct Attribute {
  std::string name;
  uint32_t type = 0;  // ATTN_ATTRIBUTE_...
  int64_t i = 0;
  double f = 0;
  std::string s;
  std::vector<int64_t> ints;
  std::vector<float> floats;
};

// The attributes of one node, checked against the schema: no unknown names, no duplicates, right
// types, required ones there. An INT is accepted where a FLOAT is expected.
class Attributes {
 public:
  Attributes(const OperatorSchema& schema, std::vector<Attribute> values);  // throws Error
  bool has(std::string_view name) const { return find(name) != nullptr; }
  int64_t integer(std::string_view name, int64_t otherwise) const;
  double real(std::string_view name, double otherwise) const;
  std::string_view text(std::string_view name, std::string_view otherwise) const;

 private:
  const Attribute* find(std::string_view name) const;
  std::vector<Attribute> values_;
};

// ---- front end ----------------------------------------------------------------------------------

enum class LowerMode : uint8_t {
  kQuery,    // sizes may be kAnyDim, no data
  kPlan,     // sizes known, data may be null
  kExecute,  // data bound; called on every execute: no allocation on success
};

// An operator with its attributes. Immutable; any threads at once.
class Operator {
 public:
  virtual ~Operator() = default;
  virtual const OperatorSchema& schema() const = 0;

  // Checks every rule of shape, type and presence, then fills `out`, which arrives
  // default-constructed. Throws Error with INVALID_ARGUMENT (a rule of the contract is broken) or
  // UNSUPPORTED (legal, not built). Values in memory are read by the back end, not here, but for
  // host scalars that shapes are checked against. Where memory may lie is the API layer's check.
  virtual void lower(const Arguments& arguments, LowerMode mode, Lowering& out) const = 0;

  // Type, rank and shape of output `position` (schema position) for these inputs; strides are
  // filled by the caller. Sizes that follow from a value: read from host data where it is bound,
  // otherwise kAnyDim. Returns whether such a value was missing.
  virtual bool infer(const Arguments& arguments, int position, Tensor& out) const = 0;
};

struct OperatorDefinition {
  const OperatorSchema* schema;
  // Checks the attributes' values. Throws Error.
  std::unique_ptr<Operator> (*create)(const Attributes& attributes, int32_t version);
};

// All operators, in the order of introspection.
std::span<const OperatorDefinition> operator_definitions();

// Throws UNSUPPORTED, naming what is known, when there is none.
const OperatorDefinition& find_operator(std::string_view domain, std::string_view type,
                                        int32_t version);

}  // namespace attn
