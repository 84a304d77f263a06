#include "api/arguments.h"

#include <string>
#include <string_view>

#include "api/overlap.h"
#include "core/error.h"

namespace attn::api {
namespace {

int find_slot(std::span<const SlotSchema> slots, uint32_t slot) {
  if (slot < slots.size() && slots[slot].slot == slot) return static_cast<int>(slot);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].slot == slot) return static_cast<int>(i);
  }
  return -1;
}

[[noreturn]] void fail_slot(std::span<const SlotSchema> slots, uint32_t slot, const char* kind) {
  std::string known;
  for (const SlotSchema& schema : slots) {
    if (!known.empty()) known += ", ";
    known += cat(schema.slot, " (", schema.name, ")");
  }
  fail_argument(kind, " slot ", slot, " is unknown; the operator has ", known);
}

void check_memory(const SlotSchema& slot, const DeviceIdentity& device, Placement placement) {
  if (device.type != ATTN_DEVICE_CUDA) return;
  const uint32_t kind = placement == Placement::kHost ? ATTN_MEMORY_HOST : ATTN_MEMORY_DEVICE;
  const uint32_t accepted =
      (slot.memory & ATTN_MEMORY_PINNED) != 0 ? slot.memory | ATTN_MEMORY_HOST : slot.memory;
  if ((accepted & kind) == 0) {
    const bool host = kind == ATTN_MEMORY_HOST;
    fail_argument(slot.name, ": expected ", host ? "device" : "host", " memory; got ",
                  host ? "host" : "device", " memory");
  }
}

void take_one(const SlotSchema& slot, const attn_tensor* tensor, Intake intake, bool is_output,
              const DeviceIdentity& device, Tensor& target, ByteRange& range) {
  if (target.present) fail_argument(slot.name, ": slot ", slot.slot, " is given twice");
  take_tensor(tensor, slot.name, intake, is_output, device, target, range);
  check_memory(slot, device, target.placement);
}

// Lists longer than an operator has slots hold a slot twice: they are refused unread.
void check_list(const void* list, uint32_t count, size_t slots, const char* kind) {
  if (count > slots) {
    fail_argument(count, " ", kind, " are given; the operator has ", slots);
  }
  if (count > 0 && list == nullptr) {
    fail_argument("the list of ", kind, " is null, but its count is ", count);
  }
}

void check_reserved_word(const attn_arg& argument, const char* kind) {
  if (argument.reserved != 0) {
    fail_argument(kind, " slot ", argument.slot, ": reserved is ", argument.reserved,
                  "; it must be 0");
  }
}

void fail_overlap(const SlotSchema& output, const SlotSchema& other, const char* why) {
  fail_argument(output.name, ": shares memory with ", other.name, why);
}

}  // namespace

int input_position(const OperatorSchema& schema, uint32_t slot) {
  const int position = find_slot(schema.inputs, slot);
  if (position < 0) fail_slot(schema.inputs, slot, "input");
  return position;
}

int output_position(const OperatorSchema& schema, uint32_t slot) {
  const int position = find_slot(schema.outputs, slot);
  if (position < 0) fail_slot(schema.outputs, slot, "output");
  return position;
}

void take_input(const Signature& signature, int position, const attn_tensor* tensor, Intake intake,
                ArgumentSet& set) {
  const size_t at = static_cast<size_t>(position);
  take_one(signature.schema->inputs[at], tensor, intake, false, signature.device,
           set.tensors.in[at], set.in_range[at]);
}

void take_output(const Signature& signature, int position, const attn_tensor* tensor, Intake intake,
                 ArgumentSet& set) {
  const size_t at = static_cast<size_t>(position);
  take_one(signature.schema->outputs[at], tensor, intake, true, signature.device,
           set.tensors.out[at], set.out_range[at]);
}

void take_inputs(const Signature& signature, const attn_arg* inputs, uint32_t count, Intake intake,
                 ArgumentSet& set) {
  const OperatorSchema& schema = *signature.schema;
  check_list(inputs, count, schema.inputs.size(), "inputs");
  for (uint32_t i = 0; i < count; ++i) {
    check_reserved_word(inputs[i], "input");
    take_input(signature, input_position(schema, inputs[i].slot), inputs[i].tensor, intake, set);
  }
}

