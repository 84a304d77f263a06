"""What users of other implementations ran into (docs/field-reports.md), on the device.

The tests of tests/conformance, run in memory of the device. What stays on the CPU: bad lengths,
which are faults on a device, and a sequence alone and in a batch, both in tests/gpu; packed
sequences and a dense cache that grows where it lies, which CUDA devices do not serve.
"""

import pathlib
import sys

import pytest

import attn_c

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "conformance"))

from on_device import OnDevice  # noqa: E402
from test_attention_reports import (  # noqa: E402, F401
    test_a_bool_mask_is_no_padding_length,
    test_a_different_length_for_each_batch_row,
    test_a_group_of_six_in_bfloat16,
    test_a_length_of_zero,
    test_a_length_that_ends_beside_a_block,
    test_a_present_of_a_capacity,
    test_all_outputs_without_a_past,
    test_biases_of_aligned_widths,
    test_causal_begins_at_the_top_without_a_past,
    test_causal_ends_with_an_external_cache,
    test_causal_shows_the_past,
    test_empty_parts_merge,
    test_finite_mask_and_causal,
    test_head_sizes,
    test_heads_of_a_group_stand_together,
    test_hidden_blocks_are_not_computed,
    test_more_queries_than_keys,
    test_no_keys_at_all,
    test_padding_does_not_leak_through_softcap,
    test_rows_without_a_key_are_zero_in_every_output,
    test_softcap_does_not_undo_a_mask,
    test_strides_that_are_no_multiple_of_16_bytes,
    test_three_dimensions_are_transposed,
    test_windows,
    test_windows_and_groups,
)
from test_gqa_reports import (  # noqa: E402, F401
    test_a_present_longer_than_the_past,
    test_a_sink_counts_once,
    test_decode_in_a_shared_buffer,
    test_different_lengths_in_a_batch,
    test_no_new_keys,
    test_packed_rows_with_rotation_and_separate_caches,
    test_widths_of_the_rotary_table,
)
from test_sequence_reports import (  # noqa: E402, F401
    test_a_prompt_at_once_and_token_by_token,
    test_every_number_of_tokens,
    test_large_states,
    test_ten_thousand_tokens,
    test_the_width_of_the_output_follows_the_larger_head_count,
)


@pytest.fixture(scope="session")
def ctx():
    """Needs no PyTorch: the arrays go into memory of the library's own."""
    reason = next((one.reason for one in attn_c.devices()
                   if one.device_type == 2 and not one.available), "")
    if reason:
        pytest.skip(reason)
    return OnDevice(attn_c.Context("cuda"))
