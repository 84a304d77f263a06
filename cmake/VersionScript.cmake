# attn_version_script(OUT_VARIABLE)
#
# Writes the linker's version script from src/api/api_list.inc, the one list of exported functions:
# every line `ATTN_API(name)`, `ATTN_HOST_API(name)` or `ATTN_ENTRY(name)` exports attn_<name>.
# Sets OUT_VARIABLE to the script's path.
function(attn_version_script out)
  set(list "${PROJECT_SOURCE_DIR}/src/api/api_list.inc")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${list}")
  file(STRINGS "${list}" lines REGEX "^ATTN_(API|HOST_API|ENTRY)\\(")
  set(symbols "")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^ATTN_[A-Z_]+\\( *([a-z0-9_]+).*$" "\\1" name "${line}")
    string(APPEND symbols "    attn_${name};\n")
  endforeach()
  if(symbols STREQUAL "")
    message(FATAL_ERROR "${list} names no function")
  endif()
  set(script "${CMAKE_CURRENT_BINARY_DIR}/attn_c.map")
  file(CONFIGURE OUTPUT "${script}" @ONLY CONTENT
"ATTN_@ATTN_C_ABI_VERSION@ {
  global:
@symbols@  local:
    *;
};
")
  set(${out} "${script}" PARENT_SCOPE)
endfunction()
