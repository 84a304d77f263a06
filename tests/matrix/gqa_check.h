// Compares what an engine left in memory with the reference, element by element.
#pragma once

#include <string>

#include "matrix/gqa_case.h"

namespace attn::matrix {

// Empty when everything is right; else what is wrong, one line a finding. Checks outputs, caches,
// untouched memory, inputs and fences.
std::string check_result(const GqaCase& c, CheckNumbers* numbers);

}  // namespace attn::matrix
