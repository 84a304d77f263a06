/* A client that knows the library by its table alone and asks for no more than it needs:
 * table_client LIBRARY MINIMUM_ABI. It prints what it found, and calls the table's last function
 * only where the table has it. */
#include <attn_c.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef attn_status (*get_api_function)(uint32_t, const struct attn_api**, attn_error*);

/* Whether a table reaches beyond a member. */
#define HAS(api, member) ((api)->struct_size >= offsetof(attn_api, member) + sizeof(api)->member)

int main(int argc, char** argv) {
  void* library = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  void* symbol = library == NULL ? NULL : dlsym(library, "attn_get_api");
  if (symbol == NULL) {
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): of one thread */
    printf("no library: %s\n", argc == 3 ? dlerror() : "usage: table_client LIBRARY MINIMUM_ABI");
    return 2;
  }
  get_api_function get_api;
  memcpy((void*)&get_api, (const void*)&symbol, sizeof get_api);
  const struct attn_api* api = NULL;
  attn_error error = ATTN_ERROR_INIT;
  attn_context* context = NULL;
  if (get_api((uint32_t)strtoul(argv[2], NULL, 0), &api, &error) != ATTN_OK) {
    printf("refused with %d: %s\n", error.status, error.message);
    return error.status == ATTN_VERSION && api == NULL ? 3 : 1;
  }
  attn_context_info info = ATTN_CONTEXT_INFO_INIT;
  if (api->context_create(NULL, &context, &error) != ATTN_OK ||
      api->context_get_info(context, &info, &error) != ATTN_OK || info.device_name[0] == 0) {
    printf("%s\n", error.message);
    return 1;
  }
  api->context_release(context);
  if (!HAS(api, binding_describe)) {
    printf("ABI %u.%u has no binding_describe\n", api->abi_version >> 16,
           api->abi_version & 0xffff);
    return 4;
  }
  /* A null handle is refused, by a function that is there. */
  if (api->binding_describe(NULL, NULL, 0, NULL, &error) != ATTN_INVALID_ARGUMENT) return 1;
  printf("ABI %u.%u, a table of %u bytes\n", api->abi_version >> 16, api->abi_version & 0xffff,
         api->struct_size);
  return 0;
}
