// What lengths on the device that break a rule must lead to: fault bits, zeros for the bad batch
// rows, and the others as ever.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "matrix/gqa_case.h"

namespace attn::gpu {

struct ExpectedFaults {
  uint32_t bits = 0;      // must be set
  uint32_t may_join = 0;  // a row that breaks another rule too may have its positions looked at
  std::vector<bool> bad;  // batch rows; empty when none is
  bool agrees(uint32_t found) const {
    return (found & ~may_join) == (bits & ~may_join) && (found & bits) == bits;
  }
};

// The faults of a case whose lengths or positions are broken. Then takes what the device must do
// as the case's expectation: bad batch rows are as empty slots are, the others as ever.
ExpectedFaults settle_faults(matrix::GqaCase& c);

// The expectation of a poisoned session: zero outputs, and no byte of a cache written.
void expect_poisoned(matrix::GqaCase& c);
// Which caches were written all the same; separate present buffers too. Empty when none was.
std::string check_caches_untouched(const matrix::GqaCase& c);

}  // namespace attn::gpu
