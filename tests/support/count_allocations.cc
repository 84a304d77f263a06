// malloc and its family take the place of the C library's in the whole process.
#include "support/count_allocations.h"

#include <cerrno>
#include <cstddef>

// glibc's own, under the names that it exports them by.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace {
volatile bool counting = false;
volatile long allocations = 0;

// Of each thread: those of the C library and of other threads go on as they were.
thread_local long failing_number = 0;  // 0: none fails
thread_local bool failing_all = false;
thread_local long failing_count = 0;

// Counts an allocation; whether it may have memory.
bool count() {
  if (counting) __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
  if (failing_number == 0) return true;
  ++failing_count;
  const bool fails =
      failing_count == failing_number || (failing_all && failing_count > failing_number);
  if (fails) errno = ENOMEM;
  return !fails;
}
}  // namespace

extern "C" {
void* malloc(size_t size) { return count() ? __libc_malloc(size) : nullptr; }
void* calloc(size_t items, size_t size) { return count() ? __libc_calloc(items, size) : nullptr; }
void* realloc(void* memory, size_t size) {
  return count() ? __libc_realloc(memory, size) : nullptr;
}
void* memalign(size_t alignment, size_t size) {
  return count() ? __libc_memalign(alignment, size) : nullptr;
}
void* aligned_alloc(size_t alignment, size_t size) {
  return count() ? __libc_memalign(alignment, size) : nullptr;
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  void* made = count() ? __libc_memalign(alignment, size) : nullptr;
  if (made == nullptr) return ENOMEM;
  *memory = made;
  return 0;
}
}

namespace attn::test {

bool can_count_allocations() { return true; }

void begin_counting_allocations() {
  allocations = 0;
  counting = true;
}

long end_counting_allocations() {
  counting = false;
  return allocations;
}

void begin_failing_allocations(long number, bool all) {
  failing_count = 0;
  failing_all = all;
  failing_number = number;
}

long end_failing_allocations() {
  failing_number = 0;
  return failing_count;
}

}  // namespace attn::test
