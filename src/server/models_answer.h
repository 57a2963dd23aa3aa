// /v1/models: the one model that is served, under its id and its aliases.
#pragma once

#include <optional>
#include <string_view>

#include "base/json.h"
#include "server/api.h"

namespace wader {

// {object: "list", data: [model]}
Json models_json(const ModelFacts& facts);
// The model object under the name that was asked for, or a 404 that names it.
ApiResult<Json> model_json(std::string_view id, const ModelFacts& facts);

}  // namespace wader
