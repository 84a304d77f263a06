// Counts what the process allocates, the library included: a program that links to
// attn_test_allocations has malloc and its family replaced. Where they cannot be (under a
// sanitizer) another file stands in.
#pragma once

namespace attn::test {

bool can_count_allocations();
void begin_counting_allocations();
long end_counting_allocations();  // since the begin

}  // namespace attn::test
