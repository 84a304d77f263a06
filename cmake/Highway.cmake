# attn_highway: the headers of Google Highway.
#
# Only headers are used: the CPU back end chooses the instruction set itself (cpu/simd_level.h), so
# no symbol of libhwy is needed and the plugin has no dependency on it at run time.
find_path(HWY_INCLUDE_DIR hwy/highway.h)
mark_as_advanced(HWY_INCLUDE_DIR)
if(NOT HWY_INCLUDE_DIR)
  message(FATAL_ERROR "Google Highway's headers are missing (Debian: libhwy-dev); "
                      "set HWY_INCLUDE_DIR to the folder that holds hwy/highway.h")
endif()
add_library(attn_highway INTERFACE)
target_include_directories(attn_highway SYSTEM INTERFACE "${HWY_INCLUDE_DIR}")
