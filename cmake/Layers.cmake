# attn_add_layer(NAME KIND SOURCES file... [LINK target...])
#
# One layer of the library: a STATIC or OBJECT library whose include roots are src/ and include/.
# A layer links what it may include, and nothing else.
function(attn_add_layer name kind)
  cmake_parse_arguments(PARSE_ARGV 2 ARG "" "" "SOURCES;LINK")
  if(NOT ARG_SOURCES)
    add_library(${name} INTERFACE)
    target_include_directories(
      ${name} INTERFACE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
    target_link_libraries(${name} INTERFACE ${ARG_LINK})
    return()
  endif()
  add_library(${name} ${kind} ${ARG_SOURCES})
  target_include_directories(
    ${name} PUBLIC "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
endfunction()
