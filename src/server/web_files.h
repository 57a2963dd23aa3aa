// The dashboard's pages: src/web/ as it was when the program was built (cmake/embed.cmake).
#pragma once

#include <span>
#include <string_view>

namespace wader {

struct EmbeddedFile {
  std::string_view name;  // "chat/view.js"
  std::string_view bytes;
};

std::span<const EmbeddedFile> embedded_web_files();

}  // namespace wader
