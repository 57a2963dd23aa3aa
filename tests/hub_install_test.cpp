// `wader install ORG/NAME` from a hub that answers well: the bytes, the commit, the token, the
// cache, and what is said when a model cannot be had.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <thread>

#include "background.h"
#include "hub_fixture.h"

namespace wader::testing {
namespace {

class HubInstall : public HubTest {};

TEST_F(HubInstall, GivesTheBytesOfALocalInstall) {
  for (const std::string& model : kHubModels) {
    const RunResult result = install(model);
    ASSERT_EQ(result.exit_code, 0) << model << "\n" << result.err;
    expect_same_tree(read_tree(destination()), local_tree(model));
    fs::remove_all(destination());
  }
  // Weights were fetched once, and only those that a container is made of.
  const Json log = stub_->log();
  EXPECT_LT(weight_bytes(log).again, 64u * 1024) << json_text(log["files"]);
  for (const auto& [name, file] : log["files"].items()) EXPECT_THAT(name, Not(HasSubstr("golden")));
}

TEST_F(HubInstall, IsCalledByTheRepositorysName) {
  ASSERT_EQ(wader({"install", "wader-tests/tiny-qwen3-moe"}).exit_code, 0);
  EXPECT_TRUE(fs::exists(home() / "models/tiny-qwen3-moe.wader/manifest.json"));
  EXPECT_THAT(wader({"list"}).out, HasSubstr("tiny-qwen3-moe"));
  EXPECT_EQ(wader({"verify", "tiny-qwen3-moe"}).exit_code, 0);
}

TEST_F(HubInstall, TakesOneCommit) {
  const std::string id = "wader-tests/pushed", old_dir = directory_of("tiny-qwen3-moe");
  stub_->repository({{"id", id}, {"dir", old_dir}});
  const std::string old_commit = stub_->commit_of(id);
  stub_->repository({{"id", id}, {"dir", directory_of("tiny-gpt-oss").string()}});
  const std::vector<std::string> to = {"-o", destination().string()};
  ASSERT_EQ(wader({"install", id, to[0], to[1], "--revision", old_commit}).exit_code, 0);
  auto want = local_tree("tiny-qwen3-moe"), got = read_tree(destination());
  want.erase("manifest.json");  // says the repository
  const Result<Json> manifest = parse_json(got.at("manifest.json"), "manifest.json");
  EXPECT_EQ((*manifest)["revision"], old_commit);
  EXPECT_EQ((*manifest)["source"], id);
  got.erase("manifest.json");
  expect_same_tree(got, want);
  // After the first answer it is the commit that is asked for, not a branch that may move.
  stub_->clear();
  fs::remove_all(destination());
  ASSERT_EQ(wader({"install", id, to[0], to[1]}).exit_code, 0);
  const Json log = stub_->log();
  for (const Json& request : log["requests"]) {
    if (request["host"] == "hub" && request["n"] != 0)
      EXPECT_THAT(request["url"].get<std::string>(), Not(HasSubstr("main"))) << json_text(request);
  }
  fs::remove_all(destination());
  expect_refused(wader({"install", id, to[0], to[1], "--revision", "v9"}), "v9");
}

TEST_F(HubInstall, TheTokenGoesToTheHubAlone) {
  const std::string dir = directory_of("tiny-gpt-oss");
  stub_->repository(
      {{"id", "wader-tests/gated"}, {"dir", dir}, {"gated", "manual"}, {"allowed", {"hf_good"}}});
  const auto is_told = [&](const RunResult& result) {
    return (result.out + result.err).find("hf_good") != std::string::npos;
  };
  const auto check_log = [&] {
    bool authorized = false;
    const Json log = stub_->log();
    for (const Json& request : log["requests"]) {
      authorized |= request["authorized"].get<bool>();
      EXPECT_FALSE(request["host"] == "cdn" && request["authorized"].get<bool>());
    }
    EXPECT_TRUE(authorized);
    EXPECT_EQ(json_text(log["violations"]), "[]");
  };
  // From the environment; from the file that the hub's own tools keep it in; with links to another
  // port of the hub's own address.
  RunResult result = install("gated", {}, {{"HF_TOKEN", "hf_good"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(is_told(result));
  check_log();
  fs::remove_all(destination());
  fs::create_directories(home() / "hf");
  write_bytes(home() / "hf/token", "hf_good\n");
  result = install("gated");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(is_told(result));
  check_log();
  fs::remove_all(destination());
  const std::string port = stub_->cdn().substr(stub_->cdn().rfind(':'));
  stub_->options({{"cdn_origin", "http://127.0.0.1" + port}});
  result = install("gated");
  stub_->options({{"cdn_origin", stub_->cdn()}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  check_log();
}

// From the hub to another host and back; and a listing that continues at another host.
TEST_F(HubInstall, TheTokenIsNotCarriedAlongRedirects) {
  const std::map<std::string, std::string> token = {{"HF_TOKEN", "hf_good"},
                                                    {"WADER_HUB_TRIES", "3"}};
  stub_->faults({{"rules",
                  {{{"on", "cdn"},
                    {"fault", "redirect"},
                    {"times", -1},
                    {"location", stub_->hub() + "/elsewhere"}}}}});
  RunResult result = install("tiny-gpt-oss", {}, token);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out + result.err, Not(HasSubstr("hf_good")));
  const Json requests = stub_->log()["requests"];
  for (const Json& request : requests) {
    if (request["url"] == "/elsewhere")
      EXPECT_FALSE(request["authorized"].get<bool>()) << "came back by way of the CDN";
  }
  stub_->faults({{"rules",
                  {{{"on", "tree"},
                    {"fault", "next_link"},
                    {"times", -1},
                    {"location", stub_->cdn() + "/next?page=2"}}}}});
  result = install("tiny-gpt-oss", {}, token);
  EXPECT_EQ(result.exit_code, 1);
  for (const char* location : {"file:///etc/passwd", "gopher://127.0.0.1/", "ftp://127.0.0.1/x"}) {
    stub_->faults(
        {{"rules",
          {{{"on", "resolve"}, {"fault", "redirect"}, {"times", -1}, {"location", location}}}}});
    expect_refused(install("tiny-gpt-oss", {}, token), "");
  }
}

TEST_F(HubInstall, WhatCannotBeHadIsExplained) {
  const std::string dir = directory_of("tiny-gpt-oss");
  stub_->repository(
      {{"id", "wader-tests/gated"}, {"dir", dir}, {"gated", "manual"}, {"allowed", {"hf_good"}}});
  stub_->repository(
      {{"id", "wader-tests/hidden"}, {"dir", dir}, {"private", true}, {"allowed", {"hf_good"}}});
  RunResult result = install("gated");
  expect_refused(result, "wader-tests/gated");
  EXPECT_THAT(result.err, HasSubstr("HF_TOKEN"));
  result = install("gated", {}, {{"HF_TOKEN", "hf_stranger"}});
  expect_refused(result, "/wader-tests/gated");  // where to ask for access
  EXPECT_THAT(result.err, AnyOf(HasSubstr("access"), HasSubstr("licen")));
  EXPECT_THAT(result.err, Not(HasSubstr("hf_stranger")));
  result = install("gated", {}, {{"HF_TOKEN", "hf_forged"}});
  expect_refused(result, "token");
  EXPECT_THAT(result.err, Not(HasSubstr("hf_forged")));
  expect_refused(install("hidden"), "wader-tests/hidden");
  expect_refused(install("none"), "wader-tests/none");
  expect_refused(install("none", {}, {{"HF_TOKEN", "hf_good"}}), "wader-tests/none");
  expect_refused(
      install("demo", {}, {{"HF_ENDPOINT", "http://127.0.0.1:9"}, {"WADER_HUB_TRIES", "3"}}),
      "127.0.0.1");
  EXPECT_NE(install("demo", {}, {{"HF_ENDPOINT", "not an address"}}).exit_code, 0);
  EXPECT_FALSE(fs::exists(destination()));
}

// By https only from a hub that is what it says.
TEST_F(HubInstall, AnUnknownCertificateIsRefused) {
  if (stub_->tls().empty()) GTEST_SKIP() << "there is no openssl to make a certificate with";
  const RunResult result =
      install("demo", {}, {{"HF_ENDPOINT", stub_->tls()}, {"HF_TOKEN", "hf_good"}});
  expect_refused(result, "certificate");
  EXPECT_EQ(stub_->log()["count"], 0);
}

TEST_F(HubInstall, FollowsAMovedRepository) {
  stub_->repository({{"id", "wader-tests/old"},
                     {"dir", directory_of("tiny-gpt-oss").string()},
                     {"moved_to", "wader-tests/tiny-gpt-oss"}});
  const RunResult result = install("old");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(wader({"verify", destination().string()}).exit_code, 0);
}

TEST_F(HubInstall, DryRunFetchesHeadersOnly) {
  for (const std::string& model : kHubModels) {
    stub_->clear();
    const RunResult result = install(model, {"--dry-run"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr(" at the peak, "));
    EXPECT_FALSE(fs::exists(destination()));
    uint64_t header_bytes = 0;
    for (const auto& file : fs::directory_iterator(directory_of(model))) {
      if (file.path().extension() != ".safetensors") continue;
      std::ifstream in(file.path(), std::ios::binary);
      uint64_t length = 0;
      in.read(reinterpret_cast<char*>(&length), sizeof length);
      header_bytes += sizeof length + length;
    }
    // As much again may be read ahead, to have a header at one go.
    EXPECT_LT(weight_bytes(stub_->log()).sent, 2 * header_bytes + 256 * 1024) << model;
  }
}

// Of a destination that an install would refuse, the same is said, before the hub is asked.
TEST_F(HubInstall, DryRunSaysWhatAnInstallWouldSay) {
  ASSERT_EQ(install("tiny-gpt-oss").exit_code, 0);
  stub_->clear();
  const RunResult real = install("tiny-gpt-oss"), dry = install("tiny-gpt-oss", {"--dry-run"});
  EXPECT_EQ(real.exit_code, 1);
  EXPECT_THAT(real.err, HasSubstr("is a complete container already; `wader rm` makes room"));
  EXPECT_EQ(dry.exit_code, 1);
  EXPECT_EQ(dry.err, real.err);
  EXPECT_EQ(dry.out, "");
  EXPECT_EQ(stub_->log()["count"], 0);
  // A mistake of the command line, whatever stands there.
  const RunResult both = install("tiny-gpt-oss", {"--dry-run", "--repair"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("--dry-run"));
  EXPECT_THAT(both.err, HasSubstr("--repair"));
  EXPECT_EQ(stub_->log()["count"], 0);
}

// Stopped before there is anything of it, and afterwards.
TEST_F(HubInstall, WhatIsSaidToBeUnfinishedIsThere) {
  const auto stopped_at = [&](const Json& stall, const auto& reached) {
    Json rule = stall;
    rule.update({{"fault", "stall"}, {"stall_ms", 60'000}, {"times", -1}});
    stub_->faults({{"rules", Json::array({rule})}});
    stub_->clear();
    auto patient = env();
    patient["WADER_HUB_STALL_SECONDS"] = "60";
    Background run({"install", repository_of("demo"), "-o", destination().string()}, patient,
                   home() / "stopped.log");
    for (int i = 0; i < 2000 && !reached(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(reached());
    run.interrupt();
    EXPECT_NE(run.wait(), 0);
    stub_->faults(Json::object());
    return run.output();
  };
  const auto asked = [&](const char* route) {
    return [&, route] {
      const Json requests = stub_->log()["requests"];
      return std::any_of(requests.begin(), requests.end(),
                         [&](const Json& request) { return request["route"] == route; });
    };
  };
  for (const char* route : {"info", "cdn"}) {
    const std::string text = stopped_at({{"on", route}, {"at", -1}}, asked(route));
    EXPECT_THAT(text, HasSubstr("stopped")) << route;
    EXPECT_THAT(text, HasSubstr("nothing was written")) << route;
    EXPECT_THAT(text, Not(HasSubstr("unfinished"))) << route;
    EXPECT_FALSE(fs::exists(destination())) << route;
  }
  const std::string text = stopped_at({{"on", "cdn"}, {"skip", 8}, {"at", 1000}},
                                      [&] { return fs::exists(destination() / "fetch.part"); });
  EXPECT_THAT(text, HasSubstr("is unfinished; the same command continues"));
  EXPECT_TRUE(fs::exists(destination() / "install.json"));
  const RunResult rest = install("demo");
  EXPECT_EQ(rest.exit_code, 0) << rest.err;
}

// A proxy, which here is a port that takes the token for a violation, is never asked for what is on
// this machine; and without https nobody else is shown the token either.
TEST_F(HubInstall, TheTokenIsNotShownToAProxy) {
  for (const char* proxy : {"http_proxy", "all_proxy", "ALL_PROXY"}) {
    const RunResult result = install(
        "tiny-gpt-oss", {}, {{"HF_TOKEN", "hf_good"}, {proxy, stub_->cdn()}, {"no_proxy", ""}});
    EXPECT_EQ(result.exit_code, 0) << proxy << "\n" << result.err;
    fs::remove_all(destination());
  }
  const std::string dir = directory_of("tiny-gpt-oss");
  stub_->repository(
      {{"id", "wader-tests/hidden"}, {"dir", dir}, {"private", true}, {"allowed", {"hf_good"}}});
  const std::map<std::string, std::string> elsewhere = {{"HF_ENDPOINT", "http://hub.example"},
                                                        {"HF_TOKEN", "hf_good"},
                                                        {"http_proxy", stub_->hub()},
                                                        {"no_proxy", ""}};
  stub_->clear();
  const RunResult open = install("tiny-gpt-oss", {}, elsewhere);
  EXPECT_EQ(open.exit_code, 0) << open.err;
  fs::remove_all(destination());
  const RunResult hidden = install("hidden", {}, elsewhere);
  EXPECT_THAT(hidden.err, HasSubstr("HF_ENDPOINT must be https"));
  const Json requests = stub_->log()["requests"];
  EXPECT_GT(requests.size(), 3u);
  for (const Json& request : requests) EXPECT_EQ(request["authorized"], false) << request["url"];
}

TEST_F(HubInstall, AProxysPasswordIsInNoMessage) {
  const RunResult result = install("demo", {},
                                   {{"HF_ENDPOINT", "https://hub.example"},
                                    {"https_proxy", "carrier-pigeon://me:secret@loft:1"},
                                    {"WADER_HUB_TRIES", "2"},
                                    {"no_proxy", ""}});
  expect_refused(result, "https_proxy");
  EXPECT_THAT(result.err, Not(HasSubstr("secret")));
}

// Without a terminal too, what is waited for is said, and not over and over.
TEST_F(HubInstall, WaitingIsSaid) {
  const auto count = [](const std::string& text, const std::string& word) {
    size_t times = 0;
    for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++times;
    return times;
  };
  for (const char* route : {"info", "cdn"}) {
    stub_->faults({{"rules",
                    {{{"on", route},
                      {"fault", "status"},
                      {"status", 503},
                      {"retry_after", 1},
                      {"times", 2},
                      {"skip", std::string(route) == "cdn" ? 4 : 0}}}}});
    const RunResult result = install("tiny-gpt-oss");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, ::testing::ContainsRegex("HTTP 503; try 2 in [12] s\n")) << route;
    EXPECT_EQ(count(result.err, "HTTP 503"), 1u) << result.err;
    fs::remove_all(destination());
  }
  stub_->faults({{"rules", {{{"on", "info"}, {"fault", "html"}}}}});
  EXPECT_THAT(install("tiny-gpt-oss").err, HasSubstr("; try 2 in 1 s\n"));
}

TEST_F(HubInstall, WaitingIsSaidOnATerminal) {
  stub_->faults(
      {{"rules",
        {{{"on", "cdn"}, {"fault", "status"}, {"status", 503}, {"retry_after", 1}, {"skip", 4}}}}});
  Terminal terminal({"install", repository_of("tiny-gpt-oss"), "-o", destination().string()},
                    env());
  EXPECT_TRUE(terminal.wait_for("%  wader-tests/tiny-gpt-oss/model.safetensors: "))
      << terminal.seen();
  EXPECT_TRUE(terminal.wait_for("HTTP 503; try 2 in ")) << terminal.seen();
  EXPECT_EQ(terminal.finish(), 0) << terminal.seen();
}

TEST_F(HubInstall, WhatTheHubsOwnToolsHaveIsNotFetchedAgain) {
  fill_cache(home() / "hf/hub", "demo");
  stub_->clear();
  const RunResult result = install("demo");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(weight_bytes(stub_->log()).sent, 0u);
  expect_same_tree(read_tree(destination()), local_tree("demo"));
}

// Half a cache: what is there is used, the rest is fetched.
TEST_F(HubInstall, AnUnfinishedCacheIsCompleted) {
  const fs::path snapshot = fill_cache(home() / "hf/hub", "demo");
  fs::remove(snapshot / "model-00001-of-00002.safetensors");
  stub_->clear();
  const RunResult result = install("demo");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_same_tree(read_tree(destination()), local_tree("demo"));
}

}  // namespace
}  // namespace wader::testing
