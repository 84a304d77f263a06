/* A library that is not the one that it says: its functions are the real library's, its version
 * and its table are what ATTN_FORGE asks for.
 *
 *   newer    a later minor version, with a table that is longer than any that exists
 *   smaller  an earlier minor version, whose table ends before binding_describe
 *   major    another major version */
#include <attn_c.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int forges(const char* kind) {
  const char* asked = getenv("ATTN_FORGE"); /* NOLINT(concurrency-mt-unsafe): of one thread */
  return asked != NULL && strcmp(asked, kind) == 0;
}

static uint32_t forged_version(void) {
  if (forges("newer")) return ATTN_ABI_VERSION + 7;
  if (forges("smaller")) return ATTN_ABI_VERSION - 1;
  return ATTN_ABI_VERSION + 0x00050000u;
}

ATTN_EXPORT attn_status forged_get_api(uint32_t minimum_abi, const struct attn_api** table,
                                       attn_error* error);

ATTN_EXPORT attn_status forged_get_api(uint32_t minimum_abi, const struct attn_api** table,
                                       attn_error* error) {
  static union {
    attn_api api;
    unsigned char bytes[2 * sizeof(attn_api)];
  } forged;
  const attn_api* real = NULL;
  const uint32_t version = forged_version();
  if (minimum_abi >> 16 != version >> 16 || minimum_abi > version) {
    error->status = ATTN_VERSION;
    snprintf(error->message, sizeof error->message, "the client asks for ABI %u.%u, this has %u.%u",
             minimum_abi >> 16, minimum_abi & 0xffff, version >> 16, version & 0xffff);
    return ATTN_VERSION;
  }
  if (attn_get_api(0, &real, error) != ATTN_OK) return error->status;
  memset(forged.bytes, 0x5a, sizeof forged.bytes); /* what a client may not call */
  memcpy(&forged.api, real, sizeof *real);
  forged.api.abi_version = version;
  forged.api.struct_size = sizeof forged;
  if (forges("smaller")) {
    forged.api.struct_size = (uint32_t)offsetof(attn_api, binding_describe);
    memset(forged.bytes + forged.api.struct_size, 0x5a,
           sizeof forged.bytes - forged.api.struct_size);
  }
  *table = &forged.api;
  return ATTN_OK;
}
