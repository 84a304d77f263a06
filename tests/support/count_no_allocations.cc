// For builds with a sanitizer, which has a malloc of its own.
#include "support/count_allocations.h"

namespace attn::test {

bool can_count_allocations() { return false; }
void begin_counting_allocations() {}
long end_counting_allocations() { return 0; }
void begin_failing_allocations(long /*number*/, bool /*all*/) {}
long end_failing_allocations() { return 0; }

}  // namespace attn::test