void take_outputs(const Signature& signature, const attn_arg* outputs, uint32_t count,
                  Intake intake, ArgumentSet& set, uint32_t* wanted) {
  const OperatorSchema& schema = *signature.schema;
  check_list(outputs, count, schema.outputs.size(), "outputs");
  for (uint32_t i = 0; i < count; ++i) {
    check_reserved_word(outputs[i], "output");
    const int position = output_position(schema, outputs[i].slot);
    if (wanted != nullptr && outputs[i].tensor == nullptr) {
      *wanted |= 1u << position;
    } else {
      take_output(signature, position, outputs[i].tensor, intake, set);
    }
  }
}

void take_aliases(const OperatorSchema& schema, const attn_alias* aliases, uint32_t count,
                  Arguments& arguments) {
  check_list(aliases, count, schema.outputs.size(), "aliases");
  for (uint32_t i = 0; i < count; ++i) {
    const int input = input_position(schema, aliases[i].input_slot);
    const int output = output_position(schema, aliases[i].output_slot);
    const SlotSchema& in = schema.inputs[static_cast<size_t>(input)];
    const SlotSchema& out = schema.outputs[static_cast<size_t>(output)];
    if (out.may_alias < 0 || static_cast<uint32_t>(out.may_alias) != in.slot) {
      fail_argument(out.name, ": may not share the memory of ", in.name);
    }
    if (!arguments.in[static_cast<size_t>(input)].present ||
        !arguments.out[static_cast<size_t>(output)].present) {
      fail_argument("alias of ", in.name, " and ", out.name,
                    ": both must be among the inputs and outputs");
    }
    arguments.alias[static_cast<size_t>(output)] |= 1u << input;
  }
}

void check_required_inputs(const OperatorSchema& schema, const Arguments& arguments) {
  for (size_t i = 0; i < schema.inputs.size(); ++i) {
    if (schema.inputs[i].optional || arguments.in[i].present) continue;
    fail_argument(schema.inputs[i].name, ": the input in slot ", schema.inputs[i].slot,
                  " is required and absent");
  }
}

void check_required_outputs(const OperatorSchema& schema, const Arguments& arguments) {
  for (size_t i = 0; i < schema.outputs.size(); ++i) {
    if (schema.outputs[i].optional || arguments.out[i].present) continue;
    fail_argument(schema.outputs[i].name, ": the output in slot ", schema.outputs[i].slot,
                  " is required and absent");
  }
}

void check_data(const OperatorSchema& schema, const Arguments& arguments) {
  const auto check = [](const SlotSchema& slot, const Tensor& tensor) {
    if (tensor.present && tensor.data == nullptr && tensor.elements() != 0) {
      fail_argument(slot.name, ": data is null, but the shape ", shape_text(tensor),
                    " has elements");
    }
  };
  for (size_t i = 0; i < schema.inputs.size(); ++i) check(schema.inputs[i], arguments.in[i]);
  for (size_t i = 0; i < schema.outputs.size(); ++i) check(schema.outputs[i], arguments.out[i]);
}

void check_overlaps(const OperatorSchema& schema, const ArgumentSet& set) {
  for (size_t o = 0; o < schema.outputs.size(); ++o) {
    const ByteRange& range = set.out_range[o];
    if (range.begin == range.end) continue;
    const SlotSchema& slot = schema.outputs[o];
    const Tensor& output = set.tensors.out[o];
    for (size_t i = 0; i < schema.inputs.size(); ++i) {
      if (!range.intersects(set.in_range[i])) continue;
      const bool allowed =
          slot.may_alias >= 0 && static_cast<uint32_t>(slot.may_alias) == schema.inputs[i].slot;
      if (allowed && output.data == set.tensors.in[i].data) continue;
      if (!provably_overlap(output, set.tensors.in[i])) continue;
      fail_overlap(slot, schema.inputs[i],
                   allowed ? " in part; it may share all of it from the same address on, or none"
                           : "; they must not overlap");
    }
    for (size_t other = 0; other < o; ++other) {
      if (!range.intersects(set.out_range[other])) continue;
      if (!provably_overlap(output, set.tensors.out[other])) continue;
      fail_overlap(slot, schema.outputs[other], "; they must not overlap");
    }
  }
}

}  // namespace attn::api
