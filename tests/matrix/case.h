// One random problem of one operator in memory: what the engine matrix needs to know of it.
//
// An operator's cases derive from Case. The matrix draws them by seed, runs them under every engine
// and lets them check what was written.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "support/attn.hpp"
#include "support/buffer.h"

namespace attn::matrix {

using test::Type;

// Measured errors, for the report.
struct CheckNumbers {
  double output_error = 0;  // relative, of the whole output
  double worst_row = 0;
};

struct OperatorName {
  const char* domain;
  const char* type;
  int32_t version;
};

class Case {
 public:
  virtual ~Case() = default;

  virtual OperatorName name() const = 0;
  virtual uint64_t seed() const = 0;
  virtual Type type() const = 0;
  virtual std::set<std::string> features() const = 0;  // to count by
  virtual std::string text() const = 0;                // one line that says it all

  virtual test::Attributes attributes() const = 0;
  virtual test::Arguments inputs() const = 0;
  virtual test::Arguments outputs() const = 0;
  // The alias pairs that queries without data must state.
  virtual std::vector<attn_alias> aliases() const = 0;
  // The range to prepare for where that is wider than what is bound.
  virtual attn_prepare_desc wide_bounds() const = 0;

  // Brings every buffer back to what it held before the first run.
  virtual void restore() = 0;
  // The fault bits for which the call must be refused, or 0.
  virtual uint32_t faults() const = 0;
  // Empty when everything that the call left in memory is right; else what is wrong, one line a
  // finding. Checks outputs, caches, untouched memory, inputs and fences.
  virtual std::string check(CheckNumbers* numbers) const = 0;
  // Empty when no byte of the case changed: what a refusal must leave behind.
  virtual std::string untouched() const = 0;
  // Whether the contract fixes every bit whatever the tiles (no NaN of V that may spread).
  virtual bool fixed_whatever_the_tiles() const = 0;
  // The memory of all outputs, in place ones too.
  virtual std::vector<const test::Buffer*> results() const = 0;

  bool through_binding = false;  // else through a plan
  bool own_workspace = false;    // the caller's scratch, poisoned
  bool describe_memory = false;  // byte_offset and data_bytes instead of a shifted pointer
  bool wide_range = false;       // prepared for more than is bound

 protected:
  Case() = default;
  Case(const Case&) = default;
  Case& operator=(const Case&) = default;
  Case(Case&&) = default;
  Case& operator=(Case&&) = default;
};

}  // namespace attn::matrix
