#include "cuda/host_lengths.h"

#include <algorithm>
#include <vector>

#include "common/params.h"
#include "core/lengths.h"

namespace attn::cuda {
namespace {

void check_all(const Lengths& lengths) {
  std::vector<RowLengths> rows(static_cast<size_t>(lengths.batch));
  resolve_lengths(lengths, rows);
}

// A copy in host memory of what `source` addresses; `count` elements, the last one included.
template <class T>
std::vector<T> fetch(const Driver& driver, const T* source, int64_t count, CUstream stream) {
  std::vector<T> out(static_cast<size_t>(count));
  check(driver,
        driver.MemcpyAsync(reinterpret_cast<CUdeviceptr>(out.data()),
                           reinterpret_cast<CUdeviceptr>(source), out.size() * sizeof(T), stream),
        "cuMemcpyAsync");
  return out;
}

}  // namespace

void check_host_lengths(const Lengths& lengths) {
  if (lengths.spec.bound != Placement::kHost) return;  // the device holds them against it
  Lengths known = lengths;
  if (known.positions != nullptr) known.table_rows = -1;  // positions are in device memory
  // Row by row, for nothing is allocated where all is well.
  RowLengths row;
  for (int64_t b = 0; b < lengths.batch; ++b) {
    if (resolve_row(known, b, row) != 0) check_all(known);
  }
}

void check_device_lengths(const CudaContext& context, const Lengths& lengths, CUstream stream) {
  if (lengths.spec.rule == LengthRule::kUniform || lengths.batch == 0) return;
  const Driver& driver = context.driver;
  Lengths known = lengths;
  if (lengths.spec.rule == LengthRule::kValid) {
    const std::vector<int64_t> valid =
        fetch(driver, lengths.valid, (lengths.batch - 1) * lengths.valid_stride + 1, stream);
    known.valid = valid.data();
    check(driver, driver.StreamSynchronize(stream), "cuStreamSynchronize");
    return check_all(known);
  }
  std::vector<int32_t> values, bound;
  std::vector<int64_t> positions;
  if (lengths.spec.values == Placement::kDevice) {
    values = fetch(driver, lengths.values, (lengths.batch - 1) * lengths.value_stride + 1, stream);
    known.values = values.data();
  }
  if (lengths.spec.bound == Placement::kDevice) {
    bound = fetch(driver, lengths.bound, 1, stream);
    known.bound = bound.data();
  }
  if (lengths.positions != nullptr && lengths.query_rows > 0) {
    positions = fetch(driver, lengths.positions,
                      (lengths.batch - 1) * lengths.position_batch +
                          (lengths.query_rows - 1) * lengths.position_row + 1,
                      stream);
    known.positions = positions.data();
  }
  check(driver, driver.StreamSynchronize(stream), "cuStreamSynchronize");
  check_all(known);
}

void store_lengths(const Driver& driver, const LoadedKernel& kernel, const Lengths& lengths,
                   CUdeviceptr out, CUstream stream) {
  attnk::StoreLengthsParams params;
  for (int64_t first = 0; first < lengths.batch; first += attnk::kStoredLengths) {
    params.out = reinterpret_cast<attnk::i32*>(out) + first;
    params.count = std::min<int64_t>(attnk::kStoredLengths, lengths.batch - first);
    for (int64_t i = 0; i < params.count; ++i) {
      params.values[i] = lengths.values[(first + i) * lengths.value_stride];
    }
    void* arguments[] = {&params};
    launch_kernel(driver, kernel, 1, attnk::kStoredLengths, stream, arguments, false);
  }
}

}  // namespace attn::cuda
