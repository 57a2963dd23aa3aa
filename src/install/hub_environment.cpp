// What the environment says about the hub, in the variables that its own tools use.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/units.h"
#include "install/hub_client.h"
#include "io/file.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string trimmed(std::string text) {
  const auto blank = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  while (!text.empty() && blank(text.back())) text.pop_back();
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), blank));
  return text;
}

Result<uint32_t> number(const char* name, uint32_t min, uint32_t max, uint32_t otherwise) {
  const std::string text = variable(name);
  if (text.empty()) return otherwise;
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < min || value > max)
    return invalid_argument_error("{} must be a whole number from {} to {}", name, min, max);
  return value;
}

Result<std::string> find_token() {
  std::string token = trimmed(variable("HF_TOKEN"));
  if (token.empty()) {
    fs::path file = variable("HF_TOKEN_PATH");
    if (file.empty() && !hub_home().empty()) file = hub_home() / "token";
    std::error_code error;
    if (file.empty() || !fs::is_regular_file(file, error)) return std::string();
    ASSIGN_OR_RETURN(token, read_text_file(file, 64 * kKiB));
    token = trimmed(std::move(token));
  }
  // It becomes part of a header. The text itself is in no message.
  if (!std::all_of(token.begin(), token.end(), [](char c) { return c > 0x20 && c < 0x7f; }))
    return invalid_argument_error("the hub's token has characters that no token has");
  return token;
}

// The address itself is in no message: it may hold a password.
Status check_endpoint(const std::string& endpoint) {
  const auto origin = url_origin(endpoint);
  if (endpoint.find('@') != endpoint.npos)
    return invalid_argument_error(
        "HF_ENDPOINT has a user or password in it: give the address without them, and a token in "
        "HF_TOKEN");
  if (!origin.ok() && origin.error().code != ErrorCode::invalid_argument) return origin.error();
  if (!origin.ok() || endpoint.find_first_of("?# ") != endpoint.npos)
    return invalid_argument_error(
        "HF_ENDPOINT is no http or https address of a hub, as https://huggingface.co is one");
  return {};
}

}  // namespace

fs::path hub_home() {
  if (const std::string home = variable("HF_HOME"); !home.empty()) return home;
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return fs::path(cache) / "huggingface";
  if (const std::string home = variable("HOME"); !home.empty())
    return fs::path(home) / ".cache/huggingface";
  return {};
}

fs::path hub_cache() {
  if (const std::string cache = variable("HF_HUB_CACHE"); !cache.empty()) return cache;
  return hub_home().empty() ? fs::path() : hub_home() / "hub";
}

Result<HubSettings> hub_settings_from_environment() {
  HubSettings settings;
  if (const std::string endpoint = variable("HF_ENDPOINT"); !endpoint.empty())
    settings.endpoint = endpoint;
  RETURN_IF_ERROR(check_endpoint(settings.endpoint));
  ASSIGN_OR_RETURN(settings.token, find_token());
  ASSIGN_OR_RETURN(settings.connections,
                   number("WADER_HUB_CONNECTIONS", 1, 64, settings.connections));
  ASSIGN_OR_RETURN(const uint32_t stall, number("WADER_HUB_STALL_SECONDS", 1, 3600, 20));
  settings.http.stall_time = std::chrono::seconds(stall);
  ASSIGN_OR_RETURN(settings.retry.tries, number("WADER_HUB_TRIES", 1, 1000, settings.retry.tries));
  ASSIGN_OR_RETURN(const uint32_t first, number("WADER_HUB_RETRY_MS", 1, 60'000, 250));
  settings.retry.first_delay = std::chrono::milliseconds(first);
  return settings;
}

}  // namespace wader
