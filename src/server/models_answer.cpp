#include "server/models_answer.h"

#include "server/answer_request.h"
#include "server/api_fields.h"

namespace wader {
namespace {

Json object_of(std::string_view id, const ModelFacts& facts) {
  return {{"id", id},
          {"object", "model"},
          {"created", facts.created_unix_s},
          {"owned_by", "wader"},
          {"context_length", facts.context}};
}

}  // namespace

Json models_json(const ModelFacts& facts) {
  return {{"object", "list"}, {"data", Json::array({object_of(facts.id, facts)})}};
}

ApiResult<Json> model_json(std::string_view id, const ModelFacts& facts) {
  const Json asked = {{"model", id}};
  FieldReader fields(asked);
  read_model(fields, facts);
  if (!fields.ok()) return fields.error();
  return object_of(id, facts);
}

}  // namespace wader
