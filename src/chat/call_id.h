// Ids of tool calls that a model made, where its format has none.
#pragma once

#include <string>

namespace wader {

// "call_" and 16 hex digits. Unique in the process and, by its random base, between processes that
// share a saved conversation. Any thread.
std::string new_call_id();

}  // namespace wader
