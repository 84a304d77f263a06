/* Runs the attention of a real model through the attn_c plugin, as an inference runtime would:
 *
 *   load the library, ask what devices and operators there are, open a device, ask whether the
 *   model's node would run, then for every recorded layer run a prompt and the tokens after it, one
 *   by one, with the key/value cache in place; compare every number with the recording.
 *
 *   decode_loop [--library PATH] [--data FOLDER] [--device auto|cpu|cuda] [--prompt TOKENS]
 *
 * Ends with "layers: OK" and 0, or says what differs and ends with 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generate.h"
#include "layer.h"
#include "numbers.h"
#include "plugin.h"
#include "recording.h"
#include "verify.h"

typedef struct Options {
  const char* library;
  const char* data;
  const char* device;
  long prompt; /* tokens run at once; the rest follows one by one */
} Options;

static int usage(const char* complaint) {
  fprintf(stderr,
          "%s\n"
          "usage: decode_loop [--library PATH] [--data FOLDER] [--device auto|cpu|cuda] "
          "[--prompt TOKENS]\n",
          complaint);
  return -1;
}

static int parse_options(int argc, char** argv, Options* out) {
  out->library = NULL;
  out->data = "tests/data/smollm2";
  out->device = "auto";
  out->prompt = 24;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return usage("an option without a value");
    const char* value = argv[i + 1];
    if (strcmp(argv[i], "--library") == 0) {
      out->library = value;
    } else if (strcmp(argv[i], "--data") == 0) {
      out->data = value;
    } else if (strcmp(argv[i], "--device") == 0) {
      out->device = value;
    } else if (strcmp(argv[i], "--prompt") == 0) {
      char* end = NULL;
      out->prompt = strtol(value, &end, 10);
      if (*value == '\0' || *end != '\0') return usage("--prompt takes a number");
    } else {
      return usage("unknown option");
    }
  }
  if (strcmp(out->device, "auto") != 0 && strcmp(out->device, "cpu") != 0 &&
      strcmp(out->device, "cuda") != 0) {
    return usage("--device takes auto, cpu or cuda");
  }
  return 0;
}

static int print_context(const Plugin* library, attn_context* context) {
  attn_context_info info = ATTN_CONTEXT_INFO_INIT;
  TRY("ask the context", library->api->context_get_info(context, &info, &error));
  printf("running on %s (%s)", info.device_name, info.architecture);
  if (info.device_type == ATTN_DEVICE_CPU) {
    printf(", %d threads, instruction set %s of %s", (int)info.thread_count, info.simd_level,
           info.simd_levels);
  }
  printf("\nengines: %s\n", info.engines);
  return 0;
}

/* Why the engines were chosen, of the last layer, for each type. */
typedef struct Reasons {
  Choice prompt[ELEMENT_TYPE_COUNT];
  Choice step[ELEMENT_TYPE_COUNT];
  char capture[512];
} Reasons;

static void print_head(void) {
  printf("\n%5s  %-8s  %-24s  %-21s  %-21s  %15s  %s\n", "", "", "engine", "largest difference",
         "of cached keys", "us a token", "");
  printf("%5s  %-8s  %-24s  %10s %10s  %10s %10s  %7s %7s  %s\n", "layer", "type", "prompt, token",
         "found", "bound", "found", "bound", "binding", "plan", "capture");
}

static void print_row(const Layer* self, const Verdict* found, const Generation* simple,
                      const Generation* fast) {
  char engines[2 * sizeof fast->step.engine + 4];
  snprintf(engines, sizeof engines, "%s, %s", fast->prompt.engine, fast->step.engine);
  printf("%5lld  %-8s  %-24s  %10.2e %10.2e  %10.2e %10.2e  %7.2f %7.2f  %s\n",
         (long long)self->recorded->number, self->type->name, engines, found->output.largest,
         found->output_bound, found->keys.largest, found->keys_bound, simple->microseconds,
         fast->microseconds, fast->captured ? "replayed" : "no");
}

static int print_claim(const Layer* self) {
  attn_support support = ATTN_SUPPORT_INIT;
  if (layer_query(self, &support) != 0) return -1;
  printf("  %s: %s%s%s\n", self->type->name, support.supported ? "yes" : "no: ", support.reason,
         (support.capture_flags & ATTN_CAPTURE_SUPPORTED) != 0 ? ", can be captured" : "");
  return support.supported ? 0 : -1;
}

static int same_bits(const Layer* self, const Outcome* a, const Outcome* b) {
  const size_t outputs = self->buffers[kOutput].bytes;
  const size_t cache = self->buffers[kKeyCache].bytes;
  if (memcmp(a->output, b->output, outputs) == 0 && memcmp(a->keys, b->keys, cache) == 0 &&
      memcmp(a->values, b->values, cache) == 0) {
    return 1;
  }
  fprintf(stderr, "layer %lld, %s: binding and plan give different bits\n",
          (long long)self->recorded->number, self->type->name);
  return 0;
}

