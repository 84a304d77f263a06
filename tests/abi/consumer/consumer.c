/* Links against the installed library and asks it for its table of functions. */
#include <attn_c.h>
#include <attn_c_host.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  const struct attn_api* api = NULL;
  attn_error error = ATTN_ERROR_INIT;
  if (attn_get_api(ATTN_ABI_VERSION, &api, &error) != ATTN_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  if (strcmp(attn_version(), ATTN_VERSION_STRING) != 0) {
    fprintf(stderr, "library %s, header %s\n", attn_version(), ATTN_VERSION_STRING);
    return 1;
  }
  return 0;
}
