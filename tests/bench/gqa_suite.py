"""Suite `gqa`: GroupQueryAttention, prefill and decode, next to ONNX Runtime."""

import case_file
import cpu_suite
import gqa_memory

OPERATOR = (
    "com.microsoft", 1, "GroupQueryAttention",
    ("query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length",
     "cos_cache", "sin_cache"),
    ("output", "present_key", "present_value"))

SUITE = cpu_suite.Suite(
    "gqa", OPERATOR, case_file.read_gqa_cases, gqa_memory.attributes, gqa_memory.argument_sets,
    lambda case: {"float32": 1.0, "float16": 2.0}.get(case.type))
