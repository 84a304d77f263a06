/* Opens the attn_c library at run time and shows what it offers. */
#ifndef ATTN_EXAMPLE_PLUGIN_H_
#define ATTN_EXAMPLE_PLUGIN_H_

#include "attn_c.h"
#include "attn_c_host.h"

/* The library's two tables. Everything the program needs from attn_c goes through them. */
typedef struct Plugin {
  void* handle;
  const attn_api* api;
  const attn_host_api* host;
} Plugin;

/* Loads the library: from `path` if it is not null, else from the environment variable
 * ATTN_C_LIBRARY, else from beside the running program (its folder, then ../lib). Returns 0, or -1
 * after printing to stderr what was tried and why it failed. */
int plugin_open(Plugin* self, const char* path);

/* Closes the library. Objects made with it must have been released. */
void plugin_close(Plugin* self);

/* Print one line a device, usable or not, and one an operator. Return 0, or -1 after printing. */
int plugin_print_devices(const Plugin* self);
int plugin_print_operators(const Plugin* self);

/* Opens a context on the device that `choice` names: "cpu", "cuda" (the first one that can be
 * used), or "auto" (CUDA where there is one, else the CPU). Returns 0, or -1 after printing why
 * not. */
int plugin_create_context(const Plugin* self, const char* choice, attn_context** context);

/* Prints what failed and the library's message to stderr; always -1. */
int plugin_fail(const char* what, const attn_error* error);

/* Calls a function of the table and leaves the calling function with -1 when it fails. The call
 * names the error as `&error`:  TRY("create the op", api->op_create(context, &desc, &op, &error));
 */
#define TRY(what, call)                                        \
  do {                                                         \
    attn_error error = ATTN_ERROR_INIT;                        \
    if ((call) != ATTN_OK) return plugin_fail((what), &error); \
  } while (0)

#endif
