// The claim gate and shape inference.
#include "api/guard.h"
#include "api/request.h"
#include "api/struct_io.h"
#include "api/text.h"

namespace attn::api {
namespace {

// Refusals of the call that was asked about; anything else is a failure of the question.
bool is_an_answer(attn_status status) {
  return status == ATTN_INVALID_ARGUMENT || status == ATTN_UNSUPPORTED || status == ATTN_VERSION;
}

uint32_t capture_flags(const attn_context& context, const Lowering& call) {
  if (!context.facts.can_capture) return 0;
  uint32_t flags =
      ATTN_CAPTURE_SUPPORTED | ATTN_CAPTURE_NEEDS_PREPARE | ATTN_CAPTURE_POINTERS_BAKED;
  if (are_on_device(call.lengths.spec)) flags |= ATTN_CAPTURE_LENGTHS_ON_DEVICE;
  return flags;
}

void refuse(attn_support& answer, attn_status status, std::string_view reason) {
  answer.supported = 0;
  answer.status = status;
  copy_text(answer.reason, reason);
}

void answer_query(attn_op& op, const attn_query_desc& desc, attn_support& answer) {
  attn_context& context = *op.context;
  PlanRequest request;
  request.engine = desc.engine != nullptr ? desc.engine : context.engine;
  const CallShape shape = {desc.inputs,       desc.input_count, desc.outputs,
                           desc.output_count, desc.aliases,     desc.alias_count};
  try {
    context.check_engine(request.engine, "engine");
    ArgumentSet set;
    Lowering lowering;
    lower_shapes(op, shape, Intake::kShapes, set, lowering);
    check_servable(lowering);
    std::string reason;
    if (!context.backend->supports(lowering, request, &reason)) {
      refuse(answer, ATTN_UNSUPPORTED, reason);
      return;
    }
    answer.supported = 1;
    answer.capture_flags = capture_flags(context, lowering);
  } catch (const Error& refusal) {
    if (!is_an_answer(refusal.status())) throw;
    refuse(answer, refusal.status(), refusal.message());
  }
}

void fill_inferred(const attn_op& op, const Tensor& tensor, attn_tensor& out) {
  const DeviceIdentity& device = op.context->facts.identity;
  out.device_type = device.type;
  out.device_id = device.id;
  out.dtype = {tensor.type.code, tensor.type.bits, tensor.type.lanes};
  out.ndim = tensor.rank;
  // Where a size is unknown, so are strides: all zero is row-major then.
  const bool known = tensor.elements() != kAnyDim;
  for (size_t axis = 0; axis < static_cast<size_t>(tensor.rank); ++axis) {
    out.shape[axis] = tensor.shape[axis];
    out.strides[axis] = known ? tensor.strides[axis] : 0;
  }
}

}  // namespace
}  // namespace attn::api

attn_status attn_op_query(attn_op* op, const attn_query_desc* desc, attn_support* support,
                          attn_error* error) {
  return attn::api::guard(error, [&](attn::api::Subject& subject) {
    attn_op& self = attn::api::checked(op, "op");
    subject.keep(self);
    subject.set(self.title);
    const attn_query_desc question = attn::api::copy_in(desc, "desc");
    const attn::api::OutStruct out(support, "support");
    attn::api::check_flags(question.flags, 0, "desc");
    attn::api::check_reserved(question.reserved, "desc");
    attn_support answer{};
    attn::api::answer_query(self, question, answer);
    out.write(answer);
  });
}

attn_status attn_op_infer_output(attn_op* op, const attn_arg* inputs, uint32_t input_count,
                                 uint32_t slot, attn_tensor* output, uint32_t* depends_on_value,
                                 attn_error* error) {
  return attn::api::guard(error, [&](attn::api::Subject& subject) {
    attn_op& self = attn::api::checked(op, "op");
    subject.keep(self);
    subject.set(self.title);
    const attn::api::OutStruct out(output, "output");
    attn::api::ArgumentSet set;
    attn::api::take_inputs(self.signature, inputs, input_count, attn::api::Intake::kShapes, set);
    attn::api::check_required_inputs(self.schema(), set.tensors);
    const int position = attn::api::output_position(self.schema(), slot);
    attn::Tensor tensor;
    const bool depends = attn::api::infer_output(self, set.tensors, position, tensor);
    attn_tensor filled{};
    attn::api::fill_inferred(self, tensor, filled);
    out.write(filled);
    if (depends_on_value != nullptr) *depends_on_value = depends ? 1 : 0;
  });
}
