# wader_embed(FOLDER FUNCTION DIRECTORY): the files of DIRECTORY travel in library wader_FOLDER, which then
# defines std::span<const wader::EmbeddedFile> wader::FUNCTION(), sorted by name (base/embedded_file.h).
function(wader_embed folder function directory)
  set(output ${CMAKE_BINARY_DIR}/${function}.cpp)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${directory}/*)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D FUNCTION=${function} -D OUTPUT=${output} -D DIRECTORY=${CMAKE_SOURCE_DIR}/${directory}
      -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${files} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
  target_sources(wader_${folder} PRIVATE ${output})
endfunction()

# As a script, this file writes that source.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()
file(GLOB_RECURSE names RELATIVE ${DIRECTORY} ${DIRECTORY}/*)
list(SORT names)
set(arrays "")
set(table "")
set(index 0)
foreach(name ${names})
  file(READ ${DIRECTORY}/${name} hex HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  # The zero at the end is no part of the file: an array of nothing would not compile.
  string(APPEND arrays "constexpr unsigned char file_${index}[] = {${bytes}0};\n")
  string(APPEND table
    "    {\"${name}\", {reinterpret_cast<const char*>(file_${index}), sizeof file_${index} - 1}},\n")
  math(EXPR index "${index} + 1")
endforeach()
if(names)
  set(body "const EmbeddedFile kFiles[] = {\n${table}};\n")
  set(list "kFiles")
else()
  set(list "{}")
endif()
file(WRITE ${OUTPUT}.new "#include <span>

#include \"base/embedded_file.h\"

namespace wader {
namespace {
${arrays}${body}}  // namespace
std::span<const EmbeddedFile> ${FUNCTION}();
std::span<const EmbeddedFile> ${FUNCTION}() {
  return ${list};
}
}  // namespace wader
")
file(RENAME ${OUTPUT}.new ${OUTPUT})
