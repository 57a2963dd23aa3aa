// The dashboard's pages: src/web/ as it was when the program was built (wader_embed in
// cmake/embed.cmake).
#pragma once

#include <span>

#include "base/embedded_file.h"

namespace wader {

std::span<const EmbeddedFile> embedded_web_files();

}  // namespace wader
