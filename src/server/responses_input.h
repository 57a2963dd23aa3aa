// The `input` of a responses request as messages of the chat form.
#pragma once

#include <string>
#include <vector>

#include "server/api_fields.h"

namespace wader {

struct InputMessages {
  Json messages = Json::array();
  std::vector<std::string> origin;  // of each message: "input[3]"
};

// Items that an assistant's turn consists of (reasoning, text, calls) become one message where one
// can hold them in their order. `instructions` go first, as a system message; empty: none.
InputMessages read_input(const Json& body, const std::string& instructions, FieldReader& fields);

}  // namespace wader
