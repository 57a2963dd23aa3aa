// The key of a server: what `wader serve` asks for, and what those who ask it send.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "cli/args.h"

namespace wader {

// From --api-key-file, else the environment variable WADER_API_KEY. Notes on standard error a file
// that others can read.
Result<std::optional<std::string>> api_key(const Args& args);

}  // namespace wader
