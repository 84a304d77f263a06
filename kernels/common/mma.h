// Tensor-core and asynchronous-copy instructions of sm_80 and later, as inline PTX.
#pragma once

#include "common/device.h"

namespace attnk {

ATTN_DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Four 8x8 tiles of 16-bit elements. Lane l gives the address of row l % 8 of tile l / 8.
ATTN_DEVICE void ldmatrix_x4(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
ATTN_DEVICE void ldmatrix_x4_trans(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
// c (16x8 float) += a (16x16) * b (16x8).
template <int type>
ATTN_DEVICE void mma_16x8x16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if constexpr (type == kTypeFloat16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// 16 bytes from global to shared memory, past L1; zeros instead when `valid` is false (the address
// is then not read).
ATTN_DEVICE void copy_async_16(u32 target, const void* source, bool valid) {
  int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(target), "l"(source),
               "r"(bytes)
               : "memory");
}
ATTN_DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>
ATTN_DEVICE void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace attnk
