// attn_op: an operator with its attributes, checked once.
#pragma once

#include <memory>
#include <string>

#include "api/arguments.h"
#include "api/context.h"
#include "api/handle.h"
#include "ops/operator.h"

// Immutable. Threads: any. Plans and bindings keep it.
struct attn_op final : attn::api::Object<attn_op, attn::api::ObjectKind::kOp> {
  attn_op(attn_context& owner, std::unique_ptr<attn::Operator> front_end, std::string name);

  const attn::OperatorSchema& schema() const { return *signature.schema; }

  attn::api::Ref<attn_context> context;
  std::unique_ptr<attn::Operator> contract;
  std::string label;
  uint32_t label_number;  // of the context's labels
  std::string title;      // for messages: "GroupQueryAttention 'layer3'"
  attn::api::Signature signature;

 private:
  attn::api::LiveCount live_;
};
