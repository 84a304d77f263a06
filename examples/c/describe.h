/* Finds the chosen engine in the library's JSON description of a plan. */
#ifndef ATTN_EXAMPLE_DESCRIBE_H_
#define ATTN_EXAMPLE_DESCRIBE_H_

#include <stddef.h>

/* Looks up a stage ("attention", "kv_update") in the text of attn_plan_describe: the engine that
 * runs it, and in words why: what the library says of the choice, then a line for every engine that
 * it passed over. Texts are cut to fit; "?" stands where the description has no such stage.
 */
void describe_choice(const char* json, const char* stage, char* engine, size_t engine_capacity,
                     char* why, size_t why_capacity);

#endif
