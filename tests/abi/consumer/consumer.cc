// Uses the installed wrapper: one token of attention, and a refusal as an exception.
#include <attn_c.hpp>
#include <attn_c_host.hpp>
#include <cstdio>

int main() {
  const attn_c::Context context = attn_c::Context::cpu();
  attn_c::Attributes heads;
  heads.set("num_heads", 1).set("kv_num_heads", 1);
  const attn_c::Op op(context, "com.microsoft", "GroupQueryAttention", 1, heads);
  const attn_c::Session session(context);
  float qkv[12] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}, out[4] = {};
  int32_t last = 0, total = 1;
  const attn_c::Arguments inputs = {{0, attn_c::Tensor(qkv, {1, 1, 12})},
                                    {5, attn_c::Tensor(&last, {1})},
                                    {6, attn_c::Tensor(&total)}};
  const attn_c::Arguments outputs = {{0, attn_c::Tensor(out, {1, 1, 4})}};
  op.prepare(inputs, outputs).execute(session, inputs, outputs);
  if (out[0] != 1 || out[3] != 4) {
    std::printf("got %g and %g\n", out[0], out[3]);
    return 1;
  }
  try {
    attn_c::Stream(context).begin_capture();
  } catch (const attn_c::Unsupported&) {
    return 0;
  }
  std::printf("the CPU captures nothing, and said nothing of it\n");
  return 1;
}
