// Counts what the process allocates, or lets it fail, the library included: a program that links to
// attn_test_allocations has malloc and its family replaced. Where they cannot be (under a
// sanitizer) another file stands in.
#pragma once

namespace attn::test {

bool can_count_allocations();
void begin_counting_allocations();
long end_counting_allocations();  // since the begin

// From here on the calling thread's `number`-th allocation, counted from 1, finds no memory, nor
// does any after it where `all` is set. The end says how many the thread has made meanwhile.
void begin_failing_allocations(long number, bool all);
long end_failing_allocations();

}  // namespace attn::test
