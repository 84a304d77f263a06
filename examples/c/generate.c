/* Runs a layer as a model does: the prompt at once, then one token after the other. */
#define _POSIX_C_SOURCE 200809L
#include "generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "describe.h"

#define TIMED_ROUNDS 7
#define TIMED_STEPS 200

/* What executes a call: exactly one of the handles is in use. */
typedef struct Runner {
  Layer* layer;
  const attn_api* api;
  const attn_host_api* host;
  attn_binding* binding;
  attn_plan* plan;
  attn_host_graph* graph;
  attn_execute_desc how;
} Runner;

static int prepare(Runner* self, const CallArgs* args) {
  if (self->binding != NULL) {
    TRY("bind tensors",
        self->api->binding_set_tensors(self->binding, args->inputs, args->input_count,
                                       args->outputs, args->output_count, &error));
    TRY("prepare", self->api->binding_prepare(self->binding, NULL, &error));
    return 0;
  }
  self->api->plan_release(self->plan);
  self->plan = NULL;
  attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
  desc.inputs = args->inputs;
  desc.input_count = args->input_count;
  desc.outputs = args->outputs;
  desc.output_count = args->output_count;
  TRY("prepare", self->api->op_prepare(self->layer->op, &desc, &self->plan, &error));
  return 0;
}

static int execute(const Runner* self, const CallArgs* args) {
  if (self->graph != NULL) {
    TRY("launch the graph",
        self->host->host_graph_launch(self->graph, self->layer->stream, &error));
  } else if (self->binding != NULL) {
    TRY("execute", self->api->binding_execute(self->binding, &self->how, &error));
  } else {
    TRY("execute",
        self->api->plan_execute(self->plan, self->layer->session, args->inputs, args->input_count,
                                args->outputs, args->output_count, &self->how, &error));
  }
  return 0;
}

/* Text out follows the two-call rule: ask for the size, then for the text. */
static int explain(const Runner* self, Choice* out) {
  size_t needed = 0;
  char* text = NULL;
  for (int pass = 0; pass < 2; ++pass) {
    const size_t capacity = text == NULL ? 0 : needed;
    if (self->binding != NULL) {
      TRY("describe", self->api->binding_describe(self->binding, text, capacity, &needed, &error));
    } else {
      TRY("describe", self->api->plan_describe(self->plan, text, capacity, &needed, &error));
    }
    if (text == NULL && (text = calloc(needed, 1)) == NULL) return -1;
  }
  describe_choice(text, "attention", out->engine, sizeof out->engine, out->why, sizeof out->why);
  free(text);
  return 0;
}

/* Captures one step where device and plan allow it. Without a graph steps are executed as such. */
static int capture_step(Runner* self, Generation* out) {
  attn_plan_info info = ATTN_PLAN_INFO_INIT;
  TRY("ask the plan", self->api->plan_get_info(self->plan, &info, &error));
  snprintf(out->capture, sizeof out->capture, "%s", info.reason);
  if ((info.capture_flags & ATTN_CAPTURE_SUPPORTED) == 0) return 0;

  attn_error refusal = ATTN_ERROR_INIT;
  attn_status status =
      self->host->host_graph_begin_capture(self->layer->context, self->layer->stream, &refusal);
  if (status == ATTN_UNSUPPORTED) {
    snprintf(out->capture, sizeof out->capture, "%.500s", refusal.message);
    return 0;
  }
  if (status != ATTN_OK) return plugin_fail("begin a capture", &refusal);
  const int executed = execute(self, &self->layer->step);
  TRY("end the capture", self->host->host_graph_end_capture(
                             self->layer->context, self->layer->stream, &self->graph, &error));
  out->captured = executed == 0;
  return executed;
}

static double now_in_microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int compare_doubles(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return (x > y) - (x < y);
}

/* The median round of many equal steps. Running the last token again and again changes nothing: it
 * writes the same rows to the same place. */
static int time_steps(const Runner* self, Generation* out) {
  const Layer* layer = self->layer;
  double rounds[TIMED_ROUNDS];
  for (int round = 0; round < TIMED_ROUNDS; ++round) {
    const double begin = now_in_microseconds();
    for (int i = 0; i < TIMED_STEPS; ++i) {
      if (execute(self, &layer->step) != 0) return -1;
    }
    TRY("wait for the device",
        self->host->host_stream_synchronize(layer->context, layer->stream, &error));
    rounds[round] = (now_in_microseconds() - begin) / TIMED_STEPS;
  }
  qsort(rounds, TIMED_ROUNDS, sizeof rounds[0], compare_doubles);
  out->microseconds = rounds[TIMED_ROUNDS / 2];
  return 0;
}

static int run(Runner* self, Generation* out) {
  Layer* layer = self->layer;
  if (layer_poison(layer) != 0) return -1;

  if (prepare(self, &layer->prompt) != 0 || explain(self, &out->prompt) != 0) return -1;
  if (layer_set_length(layer, layer->prompt_rows) != 0) return -1;
  if (execute(self, &layer->prompt) != 0) return -1;

  if (prepare(self, &layer->step) != 0 || explain(self, &out->step) != 0) return -1;
  /* Captured or not, what the step reads must be there: the first token and its length. */
  if (layer_load_step(layer, layer->prompt_rows) != 0) return -1;
  if (self->plan != NULL && capture_step(self, out) != 0) return -1;
  for (int64_t row = layer->prompt_rows; row < layer->rows; ++row) {
    if (layer_load_step(layer, row) != 0 || execute(self, &layer->step) != 0 ||
        layer_store_step(layer, row) != 0) {
      return -1;
    }
  }
  if (layer_collect(layer, &out->outcome) != 0) return -1;

  /* On a device a length that breaks a rule shows up here, not in execute. */
  attn_fault_info fault = ATTN_FAULT_INFO_INIT;
  TRY("ask for faults", self->api->session_poll_faults(layer->session, &fault, &error));
  if (fault.bits != 0) {
    fprintf(stderr, "fault: %s\n", fault.text);
    return -1;
  }
  return time_steps(self, out);
}

int generate(Layer* self, Way way, Generation* out) {
  memset(out, 0, sizeof *out);
  Runner runner;
  memset(&runner, 0, sizeof runner);
  runner.layer = self;
  runner.api = self->plugin->api;
  runner.host = self->plugin->host;
  runner.how.struct_size = sizeof runner.how;
  runner.how.stream = self->stream;
  if (way == kBindingWay) {
    TRY("create a binding",
        runner.api->binding_create(self->op, self->session, &runner.binding, &error));
  }
  const int status = run(&runner, out);
  runner.host->host_graph_release(runner.graph);
  runner.api->plan_release(runner.plan);
  runner.api->binding_release(runner.binding);
  return status;
}

void generation_free(Generation* out) { outcome_free(&out->outcome); }
