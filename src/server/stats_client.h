// StatsClient: asks a running `wader serve` for GET /wader/stats, over plain HTTP/1.1 and a
// connection of its own each time. What comes back is bounded (kMaxStatsBytes) and waited for no
// longer than kStatsTimeout, connecting included. Blocks the calling thread; one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace wader {

constexpr uint64_t kMaxStatsBytes = 1 << 20;
constexpr std::chrono::milliseconds kStatsTimeout{5000};

// Where a server is reached: by itself, or below a path of a proxy.
struct ServerUrl {
  std::string host = "127.0.0.1";  // IPv6 in brackets
  uint16_t port = 8080;
  std::string path = {};  // "" or "/models/a", what stands before "/wader/stats"

  std::string text() const;  // "http://127.0.0.1:8080/models/a"
};

// "http://HOST[:PORT][/PATH]", or "HOST[:PORT]". Without a port, a URL means 80 as everywhere and a
// bare host 8080. The addresses that clients and the dashboard use ("…/v1", "…/wader/stats") mean
// their server. invalid_argument for anything else; of https it says what to do.
Result<ServerUrl> parse_server_url(std::string_view text);

struct StatsReply {
  enum class State : uint8_t {
    stats,    // `text` is the JSON document; else it says what is wrong, with the address
    loading,  // it is a server that cannot say yet (503)
    absent,   // nothing listens there, or no way leads there
    silent,   // something listens there, and gave no whole answer
    refused,  // it will not say, or is no Wader: asking again does not help
    stopped,  // the caller wanted no answer any more
  };
  State state;
  std::string text;
};

// What a whole answer means. `sent_key`: the question carried one.
StatsReply judge_stats_answer(const ServerUrl& url, int status, std::string body, bool sent_key);

class StatsClient {
 public:
  // Looks the host up, once. not_found when its name is unknown.
  static Result<StatsClient> create(ServerUrl url, std::optional<std::string> api_key);

  const ServerUrl& url() const { return url_; }
  // `go_on` is asked some ten times a second while there is nothing to do but wait.
  StatsReply ask(const std::function<bool()>& go_on,
                 std::chrono::milliseconds timeout = kStatsTimeout) const;

 private:
  StatsClient() = default;

  ServerUrl url_;
  std::optional<std::string> api_key_;
  std::vector<std::string> addresses_;  // of the host, as numbers, in the order to be tried
};

}  // namespace wader
