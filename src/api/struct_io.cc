#include "api/struct_io.h"

namespace attn::api {

void fail_struct_size(const char* name, uint32_t size, size_t ours) {
  fail_argument(name, ".struct_size is ", size, "; accepted is the size of the struct, ", ours,
                " in this version, at least ", kMinStructSize, " and at most ", kMaxStructSize);
}

void copy_struct_tail_checked(const void* source, uint32_t size, void* target, size_t ours,
                              const char* name) {
  // Structs hold pointers or 64-bit numbers: no version ends within one.
  if (size % 8 != 0) fail_argument(name, ".struct_size is ", size, ", which is no multiple of 8");
  const char* bytes = static_cast<const char*>(source);
  char* copy = static_cast<char*>(target);
  const size_t common = std::min<size_t>(size, ours);
  std::memcpy(copy, bytes, common);
  std::memset(copy + common, 0, ours - common);
  for (size_t at = common; at < size; ++at) {
    if (bytes[at] == 0) continue;
    throw_error(ATTN_VERSION, cat(name, " has ", size, " bytes and uses byte ", at,
                                  "; this library (", ATTN_VERSION_STRING, ") knows only ", ours,
                                  ": a field of a newer version is set"));
  }
}

}  // namespace attn::api
