// wader stats: the figures of a running `wader serve`, once or live.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/ascii.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/api_key.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/live_screen.h"
#include "cli/stats_view.h"
#include "cli/text.h"
#include "server/stats_client.h"
#include "server/stats_figures.h"

namespace wader {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using State = StatsReply::State;

constexpr milliseconds kInterval{1000};
constexpr double kRecentSeconds = 5;  // that live rates and shares are of

bool go_on() {
  return !interrupted();
}

Result<StatsClient> client_for(const Args& args) {
  ASSIGN_OR_RETURN(ServerUrl url, args.has_operand(0) ? parse_server_url(args.operand(0))
                                                      : Result<ServerUrl>(ServerUrl()));
  ASSIGN_OR_RETURN(std::optional<std::string> key, api_key(args));
  return StatsClient::create(std::move(url), std::move(key));
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

// Whether the words of a locale say that it is UTF-8; the first that is set counts.
bool utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string locale = lower_ascii(value);
    return locale.find("utf-8") != locale.npos || locale.find("utf8") != locale.npos;
  }
  return false;
}

Error error_of(const StatsReply& reply) {
  switch (reply.state) {
    case State::absent:
      return not_found_error("{}", reply.text);
    case State::stopped:
      return cancelled_error("stopped");
    default:
      return io_error("{}", reply.text);
  }
}

// Sleeps until `end`; false when interrupted.
bool pause_until(Clock::time_point end) {
  for (;;) {
    if (interrupted()) return false;
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    if (left <= milliseconds(0)) return true;
    poll(nullptr, 0, static_cast<int>(std::min(left, milliseconds(100)).count()));
  }
}

void print_document(std::string_view document) {
  // The server's, on one line, and nothing in it that a terminal would obey.
  const auto json = parse_json(document, "/wader/stats");
  const std::string text = json.ok() ? json_text(*json) : std::string(document);
  print((output_is_terminal() ? terminal_safe(text) : text) + "\n");
  flush_output();
}

// A document each second, as long as somebody reads them.
Result<int> stream_json(const StatsClient& client) {
  State before = State::stats;
  bool answered = false;
  while (go_on() && output_status().ok()) {
    const auto next = Clock::now() + kInterval;
    const StatsReply reply = client.ask(go_on);
    if (reply.state == State::stopped) break;
    if (reply.state == State::refused || (reply.state == State::absent && !answered))
      return error_of(reply);
    if (reply.state == State::stats) {
      print_document(reply.text);
      answered = true;
    } else if (reply.state != before) {
      print_note(fmt::format("{}; asking again every second", first_line(reply.text)));
    }
    before = reply.state;
    if (!pause_until(next)) break;
  }
  return 0;
}

Result<StatsSnapshot> ask_once(const StatsClient& client) {
  const StatsReply reply = client.ask(go_on);
  if (reply.state != State::stats) return error_of(reply);
  return read_stats(reply.text);
}

Result<int> show_once(const StatsClient& client) {
  StatsHistory history;
  ASSIGN_OR_RETURN(StatsSnapshot first, ask_once(client));
  history.push(std::move(first));
  if (!pause_until(Clock::now() + kInterval)) return cancelled_error("stopped");
  ASSIGN_OR_RETURN(StatsSnapshot second, ask_once(client));
  history.push(std::move(second));
  ScreenStyle style;
  if (output_is_terminal()) style.columns = screen_size().columns;
  style.colour = use_colour();
  style.blocks = utf8_locale();
  for (const std::string& line : stats_lines(history, client.url().text(), 1, "", style))
    print(line + "\n");
  return 0;
}

// The live view: what is known, what is wrong, and the screen.
class Watch {
 public:
  explicit Watch(const StatsClient& client) : client_(client) {}
  Result<int> run();

 private:
  // `asked`: when.
  Status take(const StatsReply& reply, Clock::time_point asked);
  void draw();
  // Until `end`; false when the user has had enough.
  bool wait_until(Clock::time_point end);

  const StatsClient& client_;
  StatsHistory history_;
  std::string notice_;
  std::optional<Clock::time_point> silent_since_;
  std::optional<LiveScreen> screen_;  // from the first answer on
};

void Watch::draw() {
  const ScreenSize size = screen_size();
  ScreenStyle style;
  style.columns = size.columns;
  style.lines = size.lines > 1 ? size.lines - 1 : 1;
  style.colour = use_colour();
  style.blocks = utf8_locale();
  screen_->draw(stats_lines(history_, client_.url().text(), kRecentSeconds, notice_, style));
}

bool Watch::wait_until(Clock::time_point end) {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    switch (screen_->wait(std::max(left, milliseconds(0)))) {
      case LiveScreen::Event::none:
        return true;
      case LiveScreen::Event::quit:
        return false;
      case LiveScreen::Event::drawn:
        draw();
    }
  }
}

Status Watch::take(const StatsReply& reply, Clock::time_point asked) {
  if (reply.state == State::stats) {
    ASSIGN_OR_RETURN(StatsSnapshot snapshot, read_stats(reply.text));
    history_.push(std::move(snapshot));
    notice_.clear();
    silent_since_.reset();
    return {};
  }
  const bool never = history_.empty() && !screen_;
  if (reply.state == State::refused || (reply.state == State::absent && never))
    return error_of(reply);
  if (!silent_since_) silent_since_ = asked;
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(Clock::now() - *silent_since_);
  notice_ = reply.state == State::loading ? fmt::format("{}; asking again", first_line(reply.text))
                                          : fmt::format("not answering for {} s: {}; asking again",
                                                        seconds.count(), first_line(reply.text));
  return {};
}

Result<int> Watch::run() {
  for (;;) {
    const auto asked = Clock::now();
    const StatsReply reply = client_.ask([this] {
      return screen_ ? wait_until(Clock::now()) : go_on();  // keys count while a server is slow
    });
    if (reply.state == State::stopped) return 0;
    RETURN_IF_ERROR(take(reply, asked));
    if (!screen_) screen_.emplace();
    draw();
    if (!output_status().ok() || !wait_until(asked + kInterval)) return 0;
  }
}

}  // namespace

Result<int> run_stats(const Args& args) {
  ASSIGN_OR_RETURN(const StatsClient client, client_for(args));
  watch_interrupts();
  if (args.has("--json")) {
    if (!args.has("--once")) return stream_json(client);
    const StatsReply reply = client.ask(go_on);
    if (reply.state != State::stats) return error_of(reply);
    print_document(reply.text);
    return 0;
  }
  if (args.has("--once") || !output_is_terminal()) return show_once(client);
  return Watch(client).run();
}

}  // namespace wader
