/* A library that is not the one that it says: its functions are the real library's, its version
 * and its table are what ATTN_FORGE asks for. It takes the real names, so that what is linked to it
 * before the real library, or opens it, is deceived.
 *
 *   newer    a later minor version, with a table that is longer than any that exists
 *   smaller  an earlier minor version, whose table ends before binding_describe
 *   short    the version of the header, with the table of the earlier one
 *   major    another major version
 *   liar     another major version, which gives its table whatever is asked for
 *   none     success without a table */
#define _GNU_SOURCE /* NOLINT(bugprone-reserved-identifier): for RTLD_NEXT */
#include <attn_c.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef attn_status (*get_api_function)(uint32_t, const struct attn_api**, attn_error*);

static int forges(const char* kind) {
  const char* asked = getenv("ATTN_FORGE"); /* NOLINT(concurrency-mt-unsafe): of one thread */
  return asked != NULL && strcmp(asked, kind) == 0;
}

ATTN_EXPORT uint32_t attn_abi_version(void) {
  if (forges("newer")) return ATTN_ABI_VERSION + 7;
  if (forges("smaller")) return ATTN_ABI_VERSION - 1;
  if (forges("major") || forges("liar")) return ATTN_ABI_VERSION + 0x00050000u;
  return ATTN_ABI_VERSION;
}

ATTN_EXPORT attn_status attn_get_api(uint32_t minimum_abi, const struct attn_api** table,
                                     attn_error* error) {
  static union {
    attn_api api;
    unsigned char bytes[2 * sizeof(attn_api)];
  } forged;
  const attn_api* real = NULL;
  const uint32_t version = attn_abi_version();
  const int refuses = minimum_abi >> 16 != version >> 16 || minimum_abi > version;
  void* symbol = dlsym(RTLD_NEXT, "attn_get_api");
  get_api_function get_real;
  if (refuses && !forges("liar")) {
    error->status = ATTN_VERSION;
    snprintf(error->message, sizeof error->message, "the client asks for ABI %u.%u, this has %u.%u",
             minimum_abi >> 16, minimum_abi & 0xffff, version >> 16, version & 0xffff);
    return ATTN_VERSION;
  }
  if (forges("none")) return ATTN_OK;
  memcpy((void*)&get_real, (const void*)&symbol, sizeof get_real);
  if (symbol == NULL || get_real(0, &real, error) != ATTN_OK) return ATTN_INTERNAL;
  memset(forged.bytes, 0x5a, sizeof forged.bytes); /* what a client may not call */
  memcpy(&forged.api, real, sizeof *real);
  forged.api.abi_version = version;
  forged.api.struct_size = sizeof forged;
  if (forges("smaller") || forges("short")) {
    forged.api.struct_size = (uint32_t)offsetof(attn_api, binding_describe);
    memset(forged.bytes + forged.api.struct_size, 0x5a,
           sizeof forged.bytes - forged.api.struct_size);
  }
  *table = &forged.api;
  return ATTN_OK;
}
