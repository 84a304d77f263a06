/* Runs the golden cases through the C API: golden_c FOLDER.
 *
 * One line a case: "ok <name> <digest>" or "FAILED <name> <what is wrong>". */
#include <attn_c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden_file.h"

typedef struct call {
  attn_context* context;
  attn_op* op;
  attn_session* session;
  attn_plan* plan;
  attn_binding* binding;
  attn_tensor tensors[32];
  attn_arg inputs[24], outputs[8];
  uint32_t tensor_count;
  attn_error error;
} call;

static attn_arg argument_of(call* run, const golden_argument* from) {
  attn_tensor* tensor = &run->tensors[run->tensor_count++];
  *tensor = (attn_tensor)ATTN_TENSOR_INIT;
  tensor->flags = ATTN_TENSOR_BROADCAST; /* strides are always stated */
  tensor->device_type = ATTN_DEVICE_CPU;
  tensor->dtype.code = from->code;
  tensor->dtype.bits = from->bits;
  tensor->dtype.lanes = 1;
  tensor->ndim = from->ndim;
  memcpy(tensor->shape, from->shape, sizeof tensor->shape);
  memcpy(tensor->strides, from->strides, sizeof tensor->strides);
  tensor->data = from->block->data;
  tensor->byte_offset = from->byte_offset;
  tensor->data_bytes = from->block->bytes;
  const attn_arg arg = {from->slot, 0, tensor};
  return arg;
}

static attn_status create_op(const golden_case* c, call* run) {
  attn_attribute attributes[24];
  memset(attributes, 0, sizeof attributes);
  for (uint32_t i = 0; i < c->attribute_count; ++i) {
    const golden_attribute* from = &c->attributes[i];
    attributes[i].name = from->name;
    attributes[i].i = from->i;
    attributes[i].f = from->f;
    attributes[i].data = from->text;
    attributes[i].type = strcmp(from->kind, "int") == 0     ? ATTN_ATTRIBUTE_INT
                         : strcmp(from->kind, "float") == 0 ? ATTN_ATTRIBUTE_FLOAT
                                                            : ATTN_ATTRIBUTE_STRING;
  }
  attn_op_desc desc = ATTN_OP_DESC_INIT;
  desc.domain = c->domain;
  desc.type = c->type;
  desc.label = c->label;
  desc.version = c->version;
  desc.attributes = attributes;
  desc.attribute_count = c->attribute_count;
  return attn_op_create(run->context, &desc, &run->op, &run->error);
}

static attn_status run_plan(const golden_case* c, call* run, attn_prepare_desc* desc) {
  desc->inputs = run->inputs;
  desc->input_count = c->input_count;
  desc->outputs = run->outputs;
  desc->output_count = c->output_count;
  const attn_status status = attn_op_prepare(run->op, desc, &run->plan, &run->error);
  if (status != ATTN_OK) return status;
  return attn_plan_execute(run->plan, run->session, run->inputs, c->input_count, run->outputs,
                           c->output_count, NULL, &run->error);
}

static attn_status run_binding(const golden_case* c, call* run, const attn_prepare_desc* desc) {
  attn_status status = attn_binding_create(run->op, run->session, &run->binding, &run->error);
  if (status != ATTN_OK) return status;
  status = attn_binding_set_tensors(run->binding, run->inputs, c->input_count, run->outputs,
                                    c->output_count, &run->error);
  if (status != ATTN_OK) return status;
  status = attn_binding_prepare(run->binding, desc, &run->error);
  if (status != ATTN_OK) return status;
  return attn_binding_execute(run->binding, NULL, &run->error);
}

static attn_status execute(const golden_case* c, call* run) {
  attn_status status = create_op(c, run);
  if (status != ATTN_OK) return status;
  for (uint32_t i = 0; i < c->input_count; ++i) {
    run->inputs[i] = argument_of(run, &c->inputs[i]);
  }
  for (uint32_t i = 0; i < c->output_count; ++i) {
    run->outputs[i] = argument_of(run, &c->outputs[i]);
  }
  status = attn_session_create(run->context, NULL, &run->session, &run->error);
  if (status != ATTN_OK) return status;
  attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
  desc.engine = c->engine;
  desc.max_batch = c->max_batch;
  desc.max_query_length = c->max_query_length;
  desc.max_total_length = c->max_total_length;
  return c->by_plan ? run_plan(c, run, &desc) : run_binding(c, run, &desc);
}

/* Runs one case; 1 where all is right. */
static int run_case(attn_context* context, const char* folder, const char* name) {
  golden_case* c = golden_read(folder, name);
  if (c == NULL) return 0;
  call run;
  memset(&run, 0, sizeof run);
  run.context = context;
  run.error = (attn_error)ATTN_ERROR_INIT;
  const attn_status status = execute(c, &run);
  const char* message = status == ATTN_OK ? "" : run.error.message;
  char report[1200];
  const int good = golden_check(c, status, message, report, sizeof report);
  if (good) {
    printf("ok %s %016llx\n", name, (unsigned long long)golden_digest(c, message));
  } else {
    printf("FAILED %s %s\n", name, report);
  }
  attn_binding_release(run.binding);
  attn_plan_release(run.plan);
  attn_session_release(run.session);
  attn_op_release(run.op);
  golden_free(c);
  return good;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    printf("usage: golden_c FOLDER\n");
    return 2;
  }
  char** names = NULL;
  const int count = golden_names(argv[1], &names);
  attn_context_desc desc = ATTN_CONTEXT_DESC_INIT;
  desc.flags = ATTN_CONTEXT_IGNORE_ENVIRONMENT;
  attn_context* context = NULL;
  attn_error error = ATTN_ERROR_INIT;
  if (attn_context_create(&desc, &context, &error) != ATTN_OK) {
    printf("%s\n", error.message);
    return 1;
  }
  int failures = 0;
  for (int i = 0; i < count; ++i) {
    failures += !run_case(context, argv[1], names[i]);
    free(names[i]);
  }
  free((void*)names);
  attn_context_release(context);
  return count > 0 && failures == 0 ? 0 : 1;
}
