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

void count() {
  if (counting) __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
}
}  // namespace

extern "C" {
void* malloc(size_t size) {
  count();
  return __libc_malloc(size);
}
void* calloc(size_t items, size_t size) {
  count();
  return __libc_calloc(items, size);
}
void* realloc(void* memory, size_t size) {
  count();
  return __libc_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  count();
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
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

}  // namespace attn::test
