# wader_embed(FOLDER FUNCTION files…): the files travel in library wader_FOLDER, which then defines
# std::span<const wader::EmbeddedFile> wader::FUNCTION(), in the order given (base/embedded_file.h).
# Run as a script (cmake -P), this file writes that source.

if(CMAKE_SCRIPT_MODE_FILE)
  string(REPLACE "|" ";" files "${FILES}")
  set(arrays "")
  set(entries "")
  set(index 0)
  foreach(file ${files})
    file(READ ${file} hex HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
    get_filename_component(name ${file} NAME)
    # The zero at the end is no part of the file: an array of nothing would not compile.
    string(APPEND arrays "constexpr unsigned char k${index}[] = {${bytes}0};\n")
    string(APPEND entries "    {\"${name}\", {reinterpret_cast<const char*>(k${index}), sizeof k${index} - 1}},\n")
    math(EXPR index "${index} + 1")
  endforeach()
  file(WRITE ${OUTPUT}.new "#include <span>

#include \"base/embedded_file.h\"

namespace wader {
namespace {
${arrays}}  // namespace

std::span<const EmbeddedFile> ${FUNCTION}();
std::span<const EmbeddedFile> ${FUNCTION}() {
  static const EmbeddedFile files[] = {
${entries}  };
  return files;
}

}  // namespace wader
")
  file(RENAME ${OUTPUT}.new ${OUTPUT})
  return()
endif()

function(wader_embed folder function)
  set(output ${CMAKE_BINARY_DIR}/embedded/${function}.cpp)
  # A list's semicolons would not survive the command line.
  list(JOIN ARGN "|" files)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DFUNCTION=${function} -DOUTPUT=${output} "-DFILES=${files}"
      -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${ARGN} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    COMMENT "Embedding ${function}" VERBATIM)
  target_sources(wader_${folder} PRIVATE ${output})
endfunction()
