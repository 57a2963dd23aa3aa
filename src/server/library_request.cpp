#include "server/library_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>

#include "install/hub_rules.h"
#include "install/models.h"
#include "server/api_fields.h"
#include "server/api_params.h"

namespace wader {
namespace {

constexpr size_t kMaxSourceBytes = 1024;

void read_format(FieldReader& fields, std::string_view key,
                 std::initializer_list<std::string_view> formats,
                 std::vector<std::string>& arguments) {
  std::string text;
  if (!fields.read(key, text)) return;
  if (std::find(formats.begin(), formats.end(), text) == formats.end())
    return fields.fail(key, fmt::format("must be one of {}", fmt::join(formats, ", ")));
  arguments.push_back(fmt::format("--{}", key));
  arguments.push_back(std::move(text));
}

// Never an option of the command line, nor a path that depends on where the server was started.
bool is_source(const std::string& text) {
  if (text.find('\0') != text.npos || text.size() > kMaxSourceBytes) return false;
  std::error_code ignored;
  if (is_model_of_hub(text)) return !std::filesystem::exists(text, ignored);
  return std::filesystem::path(text).is_absolute();
}

}  // namespace

ApiResult<InstallRequest> parse_install(const Json& body) {
  FieldReader fields(body);
  InstallRequest request;
  check_params(body, install_params(), fields);
  if (!fields.read("source", request.source)) fields.fail("source", "is missing");
  if (fields.ok() && !is_source(request.source))
    fields.fail("source",
                "must be ORG/NAME, a model of the hub, or the whole path of a checkpoint");
  read_format(fields, "experts", {"auto", "mxfp4", "affine4", "affine8", "bf16"},
              request.arguments);
  read_format(fields, "trunk", {"auto", "affine8", "bf16"}, request.arguments);
  if (!fields.ok()) return fields.error();
  request.name = model_name_from(request.source);
  return request;
}

std::optional<ApiError> check_empty_body(std::string_view body) {
  if (body.empty()) return {};
  const ApiResult<Json> json = parse_body(body);
  if (const auto* error = std::get_if<ApiError>(&json)) return *error;
  FieldReader fields(std::get<Json>(json));
  check_params(std::get<Json>(json), {}, fields);
  if (fields.ok()) return {};
  return fields.error();
}

}  // namespace wader
