// generation_config.json of a source, before it is installed.
#pragma once

#include "base/result.h"
#include "checkpoint/source_tree.h"

namespace wader {

// A container is sealed: what would make it useless is refused before hours of work. Fine where the
// source has no such file.
Status check_generation_config(const SourceTree& tree);

}  // namespace wader
