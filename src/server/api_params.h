// The parameters of each endpoint: one table that the parsers, the OpenAPI document and its test
// share.
#pragma once

#include <span>
#include <string_view>

#include "base/json.h"
#include "server/api_fields.h"

namespace wader {

struct ApiParam {
  enum class Use : uint8_t {
    read,     // does what OpenAI's reference or the note says
    ignored,  // accepted without effect: it asks for nothing that would change the answer
    refused,  // known, but not to be had here: a 400 with the note, unless the value asks for none
  };
  std::string_view name;
  Use use = Use::read;
  std::string_view schema;  // JSON schema of the value, as text
  std::string_view note;    // one sentence without full stop
};

// In the order in which the document lists them.
std::span<const ApiParam> chat_params();
std::span<const ApiParam> completion_params();
std::span<const ApiParam> responses_params();
std::span<const ApiParam> tokenize_params();
std::span<const ApiParam> detokenize_params();
std::span<const ApiParam> install_params();

// Fails on the first parameter that is not in the table or refused by it. OpenAI refuses unknown
// parameters too; the servers that ignore them answer a misspelt "temprature" as if nothing had
// been asked. Clients may send what is in the table as `ignored`.
void check_params(const Json& body, std::span<const ApiParam> params, FieldReader& fields);

}  // namespace wader
