// `wader stats` beside `wader serve`: once, as JSON, on a terminal, and what goes wrong.
#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include "background.h"
#include "cli_fixture.h"

namespace wader::testing {
namespace {

using ::testing::AllOf;

// A server of the demo model, until the end of the block.
class Served {
 public:
  // `port` 0: a free one.
  Served(const fs::path& home, const std::string& key, const std::string& port = "0")
      : process_({"serve", "demo", "--port", port, "--kernels", "portable", "--memory", "2GiB"},
                 {{"WADER_HOME", home.string()}, {"WADER_API_KEY", key}}, new_log(home)) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (;;) {
      const std::string text = process_.output();
      const size_t at = text.find("served at http://");
      if (at != text.npos && text.find('\n', at) != text.npos) {
        url_ = text.substr(at + 10, text.find('\n', at) - at - 10);
        return;
      }
      if (std::chrono::steady_clock::now() > end) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ADD_FAILURE() << "it does not serve: " << process_.output();
  }
  const std::string& url() const { return url_; }
  std::string port() const { return url_.substr(url_.rfind(':') + 1); }
  void stop() {
    process_.kill_now();
    process_.wait();
  }

 private:
  // Of its own, and there before it is read: what an earlier server said says nothing of this one.
  static fs::path new_log(const fs::path& home) {
    const fs::path log = home / fmt::format("serve-{}.log", started_++);
    std::ofstream{log};
    return log;
  }

  static inline int started_ = 0;
  Background process_;
  std::string url_;
};

TEST_F(Cli, StatsOnce) {
  Served server(home_, "");
  const RunResult result = wader({"stats", server.url(), "--once"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("demo ("), HasSubstr(server.url()), HasSubstr("budget 2.0 GiB"),
                    HasSubstr("0.0 tok/s of answers"), HasSubstr("0 finished"),
                    HasSubstr("of the last 1 s"), Not(HasSubstr("\x1b"))));
  EXPECT_EQ(result.err, "");
  // No terminal: the same without the flag. And by the address that clients have.
  EXPECT_THAT(wader({"stats", server.url() + "/v1"}).out, HasSubstr("of the last 1 s"));

  const Json json = json_of(wader({"stats", server.url(), "--once", "--json"}));
  EXPECT_EQ(json["model"]["id"], "demo");
  EXPECT_EQ(json["plan"]["budget_bytes"], int64_t{2} << 30);
  EXPECT_TRUE(json["counters"].contains("decode_tokens"));
}

TEST_F(Cli, StatsOnATerminal) {
  auto server = std::make_unique<Served>(home_, "");
  Terminal terminal({"stats", server->url()}, {{"TERM", "xterm"}, {"WADER_API_KEY", ""}});
  ASSERT_TRUE(terminal.wait_for("\x1b[?25l")) << terminal.seen();
  ASSERT_TRUE(terminal.wait_for("tok/s of answers")) << terminal.seen();
  ASSERT_TRUE(terminal.wait_for("tok/s of answers")) << terminal.seen();  // drawn again
  const std::string port = server->port();
  server->stop();
  ASSERT_TRUE(terminal.wait_for("not answering for")) << terminal.seen();
  server.reset();
  Served again(home_, "", port);
  // The first picture of a server that has started again knows no rate.
  ASSERT_TRUE(terminal.wait_for("- of answers")) << terminal.seen();
  ASSERT_TRUE(terminal.wait_for("tok/s of answers")) << terminal.seen();
  terminal.type("q");
  EXPECT_EQ(terminal.finish(), 0) << terminal.seen();
  EXPECT_THAT(terminal.seen(), ::testing::EndsWith("\x1b[?7h\x1b[?25h"));

  Terminal plain({"stats", again.url()}, {{"NO_COLOR", "1"}, {"WADER_API_KEY", ""}});
  ASSERT_TRUE(plain.wait_for("0.0 tok/s of answers")) << plain.seen();
  EXPECT_THAT(plain.seen(), Not(::testing::ContainsRegex("\x1b\\[[0-9;]*m")));
  plain.type("\x03");
  EXPECT_EQ(plain.finish(), 0) << plain.seen();
  EXPECT_THAT(plain.seen(), HasSubstr("\x1b[?25h"));
}

TEST_F(Cli, StatsAsLinesOfJson) {
  Served server(home_, "");
  Terminal lines({"stats", server.url(), "--json"}, {{"WADER_API_KEY", ""}});
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(lines.wait_for("\"pool_growths\":0}}\r\n")) << lines.seen();
  lines.type("\x03");
  EXPECT_EQ(lines.finish(), 0) << lines.seen();
  const auto first = parse_json(lines.seen().substr(0, lines.seen().find('\r')), "first line");
  ASSERT_TRUE(first.ok()) << lines.seen();
  EXPECT_EQ(first->at("model")["id"], "demo");
}

TEST_F(Cli, StatsOfAServerWithAKey) {
  Served server(home_, "s3cret");
  expect_error({"stats", server.url(), "--once"}, 1, "needs a key");
  RunOptions options;
  options.env["WADER_API_KEY"] = "wrong";
  const RunResult wrong = wader({"stats", server.url()}, options);
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("does not take this key"));
  options.env["WADER_API_KEY"] = "s3cret";
  EXPECT_EQ(json_of(wader({"stats", server.url(), "--once", "--json"}, options))["model"]["id"],
            "demo");
  const fs::path file = home_ / "key";
  std::ofstream(file) << "s3cret\n";
  fs::permissions(file, fs::perms::owner_read);
  EXPECT_EQ(json_of(wader({"stats", server.url(), "--once", "--json", "--api-key-file",
                           file.string()}))["model"]["id"],
            "demo");
}

TEST_F(Cli, StatsOfNothing) {
  for (const auto& flags : std::vector<std::vector<std::string>>{{}, {"--once"}, {"--json"}}) {
    std::vector<std::string> args = {"stats", "127.0.0.1:1"};
    args.insert(args.end(), flags.begin(), flags.end());
    expect_error(args, 1, "nothing listens at http://127.0.0.1:1\n  start a server with");
  }
  expect_error({"stats", "https://127.0.0.1"}, 2, "tunnel");
  expect_error({"stats", "http://127.0.0.1:1/?x"}, 2, "not the address of a server");
  expect_error({"stats", "127.0.0.1:1", "--api-key-file", "/no/such"}, 1, "/no/such");
}

}  // namespace
}  // namespace wader::testing
