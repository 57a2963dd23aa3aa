// Files of the source tree that travel in the program. wader_embed() of cmake/embed.cmake makes,
// for a directory, a function that returns them; its declaration stands where they are used.
#pragma once

#include <string_view>

namespace wader {

struct EmbeddedFile {
  std::string_view name;   // within that directory: "chat/view.js"
  std::string_view bytes;  // as they stand in the tree
};

}  // namespace wader
