# attn_embed_kernels(OUTPUT file): writes a C++ source with the text of every file under kernels/.
#
# A raw string literal may not grow beyond what compilers accept, so a text goes in as pieces.
function(attn_embed_kernels output)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/kernels"
    "${PROJECT_SOURCE_DIR}/kernels/*.h" "${PROJECT_SOURCE_DIR}/kernels/*.cu")
  list(SORT files)
  set(body "// Made by cmake/EmbedKernels.cmake from kernels/.\n")
  string(APPEND body "#include \"cuda/kernel_sources.h\"\n\n")
  string(APPEND body "namespace attn::cuda {\nnamespace {\n\n")
  string(APPEND body "constexpr KernelSource kSources[] = {\n")
  foreach(file IN LISTS files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
      "${PROJECT_SOURCE_DIR}/kernels/${file}")
    file(READ "${PROJECT_SOURCE_DIR}/kernels/${file}" text)
    string(APPEND body "    {\"${file}\", R\"kernel(${text})kernel\"},\n")
  endforeach()
  string(APPEND body "};\n\n}  // namespace\n\n")
  string(APPEND body "std::span<const KernelSource> kernel_sources() { return kSources; }\n\n")
  string(APPEND body "}  // namespace attn::cuda\n")
  file(CONFIGURE OUTPUT "${output}" CONTENT "@body@" @ONLY)
endfunction()
