/* Opens the library whose path it gets, and knows it by its header alone. */
#include <attn_c.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef attn_status (*get_api_function)(uint32_t, const struct attn_api**, attn_error*);

int main(int argc, char** argv) {
  void* library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  void* symbol = library == NULL ? NULL : dlsym(library, "attn_get_api");
  if (symbol == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  get_api_function get_api;
  memcpy(&get_api, &symbol, sizeof get_api);
  const struct attn_api* api = NULL;
  attn_context* context = NULL;
  attn_context_info info = ATTN_CONTEXT_INFO_INIT;
  attn_error error = ATTN_ERROR_INIT;
  if (get_api(ATTN_ABI_VERSION, &api, &error) != ATTN_OK ||
      api->context_create(NULL, &context, &error) != ATTN_OK ||
      api->context_get_info(context, &info, &error) != ATTN_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  printf("%s on %s\n", api->version(), info.device_name);
  api->context_release(context);
  return dlclose(library);
}
