#include "cuda/capture.h"

#include "core/error.h"

namespace attn::cuda {

Capture capture_of(const Driver& driver, CUstream stream) {
  int status = kCaptureStatusNone;
  unsigned long long id = 0;
  Capture capture;
  const CUresult result =
      driver.StreamGetCaptureInfo(stream, &status, &id, &capture.graph, nullptr, nullptr);
  if (result == kCudaStreamCaptureImplicit) {
    throw_error(ATTN_CAPTURE,
                "the legacy default stream cannot be used while another stream captures in global "
                "mode: execute on a stream of your own",
                native_error(result));
  }
  check(driver, result, "cuStreamGetCaptureInfo");
  if (status == kCaptureStatusInvalidated) {
    throw_error(ATTN_CAPTURE,
                "the stream's capture was invalidated by an error before this call: end it, which "
                "gives no graph, and capture again");
  }
  capture.active = status == kCaptureStatusActive;
  return capture;
}

}  // namespace attn::cuda
