// From the caller's argument lists to the Arguments of an operator.
#pragma once

#include <array>
#include <cstdint>

#include "api/tensor_intake.h"
#include "attn_c.h"
#include "core/tensor.h"
#include "ops/operator.h"

namespace attn::api {

// What arguments are checked against. The schema outlives it.
struct Signature {
  const OperatorSchema* schema = nullptr;
  DeviceIdentity device;
};

// The arguments of one call with the memory that they span, by schema position.
struct ArgumentSet {
  Arguments tensors;
  std::array<ByteRange, kMaxInputs> in_range{};
  std::array<ByteRange, kMaxOutputs> out_range{};
};

// All functions throw INVALID_ARGUMENT with the slot's name in front, and allocate nothing on
// success.

// The position of a slot; names the slots that there are when it is unknown.
int input_position(const OperatorSchema& schema, uint32_t slot);
int output_position(const OperatorSchema& schema, uint32_t slot);

// Takes one argument into its position, which must be empty.
void take_input(const Signature& signature, int position, const attn_tensor* tensor, Intake intake,
                ArgumentSet& set);
void take_output(const Signature& signature, int position, const attn_tensor* tensor, Intake intake,
                 ArgumentSet& set);

// Takes whole lists into an empty set. Where `wanted` is not null, outputs may come without a
// tensor: bit i of it is then set for the output in position i.
void take_inputs(const Signature& signature, const attn_arg* inputs, uint32_t count, Intake intake,
                 ArgumentSet& set);
void take_outputs(const Signature& signature, const attn_arg* outputs, uint32_t count,
                  Intake intake, ArgumentSet& set, uint32_t* wanted);

// Sharing that is said before memory is bound.
void take_aliases(const OperatorSchema& schema, const attn_alias* aliases, uint32_t count,
                  Arguments& arguments);

// Every required input and output is there.
void check_required_inputs(const OperatorSchema& schema, const Arguments& arguments);
void check_required_outputs(const OperatorSchema& schema, const Arguments& arguments);

// All bound tensors with elements have data: the rule of execute for tensors taken earlier.
void check_data(const OperatorSchema& schema, const Arguments& arguments);

// An output shares memory with nothing but the input that its schema names, and with that from the
// same address on. Refuses only what certainly overlaps.
void check_overlaps(const OperatorSchema& schema, const ArgumentSet& set);

}  // namespace attn::api
