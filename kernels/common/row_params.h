// The parameter blocks of the kernels that work on tensors row by row, without lengths.
#pragma once

#include "common/params.h"

namespace attnk {

// A batch row's work is cut into units, a thread each, numbered along the innermost axis first; a
// block takes `span` of them.
struct RowGrid {
  i64 chunks;  // blocks a batch row
  i64 span;
  i64 total;  // units of a batch row
  i64 units;  // of a row: what a thread moves are pieces of 16 bytes where `pieces` says so
};

struct RotaryParams {
  View input, output;
  TransformParams transform;
  i64 cos_batch, sin_batch;  // tables of its own for each batch row
  FaultState* faults;
  FaultRecord* record;
  RowGrid grid;
  i64 heads, rows, label;
  i32 channels, along_heads;  // heads lie closer together than rows
  i32 in_place, pieces;
};

enum { kFaultWriteIndex = 1024 };
enum { kScatterAxes = 6 };

struct ScatterView {
  void* data;
  i64 batch, row;
  i64 axes[kScatterAxes];
};

struct ScatterParams {
  ScatterView past, update, present;
  i64 sizes[kScatterAxes];
  const i64* indices;  // null: 0
  i64 index_stride;
  FaultState* faults;
  FaultRecord* record;
  RowGrid grid;
  i64 new_rows, cache_rows, label;
  i64 rows;  // of the present cache that are written: the new ones in place, else all
  i32 axes, bytes;
  i32 circular, in_place;
  i32 pieces, pad;
};

}  // namespace attnk
