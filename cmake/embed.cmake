# cmake -D OUTPUT=… -D DIRECTORY=… -P embed.cmake: a C++ file with the files of a directory as bytes
# (src/server/web_files.h).
file(GLOB_RECURSE names RELATIVE ${DIRECTORY} ${DIRECTORY}/*)
list(SORT names)
set(arrays "")
set(table "")
set(index 0)
foreach(name ${names})
  file(READ ${DIRECTORY}/${name} hex HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND arrays "constexpr unsigned char file_${index}[] = {${bytes}0};\n")
  string(APPEND table
    "    {\"${name}\", {reinterpret_cast<const char*>(file_${index}), sizeof file_${index} - 1}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUTPUT}.new "#include \"server/web_files.h\"\n\nnamespace wader {\nnamespace {\n${arrays}
const EmbeddedFile kFiles[] = {\n${table}};\n}  // namespace
std::span<const EmbeddedFile> embedded_web_files() {\n  return kFiles;\n}\n}  // namespace wader\n")
file(RENAME ${OUTPUT}.new ${OUTPUT})
