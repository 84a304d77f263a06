/* Ten thousand rounds of create, bind, execute and release in C, and a thousand that fail on the
 * way: the library's counters return to where they were, and the process does not grow. */
#include <attn_c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 10000

static long long resident_bytes(void) {
  char line[256] = "";
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == NULL) return 0;
  const char* read = fgets(line, sizeof line, file);
  fclose(file);
  if (read == NULL) return 0;
  char* second = NULL; /* pages in all, then those that are resident */
  strtoll(line, &second, 10);
  return strtoll(second, NULL, 10) * sysconf(_SC_PAGESIZE);
}

static attn_tensor tensor(void* data, uint8_t code, int32_t rank, int64_t rows, int64_t columns) {
  attn_tensor t = ATTN_TENSOR_INIT;
  t.device_type = ATTN_DEVICE_CPU;
  t.dtype.code = code;
  t.dtype.bits = 32;
  t.dtype.lanes = 1;
  t.ndim = rank;
  t.shape[0] = 1;
  t.shape[1] = rows;
  t.shape[2] = columns;
  t.strides[0] = rows * columns;
  t.strides[1] = columns;
  t.strides[2] = 1;
  t.data = data;
  return t;
}

/* One round; `last` beyond the keys is refused by execute. The status of what failed, or OK. */
static attn_status round_trip(attn_context* context, int32_t last) {
  float qkv[3 * 16], out[3 * 8];
  int32_t total = 3;
  for (int i = 0; i < 3 * 16; ++i) qkv[i] = 0.25f;
  attn_attribute heads[2];
  memset(heads, 0, sizeof heads);
  heads[0].name = "num_heads";
  heads[1].name = "kv_num_heads";
  heads[0].type = heads[1].type = ATTN_ATTRIBUTE_INT;
  heads[0].i = 2;
  heads[1].i = 1;
  attn_op_desc desc = ATTN_OP_DESC_INIT;
  desc.domain = "com.microsoft";
  desc.type = "GroupQueryAttention";
  desc.version = 1;
  desc.attributes = heads;
  desc.attribute_count = 2;
  attn_tensor tensors[4] = {
      tensor(qkv, ATTN_DTYPE_FLOAT, 3, 3, 16), tensor(&last, ATTN_DTYPE_INT, 1, 1, 1),
      tensor(&total, ATTN_DTYPE_INT, 0, 1, 1), tensor(out, ATTN_DTYPE_FLOAT, 3, 3, 8)};
  const attn_arg inputs[3] = {{0, 0, &tensors[0]}, {5, 0, &tensors[1]}, {6, 0, &tensors[2]}};
  const attn_arg outputs[1] = {{0, 0, &tensors[3]}};
  attn_op* op = NULL;
  attn_session* session = NULL;
  attn_binding* binding = NULL;
  attn_error error = ATTN_ERROR_INIT;
  attn_status status = attn_op_create(context, &desc, &op, &error);
  if (status == ATTN_OK) status = attn_session_create(context, NULL, &session, &error);
  if (status == ATTN_OK) status = attn_binding_create(op, session, &binding, &error);
  if (status == ATTN_OK) {
    status = attn_binding_set_tensors(binding, inputs, 3, outputs, 1, &error);
  }
  if (status == ATTN_OK) status = attn_binding_prepare(binding, NULL, &error);
  if (status == ATTN_OK) status = attn_binding_execute(binding, NULL, &error);
  attn_op_release(op);
  attn_session_release(session);
  attn_binding_release(binding);
  return status;
}

int main(void) {
  attn_context* context = NULL;
  attn_error error = ATTN_ERROR_INIT;
  attn_context_stats stats = ATTN_CONTEXT_STATS_INIT;
  long long middle = 0;
  if (attn_context_create(NULL, &context, &error) != ATTN_OK) return puts(error.message), 1;
  for (int i = 0; i < ROUNDS; ++i) {
    const attn_status bad = i % 10 == 0 ? round_trip(context, 7) : ATTN_INVALID_ARGUMENT;
    const attn_status good = round_trip(context, 2);
    if (good != ATTN_OK || bad != ATTN_INVALID_ARGUMENT) {
      printf("round %d: status %d, of the one that fails %d\n", i, good, bad);
      return 1;
    }
    if (i == ROUNDS / 2) middle = resident_bytes();
  }
  const long long grown = resident_bytes() - middle;
  if (attn_context_trim(context, &error) != ATTN_OK ||
      attn_context_get_stats(context, &stats, &error) != ATTN_OK) {
    return puts(error.message), 1;
  }
  const unsigned long long live = stats.ops_live + stats.sessions_live + stats.bindings_live +
                                  stats.plans_live + stats.scratch_bytes;
  attn_context_release(context);
  printf("%llu rounds and %d that failed: %llu live, %lld bytes grown over the second half\n",
         (unsigned long long)stats.executions, ROUNDS / 10, live, grown);
  return live == 0 && stats.executions == ROUNDS && grown < ATTN_TEST_GROWTH ? 0 : 1;
}
