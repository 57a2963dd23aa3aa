// The program on a terminal: the chat, and what asks before it acts.
#include <fstream>
#include <sstream>

#include "cli_fixture.h"

namespace wader::testing {
namespace {

TEST_F(Cli, ChatOnATerminal) {
  // The slow kernels: an answer of thousands of tokens took others less than a second.
  Terminal terminal({"chat", "demo", "--seed", "7", "--temperature", "4", "--kernels", "ref",
                     "--date", "2026-11-30"},
                    {{"WADER_HOME", home_.string()},
                     {"XDG_STATE_HOME", (home_ / "state").string()},
                     {"TERM", "xterm"}});
  ASSERT_TRUE(terminal.wait_for("> ")) << terminal.seen();
  // At this temperature an answer is thousands of random tokens long: Ctrl-C comes in the middle of
  // it.
  terminal.type("Write a poem.\r");
  ASSERT_TRUE(terminal.wait_for("reading the prompt")) << terminal.seen();
  usleep(300'000);
  terminal.type("\x03");
  ASSERT_TRUE(terminal.wait_for("stopped")) << terminal.seen();
  ASSERT_TRUE(terminal.wait_for("> ")) << terminal.seen();
  terminal.type("/stats\r");
  ASSERT_TRUE(terminal.wait_for("hit rate")) << terminal.seen();
  ASSERT_TRUE(terminal.wait_for("> ")) << terminal.seen();
  terminal.type("/nonsense\r");
  ASSERT_TRUE(terminal.wait_for("unknown command /nonsense")) << terminal.seen();
  ASSERT_TRUE(terminal.wait_for("> ")) << terminal.seen();
  terminal.type("typed but not sent");
  ASSERT_TRUE(terminal.wait_for("not sent")) << terminal.seen();
  usleep(100'000);
  terminal.type("\x03");
  ASSERT_TRUE(terminal.wait_for("> ")) << terminal.seen();
  const fs::path saved = home_ / "saved.json";
  terminal.type("/save " + saved.string() + "\r");
  ASSERT_TRUE(terminal.wait_for("saved ")) << terminal.seen();
  terminal.type("/reset\r");
  ASSERT_TRUE(terminal.wait_for("starts over")) << terminal.seen();
  ASSERT_TRUE(terminal.wait_for("> ")) << terminal.seen();
  terminal.type("/exit\r");
  EXPECT_EQ(terminal.finish(), 0) << terminal.seen();

  EXPECT_EQ(wader({"render", "demo", "--messages", saved.string()}).exit_code, 0);
  const fs::path history = home_ / "state" / "wader" / "history";
  ASSERT_TRUE(fs::exists(history));
  EXPECT_EQ(fs::status(history).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(Cli, TerminalIsLeftByCtrlDAndByCtrlCTwice) {
  const std::map<std::string, std::string> env = {{"WADER_HOME", home_.string()},
                                                  {"XDG_STATE_HOME", (home_ / "state2").string()},
                                                  {"TERM", "xterm"}};
  Terminal first({"chat", "demo"}, env);
  ASSERT_TRUE(first.wait_for("> ")) << first.seen();
  first.type("\x04");
  EXPECT_EQ(first.finish(), 0) << first.seen();
  Terminal second({"chat", "demo"}, env);
  ASSERT_TRUE(second.wait_for("> ")) << second.seen();
  second.type("\x03");
  ASSERT_TRUE(second.wait_for("again")) << second.seen();
  ASSERT_TRUE(second.wait_for("> ")) << second.seen();
  second.type("\x03");
  EXPECT_EQ(second.finish(), 0) << second.seen();
}

// The terminal is in line mode then, and the kernel hands the key over in its own way.
TEST_F(Cli, CtrlDDuringAnAnswerLeavesAfterIt) {
  // Whether this seed's answer is long enough hangs on every bit: one back end, whatever the CPU
  // has, and one date, which stands in the prompt.
  Terminal terminal({"chat", "demo", "--seed", "1", "--temperature", "4", "--max-tokens", "200",
                     "--kernels", "ref", "--date", "2026-11-30"},
                    {{"WADER_HOME", home_.string()},
                     {"XDG_STATE_HOME", (home_ / "state4").string()},
                     {"TERM", "xterm"}});
  ASSERT_TRUE(terminal.wait_for("> ")) << terminal.seen();
  terminal.type("Write a poem.\r");
  ASSERT_TRUE(terminal.wait_for("reading the prompt")) << terminal.seen();
  terminal.type("\x04");
  EXPECT_EQ(terminal.finish(), 0) << terminal.seen();
  EXPECT_THAT(terminal.seen(), HasSubstr("stopped after 200 tokens"));
}

TEST_F(Cli, PastedLinesAreOneMessage) {
  Terminal terminal({"chat", "demo", "--seed", "1", "--max-tokens", "4"},
                    {{"WADER_HOME", home_.string()},
                     {"XDG_STATE_HOME", (home_ / "state3").string()},
                     {"TERM", "xterm"}});
  ASSERT_TRUE(terminal.wait_for("> ")) << terminal.seen();
  terminal.type("first line\nsecond line\nthird line\n");
  ASSERT_TRUE(terminal.wait_for("stopped after 4 tokens")) << terminal.seen();
  ASSERT_TRUE(terminal.wait_for("> ")) << terminal.seen();
  const fs::path saved = home_ / "pasted.json";
  terminal.type("/save " + saved.string() + "\r");
  ASSERT_TRUE(terminal.wait_for("saved 2 messages")) << terminal.seen();
  terminal.type("/exit\r");
  EXPECT_EQ(terminal.finish(), 0) << terminal.seen();
  std::ifstream file(saved);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(parse_json(text.str(), "saved")->at("messages")[0]["content"],
            "first line\nsecond line\nthird line");
}

TEST_F(Cli, RemovingAsksOnATerminal) {
  const fs::path path = home_ / "unwanted.wader";
  fs::create_directories(path);
  std::ofstream(path / "install.json") << "{\"wader_install\":1";  // cut off by a kill
  const auto answer = [&](const std::string& text) {
    Terminal terminal({"rm", "unwanted"}, {{"WADER_HOME", home_.string()}});
    EXPECT_TRUE(terminal.wait_for("[y/N]")) << terminal.seen();
    terminal.type(text + "\n");
    return terminal.finish();
  };
  EXPECT_THAT(wader({"list"}).out, HasSubstr("unfinished"));
  EXPECT_EQ(answer("n"), 1);
  EXPECT_TRUE(fs::exists(path));
  EXPECT_EQ(answer("y"), 0);
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace wader::testing
