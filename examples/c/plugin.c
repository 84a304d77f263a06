/* Opens the attn_c library at run time and shows what it offers. */
#define _POSIX_C_SOURCE 200809L
#include "plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY_NAME "libattn_c.so.0"

int plugin_fail(const char* what, const attn_error* error) {
  fprintf(stderr, "cannot %s: status %d: %s\n", what, (int)error->status, error->message);
  return -1;
}

/* The folder of the running program with a slash at its end, or "" where the system hides it. */
static void program_folder(char* folder, size_t capacity) {
  ssize_t length = readlink("/proc/self/exe", folder, capacity - 1);
  if (length < 0) length = 0;
  folder[length] = '\0';
  char* slash = strrchr(folder, '/');
  folder[slash == NULL ? 0 : slash - folder + 1] = '\0';
}

static void* open_library(const char* path) {
  if (path == NULL) path = getenv("ATTN_C_LIBRARY");
  if (path != NULL) {
    void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) fprintf(stderr, "cannot open the library: %s\n", dlerror());
    return handle;
  }
  char folder[2048];
  char candidate[2048 + 64];
  program_folder(folder, sizeof folder);
  static const char* const kPlaces[] = {"", "../lib/"};
  for (size_t i = 0; i < sizeof kPlaces / sizeof kPlaces[0]; ++i) {
    snprintf(candidate, sizeof candidate, "%s%s" LIBRARY_NAME, folder, kPlaces[i]);
    if (access(candidate, R_OK) != 0) continue;
    void* handle = dlopen(candidate, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) fprintf(stderr, "cannot open the library: %s\n", dlerror());
    return handle;
  }
  fprintf(stderr,
          "found no " LIBRARY_NAME
          " in %s or %s../lib; name it with --library or "
          "ATTN_C_LIBRARY\n",
          folder, folder);
  return NULL;
}

/* ISO C has no cast from an object pointer to a function pointer; POSIX promises equal bytes. */
static int find_entry(void* handle, const char* name, void* function, size_t size) {
  void* symbol = dlsym(handle, name);
  if (symbol == NULL) {
    fprintf(stderr, "the library has no function %s: %s\n", name, dlerror());
    return -1;
  }
  memcpy(function, &symbol, size);
  return 0;
}

int plugin_open(Plugin* self, const char* path) {
  memset(self, 0, sizeof *self);
  self->handle = open_library(path);
  if (self->handle == NULL) return -1;

  attn_status (*get_api)(uint32_t, const attn_api**, attn_error*);
  attn_status (*host_get_api)(uint32_t, const attn_host_api**, attn_error*);
  if (find_entry(self->handle, "attn_get_api", &get_api, sizeof get_api) != 0 ||
      find_entry(self->handle, "attn_host_get_api", &host_get_api, sizeof host_get_api) != 0) {
    return -1;
  }
  /* Ask for the lowest ABI that has what this program calls, here the header's own. */
  TRY("get the function table", get_api(ATTN_ABI_VERSION, &self->api, &error));
  TRY("get the host table", host_get_api(ATTN_HOST_ABI_VERSION, &self->host, &error));
  return 0;
}

void plugin_close(Plugin* self) {
  if (self->handle != NULL) dlclose(self->handle);
  memset(self, 0, sizeof *self);
}

int plugin_print_devices(const Plugin* self) {
  uint32_t count = 0;
  TRY("count the devices", self->api->device_count(&count, &error));
  printf("devices\n");
  for (uint32_t i = 0; i < count; ++i) {
    attn_device_info info = ATTN_DEVICE_INFO_INIT;
    TRY("list a device", self->api->device_get_info(i, &info, &error));
    const char* kind = info.device_type == ATTN_DEVICE_CPU    ? "cpu"
                       : info.device_type == ATTN_DEVICE_CUDA ? "cuda"
                                                              : "other";
    printf("  %s:%d  %s: %s\n", kind, (int)info.device_id, info.name,
           info.available ? "available" : info.reason);
  }
  return 0;
}

int plugin_print_operators(const Plugin* self) {
  uint32_t count = 0;
  TRY("count the operators", self->api->operator_count(&count, &error));
  printf("operators\n");
  for (uint32_t i = 0; i < count; ++i) {
    attn_operator_info info = ATTN_OPERATOR_INFO_INIT;
    TRY("list an operator", self->api->operator_get_info(i, &info, &error));
    printf("  %s::%s, version %d", info.domain, info.type, (int)info.version_first);
    if (info.version_last != info.version_first) printf(" to %d", (int)info.version_last);
    printf(": %u inputs, %u outputs, %u attributes\n", (unsigned)info.input_count,
           (unsigned)info.output_count, (unsigned)info.attribute_count);
  }
  return 0;
}

/* The first usable device of a type; 0, or -1 with the reason of the first one that is not. */
static int find_device(const Plugin* self, int32_t type, attn_device_info* found, char* reason,
                       size_t capacity) {
  uint32_t count = 0;
  snprintf(reason, capacity, "the library lists none");
  if (self->api->device_count(&count, NULL) != ATTN_OK) return -1;
  for (uint32_t i = 0, seen = 0; i < count; ++i) {
    attn_device_info info = ATTN_DEVICE_INFO_INIT;
    if (self->api->device_get_info(i, &info, NULL) != ATTN_OK || info.device_type != type) continue;
    if (info.available) {
      *found = info;
      return 0;
    }
    if (seen++ == 0) snprintf(reason, capacity, "%s", info.reason);
  }
  return -1;
}

int plugin_create_context(const Plugin* self, const char* choice, attn_context** context) {
  attn_device_info device = ATTN_DEVICE_INFO_INIT;
  char reason[sizeof device.reason];
  int found = -1;
  if (strcmp(choice, "cpu") != 0) {
    found = find_device(self, ATTN_DEVICE_CUDA, &device, reason, sizeof reason);
  }
  if (found != 0 && strcmp(choice, "cuda") != 0) {
    found = find_device(self, ATTN_DEVICE_CPU, &device, reason, sizeof reason);
  }
  if (found != 0) {
    fprintf(stderr, "no %s device: %s\n", choice, reason);
    return -1;
  }
  attn_context_desc desc = ATTN_CONTEXT_DESC_INIT;
  desc.device_type = device.device_type;
  desc.device_id = device.device_id;
  TRY("open the device", self->api->context_create(&desc, context, &error));
  return 0;
}
