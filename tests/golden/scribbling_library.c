/* The library with a defect, to see that runners of golden cases notice it: each execute changes a
 * byte that it must not. After a success that is the byte in front of the first output's first
 * element, which a case for it must have; after a failure the first byte of that element. It goes
 * in front of the real library, by LD_PRELOAD or as what is opened. */
#define _GNU_SOURCE /* NOLINT(bugprone-reserved-identifier): for RTLD_NEXT */
#include <attn_c.h>
#include <dlfcn.h>
#include <string.h>

typedef attn_status (*set_tensors_function)(attn_binding*, const attn_arg*, uint32_t,
                                            const attn_arg*, uint32_t, attn_error*);
typedef attn_status (*set_output_function)(attn_binding*, uint32_t, const attn_tensor*,
                                           attn_error*);
typedef attn_status (*execute_function)(attn_binding*, const attn_execute_desc*, attn_error*);
typedef attn_status (*plan_execute_function)(attn_plan*, attn_session*, const attn_arg*, uint32_t,
                                             const attn_arg*, uint32_t, const attn_execute_desc*,
                                             attn_error*);

/* Of the binding that was bound last: runners have one at a time. */
static unsigned char* first_element;

static void remember(const attn_tensor* tensor) {
  first_element = (unsigned char*)tensor->data + tensor->byte_offset;
}

static void remember_first(const attn_arg* outputs, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    if (outputs[i].slot == 0 && outputs[i].tensor != NULL) remember(outputs[i].tensor);
  }
}

static attn_status scribble(attn_status status) {
  if (first_element != NULL) first_element[status == ATTN_OK ? -1 : 0] ^= 0x55;
  return status;
}

/* The real library's function of a name, as a pointer of type `type`. */
#define REAL(type, function, name)             \
  type function;                               \
  void* const symbol = dlsym(RTLD_NEXT, name); \
  if (symbol == NULL) return ATTN_INTERNAL;    \
  memcpy((void*)&(function), (const void*)&symbol, sizeof(function))

ATTN_EXPORT attn_status attn_binding_set_tensors(attn_binding* binding, const attn_arg* inputs,
                                                 uint32_t input_count, const attn_arg* outputs,
                                                 uint32_t output_count, attn_error* error) {
  REAL(set_tensors_function, real, "attn_binding_set_tensors");
  remember_first(outputs, output_count);
  return real(binding, inputs, input_count, outputs, output_count, error);
}

ATTN_EXPORT attn_status attn_binding_set_output(attn_binding* binding, uint32_t slot,
                                                const attn_tensor* tensor, attn_error* error) {
  REAL(set_output_function, real, "attn_binding_set_output");
  if (slot == 0 && tensor != NULL) remember(tensor);
  return real(binding, slot, tensor, error);
}

ATTN_EXPORT attn_status attn_binding_execute(attn_binding* binding, const attn_execute_desc* desc,
                                             attn_error* error) {
  REAL(execute_function, real, "attn_binding_execute");
  return scribble(real(binding, desc, error));
}

ATTN_EXPORT attn_status attn_plan_execute(attn_plan* plan, attn_session* session,
                                          const attn_arg* inputs, uint32_t input_count,
                                          const attn_arg* outputs, uint32_t output_count,
                                          const attn_execute_desc* desc, attn_error* error) {
  REAL(plan_execute_function, real, "attn_plan_execute");
  remember_first(outputs, output_count);
  return scribble(real(plan, session, inputs, input_count, outputs, output_count, desc, error));
}
