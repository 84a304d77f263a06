// Counts what the process allocates, the library included. Where malloc cannot be replaced (under a
// sanitizer) another file stands in.
#pragma once

namespace attn::test {

bool can_count_allocations();
void begin_counting_allocations();
long end_counting_allocations();  // since the begin

}  // namespace attn::test