/* Both ways through one layer. Returns 0 when everything agrees with the recording. */
static int run_layer(Layer* self, Choice* prompt, Choice* step, char* capture, size_t capacity) {
  Generation simple, fast;
  memset(&fast, 0, sizeof fast);
  int status = generate(self, kBindingWay, &simple);
  if (status == 0) status = generate(self, kPlanWay, &fast);
  if (status == 0) {
    Verdict found;
    verify(self, &simple.outcome, &found);
    int good = verdict_holds(self, &found);
    verify(self, &fast.outcome, &found);
    good &= verdict_holds(self, &found);
    good &= same_bits(self, &simple.outcome, &fast.outcome);
    print_row(self, &found, &simple, &fast);
    *prompt = fast.prompt;
    *step = fast.step;
    snprintf(capture, capacity, "%s", fast.capture);
    status = good ? 0 : -1;
  }
  generation_free(&simple);
  generation_free(&fast);
  return status;
}

static int claim_all(const Plugin* library, attn_context* context, const Recording* model,
                     int64_t prompt) {
  printf("would GroupQueryAttention run, one token with the cache in place?\n");
  int status = 0;
  for (int type = 0; type < ELEMENT_TYPE_COUNT && status == 0; ++type) {
    Layer layer;
    status = layer_open(&layer, library, context, &model->layers[0], &kElementTypes[type], prompt);
    if (status == 0) status = print_claim(&layer);
    layer_close(&layer);
  }
  return status;
}

/* One line for all types that chose the same engine for the same reasons. */
static void print_choices(const char* what, const Choice* choices) {
  int printed[ELEMENT_TYPE_COUNT] = {0};
  for (int type = 0; type < ELEMENT_TYPE_COUNT; ++type) {
    if (printed[type]) continue;
    printf("%s, %s", what, kElementTypes[type].name);
    for (int other = type + 1; other < ELEMENT_TYPE_COUNT; ++other) {
      if (strcmp(choices[type].engine, choices[other].engine) != 0 ||
          strcmp(choices[type].why, choices[other].why) != 0) {
        continue;
      }
      printf(", %s", kElementTypes[other].name);
      printed[other] = 1;
    }
    printf("\n  %s: %s\n", choices[type].engine, choices[type].why);
  }
}

static void print_reasons(const Reasons* why) {
  printf("\n");
  print_choices("prompt", why->prompt);
  print_choices("token", why->step);
  printf("capture: %s\n", why->capture);
}

static int run_all(const Plugin* library, attn_context* context, const Recording* model,
                   int64_t prompt) {
  Reasons why;
  memset(&why, 0, sizeof why);
  int failed = 0;
  print_head();
  for (size_t i = 0; i < model->count; ++i) {
    for (int type = 0; type < ELEMENT_TYPE_COUNT; ++type) {
      Layer layer;
      int status =
          layer_open(&layer, library, context, &model->layers[i], &kElementTypes[type], prompt);
      if (status == 0) {
        status =
            run_layer(&layer, &why.prompt[type], &why.step[type], why.capture, sizeof why.capture);
      }
      layer_close(&layer);
      failed += status != 0;
    }
  }
  print_reasons(&why);
  return failed == 0 ? 0 : -1;
}

static int check_prompt(const Recording* model, long prompt) {
  for (size_t i = 0; i < model->count; ++i) {
    const int64_t rows = model->layers[i].query.shape[0];
    if (prompt < 1 || prompt >= rows) {
      fprintf(stderr, "--prompt %ld: layer %lld has %lld tokens, and at least one must follow\n",
              prompt, (long long)model->layers[i].number, (long long)rows);
      return -1;
    }
  }
  return 0;
}

int main(int argc, char** argv) {
  Options options;
  /* Whole lines, so that what goes to stderr stands where it belongs. */
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
  if (parse_options(argc, argv, &options) != 0) return 1;

  Plugin library;
  Recording model = {NULL, 0};
  attn_context* context = NULL;
  int status = plugin_open(&library, options.library);
  if (status == 0) {
    printf("attn_c %s\n", library.api->version());
    status = plugin_print_devices(&library);
  }
  if (status == 0) status = plugin_print_operators(&library);
  if (status == 0) status = plugin_create_context(&library, options.device, &context);
  if (status == 0) status = print_context(&library, context);
  if (status == 0) status = recording_load(options.data, &model);
  if (status == 0) status = check_prompt(&model, options.prompt);
  if (status == 0) status = claim_all(&library, context, &model, options.prompt);
  if (status == 0) status = run_all(&library, context, &model, options.prompt);
  printf("layers: %s\n", status == 0 ? "OK" : "FAILED");

  if (context != NULL) library.api->context_release(context);
  recording_free(&model);
  plugin_close(&library);
  return status == 0 ? 0 : 1;
}
