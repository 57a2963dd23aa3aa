// The released chat template of a container: which variant of its family's chat format it uses.
#pragma once

#include <string>

#include "base/result.h"
#include "container/container.h"

namespace wader {

// Text of chat_template.jinja, else the one in tokenizer_config.json, else empty. Errors name the
// file.
Result<std::string> chat_template_of(const Container& container);

}  // namespace wader
