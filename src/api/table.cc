// Versions and the two tables, made from api_list.inc: a function that is missing, out of order or
// of another type than its table member does not compile.
#include <cstddef>
#include <type_traits>

#include "api/guard.h"
#include "api/text.h"
#include "attn_c_host.h"
#include "core/lengths.h"

namespace attn::api {
namespace {

#define ATTN_ENTRY(name)

// Members are designated, and the compiler wants designators in the order of declaration.
constexpr attn_api kApi = {
    .struct_size = sizeof(attn_api),
    .abi_version = ATTN_ABI_VERSION,
#define ATTN_API(name) .name = &attn_##name,
#define ATTN_HOST_API(name)
#include "api/api_list.inc"
#undef ATTN_API
#undef ATTN_HOST_API
};

constexpr attn_host_api kHostApi = {
    .struct_size = sizeof(attn_host_api),
    .abi_version = ATTN_HOST_ABI_VERSION,
#define ATTN_API(name)
#define ATTN_HOST_API(name) .name = &attn_##name,
#include "api/api_list.inc"
#undef ATTN_API
#undef ATTN_HOST_API
};

// Position in the list = position in the table, no member is left out, and types are equal.
enum ApiIndex : size_t {
#define ATTN_API(name) kApi_##name,
#define ATTN_HOST_API(name)
#include "api/api_list.inc"
#undef ATTN_API
#undef ATTN_HOST_API
  kApiCount
};
enum HostApiIndex : size_t {
#define ATTN_API(name)
#define ATTN_HOST_API(name) kHostApi_##name,
#include "api/api_list.inc"
#undef ATTN_API
#undef ATTN_HOST_API
  kHostApiCount
};

constexpr size_t kTableHead = 8;  // struct_size and abi_version
static_assert(sizeof(attn_api) == kTableHead + kApiCount * sizeof(void*));
static_assert(sizeof(attn_host_api) == kTableHead + kHostApiCount * sizeof(void*));

#define ATTN_API(name)                                                                 \
  static_assert(offsetof(attn_api, name) == kTableHead + kApi_##name * sizeof(void*)); \
  static_assert(std::is_same_v<decltype(attn_api::name), decltype(&attn_##name)>);
#define ATTN_HOST_API(name)                                                                     \
  static_assert(offsetof(attn_host_api, name) == kTableHead + kHostApi_##name * sizeof(void*)); \
  static_assert(std::is_same_v<decltype(attn_host_api::name), decltype(&attn_##name)>);
#include "api/api_list.inc"
#undef ATTN_API
#undef ATTN_HOST_API
#undef ATTN_ENTRY

// Same major number, and a minor number that the library has reached.
template <class Table>
void give_table(uint32_t minimum, uint32_t ours, const Table& table, const Table** target) {
  if (target == nullptr) fail_argument("table is null; it receives the table");
  const uint32_t major = ours >> 16;
  if (minimum >> 16 != major || minimum > ours) {
    throw_error(ATTN_VERSION,
                cat("the client asks for ABI ", minimum >> 16, ".", minimum & 0xffffu,
                    " or newer of the same major number; this library (", ATTN_VERSION_STRING,
                    ") serves ABI ", major, ".0 to ", major, ".", ours & 0xffffu));
  }
  *target = &table;
}

}  // namespace
}  // namespace attn::api

const char* attn_version(void) { return ATTN_VERSION_STRING; }

uint32_t attn_abi_version(void) { return ATTN_ABI_VERSION; }

attn_status attn_get_api(uint32_t minimum_abi, const attn_api** table, attn_error* error) {
  return attn::api::guard(
      error, [&] { attn::api::give_table(minimum_abi, ATTN_ABI_VERSION, attn::api::kApi, table); });
}

attn_status attn_host_get_api(uint32_t minimum_abi, const attn_host_api** table,
                              attn_error* error) {
  return attn::api::guard(error, [&] {
    attn::api::give_table(minimum_abi, ATTN_HOST_ABI_VERSION, attn::api::kHostApi, table);
  });
}

attn_status attn_fault_text(uint32_t bits, char* buffer, size_t capacity, size_t* needed,
                            attn_error* error) {
  return attn::api::guard(
      error, [&] { attn::api::write_text(attn::fault_text(bits), buffer, capacity, needed); });
}
