// Integer names and element types, without any toolkit header. Kernels are specialised by macros:
//   ATTN_TYPE      element type of the rows: 1 float16, 2 bfloat16, 3 float32
#pragma once

namespace attnk {

typedef unsigned char u8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

enum { kTypeFloat16 = 1, kTypeBfloat16 = 2, kTypeFloat32 = 3, kTypeBool = 4 };

}  // namespace attnk
