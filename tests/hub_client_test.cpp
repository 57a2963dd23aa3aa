// HubClient and FetchQueue against the stub of the hub: what a caller of the library may rely on.
#include "install/hub_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "base/no_threads_testing.h"
#include "base/units.h"
#include "hub_fixture.h"
#include "install/fetch_queue.h"
#include "install/hub_source.h"
#include "install/hub_tree.h"
#include "install/proof_plan.h"

namespace wader::testing {
namespace {

class HubClientTest : public HubTest {
 protected:
  HubSettings settings() const {
    HubSettings settings;
    settings.endpoint = stub_->hub();
    settings.http.stall_time = std::chrono::seconds(1);
    settings.retry.first_delay = std::chrono::milliseconds(10);
    settings.retry.tries = 4;
    return settings;
  }
  std::unique_ptr<HubClient> open(const std::string& model = "demo") const {
    auto client = HubClient::create(settings(), repository_of(model)).value();
    const Status opened = client->open("main");
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return client;
  }
  static Json rule(Json fields) { return {{"rules", Json::array({std::move(fields)})}}; }
  // The file of the demo's first shard, from disk.
  static std::string shard() {
    return read_bytes(directory_of("demo") / "model-00001-of-00002.safetensors");
  }
  static uint32_t shard_in(const HubClient& client) {
    return client.find("model-00001-of-00002.safetensors").value();
  }
};

TEST_F(HubClientTest, ListsAndReads) {
  const auto client = open();
  EXPECT_TRUE(is_commit(client->commit()));
  const uint32_t file = shard_in(*client);
  const std::string bytes = shard();
  EXPECT_EQ(client->files()[file].bytes, bytes.size());
  EXPECT_EQ(client->files()[file].sha256, sha256_hex(bytes));
  std::vector<std::byte> got(100'000);
  for (const uint64_t at : {uint64_t{0}, uint64_t{12'345}, bytes.size() - got.size()}) {
    ASSERT_TRUE(client->read(file, at, got).ok());
    EXPECT_EQ(std::memcmp(got.data(), bytes.data() + at, got.size()), 0) << at;
  }
  EXPECT_EQ(client->read(file, bytes.size() - 10, got).error().code, ErrorCode::corrupt);
  EXPECT_FALSE(client->find("nothing.safetensors"));
}

// A signed address that is refused is asked for again, and the transfer goes on where it stood.
TEST_F(HubClientTest, RenewsAnAddressThatExpired) {
  const auto client = open();
  std::vector<std::byte> got(3 * kMiB);
  ASSERT_TRUE(client->read(shard_in(*client), 0, std::span(got).first(10)).ok());
  stub_->faults({{"rules",
                  {{{"on", "cdn"}, {"fault", "cut"}, {"at", 1'000'000}},
                   {{"on", "cdn"}, {"fault", "expired"}},
                   {{"on", "cdn"}, {"fault", "stall"}, {"at", 500'000}, {"stall_ms", 30'000}}}}});
  stub_->clear();
  ASSERT_TRUE(client->read(shard_in(*client), 0, got).ok());
  EXPECT_EQ(std::memcmp(got.data(), shard().data(), got.size()), 0);
  int resolved = 0;
  const Json log = stub_->log();
  for (const Json& request : log["requests"]) resolved += request["host"] == "hub" ? 1 : 0;
  EXPECT_GE(resolved, 1) << "no new address";
  // Only what stood in buffers when the connection broke may have been sent twice.
  EXPECT_LT(weight_bytes(log).again, 2u * kMiB);
  // When the new one does not work either, that is said.
  stub_->faults(rule({{"on", "cdn"}, {"fault", "expired"}, {"times", -1}}));
  const Status refused = client->read(shard_in(*client), 0, got);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("model-00001-of-00002.safetensors"));
  EXPECT_THAT(refused.error().message, HasSubstr("tried 4 times"));
}

// 503 twice, then well; 429 without a time, growing waits and one request at a time.
TEST_F(HubClientTest, WaitsLongerEachTime) {
  stub_->faults(rule({{"on", "info"}, {"fault", "status"}, {"status", 503}, {"times", 2}}));
  open();
  stub_->faults(rule({{"on", "info"}, {"fault", "status"}, {"status", 429}, {"times", 3}}));
  stub_->clear();
  open();
  const Json requests = stub_->log()["requests"];
  ASSERT_GE(requests.size(), 4u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(requests[i]["status"], 429);
  EXPECT_EQ(requests[3]["status"], 200);
  // For ever: an end, and when it can be tried again.
  stub_->faults(rule(
      {{"on", "info"}, {"fault", "status"}, {"status", 429}, {"times", -1}, {"rate_limit", 7200}}));
  auto client = HubClient::create(settings(), repository_of("demo")).value();
  const Status blocked = client->open("main");
  ASSERT_FALSE(blocked.ok());
  EXPECT_THAT(blocked.error().message, AnyOf(HasSubstr("7200"), HasSubstr("2 h")));
}

// A name with slashes is one part of the address.
TEST_F(HubClientTest, ARevisionIsOnePartOfTheAddress) {
  stub_->repository({{"id", "wader-tests/asked"},
                     {"dir", directory_of("demo").string()},
                     {"more_refs", {"refs/pr/1"}}});
  stub_->clear();
  auto client = HubClient::create(settings(), "wader-tests/asked").value();
  const Status opened = client->open("refs/pr/1");
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(client->commit(), stub_->commit_of("wader-tests/asked"));
  EXPECT_EQ(stub_->log()["requests"][0]["url"],
            "/api/models/wader-tests/asked/revision/refs%2Fpr%2F1");
  EXPECT_THAT(client->open("refs/pr/2").error().message, HasSubstr("no revision 'refs/pr/2'"));
}

TEST_F(HubClientTest, WithoutThreadsThereIsAnErrorAndNoEnd) {
  {
    const NoThreads none;
    const auto client = HubClient::create(settings(), repository_of("demo"));
    ASSERT_FALSE(client.ok());
    EXPECT_EQ(client.error().code, ErrorCode::io);
    EXPECT_THAT(client.error().message, HasSubstr("no more threads"));
  }
  HubSession session(open());
  const std::vector<uint32_t> files = {shard_in(session.client()), shard_in(session.client()) + 1};
  const NoThreads none;
  session.fetch_headers(files);  // one after the other
  std::vector<std::byte> got(1000);
  ASSERT_TRUE(session.read(files[0], 0, got).ok());
  EXPECT_EQ(std::memcmp(got.data(), shard().data(), got.size()), 0);
}

TEST_F(HubClientTest, ACallerThatStopsWaitingIsLetGo) {
  const auto client = open();
  stub_->faults(rule({{"on", "cdn"}, {"fault", "stall"}, {"at", 10}, {"stall_ms", 60'000}}));
  int asked = 0;
  client->set_wait([&](std::string_view) { return ++asked < 3; });
  std::vector<std::byte> got(1000);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(client->read(shard_in(*client), 0, got).error().code, ErrorCode::cancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  // And after the end nothing waits for ever.
  client->set_wait({});
  client->shut_down();
  EXPECT_EQ(client->read(shard_in(*client), 0, got).error().code, ErrorCode::io);
}

// Reads of random ranges in a random order, by several connections, within little memory.
class FetchQueueTest : public HubClientTest {
 protected:
  struct Setup {
    FetchPlan plan;
    std::vector<SourceRange> reads;
    std::vector<FetchProof> proofs;
  };
  // The whole shard in pieces; `reach`: how far from its place a piece may be read.
  Setup set_up(const HubClient& client, uint64_t room, size_t reach) const {
    Setup setup;
    std::mt19937 random(3);
    const uint32_t file = shard_in(client);
    const uint64_t end = client.files()[file].bytes;
    for (uint64_t at = 0, bytes; at < end; at += bytes) {
      bytes = std::min<uint64_t>(end - at, 1 + random() % 700'000);
      setup.reads.push_back({file, at, bytes});
    }
    for (size_t i = 0; i < setup.reads.size(); ++i)
      std::swap(setup.reads[i],
                setup.reads[std::min(setup.reads.size() - 1, i + random() % reach)]);
    FetchPlanner planner;
    for (const SourceRange& read : setup.reads) planner.add(read, true);
    setup.plan = planner.finish();
    const std::vector<ProofFile> files = {{file, end, 0}};
    for (const uint32_t chosen : plan_proofs(setup.plan, files, {}, room).files)
      setup.proofs.push_back({chosen, ShaCheck(end), client.files()[chosen].sha256});
    return setup;
  }
  static constexpr uint64_t kAheadBytes = 4 * kMiB, kRoomBytes = 12 * kMiB;
  FetchWindow window() const {
    return FetchWindow::open(home() / "fetch.part", kAheadBytes + kRoomBytes, 1).value();
  }
};

TEST_F(FetchQueueTest, GivesEveryByteAndProvesTheFile) {
  const std::string bytes = shard();
  for (const size_t reach : {1, 5, 1000}) {
    const auto client = open();
    Setup setup = set_up(*client, kRoomBytes, reach);
    EXPECT_EQ(setup.proofs.size(), 1u) << "11 MB fit into the room in any order";
    FetchQueue queue(*client, setup.plan, window(), setup.proofs, kAheadBytes);
    ASSERT_TRUE(queue.start().ok());
    for (size_t i = 0; i < setup.reads.size(); ++i) {
      const SourceRange& read = setup.reads[i];
      ASSERT_TRUE(queue.is_next(read));
      std::vector<std::byte> got(read.bytes);
      const Status status = queue.read(got);
      ASSERT_TRUE(status.ok()) << status.error().message;
      ASSERT_EQ(std::memcmp(got.data(), bytes.data() + read.offset, read.bytes), 0);
      if (i % 3 == 2) queue.release(i - 1);
    }
    queue.release(setup.reads.size());
    ASSERT_TRUE(queue.finish_proofs().ok());
    EXPECT_EQ(queue.proven(), std::vector<uint32_t>{shard_in(*client)});
    client->shut_down();
  }
}

TEST_F(FetchQueueTest, WithoutThreadsItDoesNotStart) {
  const auto client = open();
  Setup setup = set_up(*client, kRoomBytes, 1);
  FetchQueue queue(*client, setup.plan, window(), setup.proofs, kAheadBytes);
  const NoThreads none;
  const Status started = queue.start();
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.error().message, HasSubstr("no more threads"));
  client->shut_down();
}

// One that nobody releases for long gets what it waits for all the same; the proof is what is lost.
TEST_F(FetchQueueTest, AFullWindowStopsNobody) {
  const std::string bytes = shard();
  const auto client = open();
  Setup setup = set_up(*client, kRoomBytes, 1000);
  auto small = FetchWindow::open({}, 3 * kMiB, 1).value();
  FetchQueue queue(*client, setup.plan, std::move(small), setup.proofs, kMiB);
  ASSERT_TRUE(queue.start().ok());
  for (const SourceRange& read : setup.reads) {
    std::vector<std::byte> got(read.bytes);
    ASSERT_TRUE(queue.read(got).ok());
    ASSERT_EQ(std::memcmp(got.data(), bytes.data() + read.offset, read.bytes), 0);
  }
  queue.release(setup.reads.size());
  EXPECT_TRUE(queue.finish_proofs().ok());
  EXPECT_TRUE(queue.refuted().empty());
  client->shut_down();
}

TEST_F(FetchQueueTest, AWrongDigestIsAnError) {
  const auto client = open();
  Setup setup = set_up(*client, kRoomBytes, 5);
  stub_->faults(rule({{"on", "cdn"}, {"skip", 5}, {"fault", "wrong_bytes"}, {"at", 77}}));
  FetchQueue queue(*client, setup.plan, window(), setup.proofs, kAheadBytes);
  ASSERT_TRUE(queue.start().ok());
  Status status;
  for (size_t i = 0; status.ok() && i < setup.reads.size(); ++i) {
    std::vector<std::byte> got(setup.reads[i].bytes);
    status = queue.read(got);
    queue.release(i);
  }
  if (status.ok()) {
    queue.release(setup.reads.size());
    status = queue.finish_proofs();
  }
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::io);
  EXPECT_THAT(status.error().message, HasSubstr(setup.proofs[0].sha256));
  EXPECT_EQ(queue.refuted(), std::vector<uint32_t>{shard_in(*client)});
  client->shut_down();
}

// Destroyed in the middle of everything, again and again.
TEST_F(FetchQueueTest, StopsAtAnyMoment) {
  for (int round = 0; round < 20; ++round) {
    const auto client = open();
    Setup setup = set_up(*client, kRoomBytes, 5);
    FetchQueue queue(*client, setup.plan, window(), setup.proofs, kAheadBytes);
    ASSERT_TRUE(queue.start().ok());
    for (int i = 0; i < round % 5; ++i) {
      std::vector<std::byte> got(setup.reads[i].bytes);
      ASSERT_TRUE(queue.read(got).ok());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 4));
    client->shut_down();
  }
}

class Environment : public ::testing::Test {
 protected:
  void set(const char* name, const std::string& value) {
    names_.insert(name);
    setenv(name, value.c_str(), 1);
  }
  void SetUp() override {
    for (const char* name : {"HF_ENDPOINT", "HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_CACHE",
                             "XDG_CACHE_HOME", "WADER_HUB_TRIES"})
      unsetenv(name);
    set("HF_HOME", scratch_.path());
  }
  void TearDown() override {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }
  std::set<std::string> names_;
  TempDirectory scratch_;
};

TEST_F(Environment, SaysWhereTheHubIsAndWhoWeAre) {
  EXPECT_EQ(hub_settings_from_environment()->endpoint, "https://huggingface.co");
  EXPECT_EQ(hub_settings_from_environment()->token, "");
  write_bytes(scratch_.path() / "token", "  hf_of_file\n");
  EXPECT_EQ(hub_settings_from_environment()->token, "hf_of_file");
  write_bytes(scratch_.path() / "other", "hf_of_path");
  set("HF_TOKEN_PATH", scratch_.path() / "other");
  EXPECT_EQ(hub_settings_from_environment()->token, "hf_of_path");
  set("HF_TOKEN", "hf_of_variable");
  EXPECT_EQ(hub_settings_from_environment()->token, "hf_of_variable");
  set("HF_ENDPOINT", "https://hub.example/");
  EXPECT_EQ(hub_settings_from_environment()->endpoint, "https://hub.example/");
  for (const char* bad :
       {"hub.example", "ftp://hub.example", "not an address", "https://hub.example/?token=secret",
        "https://me:secret@hub.example", "me:secret@hub.example", "https://me:secret@",
        "ftp://me:secret@hub.example", "https://me:se/secret@hub.example", "https://"}) {
    set("HF_ENDPOINT", bad);
    const auto refused = hub_settings_from_environment();
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument) << bad;
    EXPECT_THAT(refused.error().message, HasSubstr("HF_ENDPOINT")) << bad;
    EXPECT_THAT(refused.error().message, Not(HasSubstr("secret"))) << bad;
  }
  set("HF_ENDPOINT", "https://hub.example");
  set("HF_TOKEN", "hf_with\r\nHost: evil");
  const auto refused = hub_settings_from_environment();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, Not(HasSubstr("evil")));
}

TEST_F(Environment, SaysWhereTheCacheIs) {
  EXPECT_EQ(hub_cache(), scratch_.path() / "hub");
  set("HF_HUB_CACHE", "/elsewhere");
  EXPECT_EQ(hub_cache(), "/elsewhere");
  unsetenv("HF_HUB_CACHE");
  unsetenv("HF_HOME");
  set("XDG_CACHE_HOME", "/xdg");
  EXPECT_EQ(hub_cache(), "/xdg/huggingface/hub");
}

// A snapshot counts when all of it is there; a name by the commit that refs/ has for it.
TEST_F(Environment, FindsASnapshotThatIsWhole) {
  const fs::path entry = scratch_.path() / "models--org--m";
  const std::string commit(40, 'c');
  const fs::path snapshot = entry / "snapshots" / commit;
  fs::create_directories(snapshot);
  fs::create_directories(entry / "refs");
  write_bytes(entry / "refs/main", commit + "\n");
  EXPECT_EQ(find_snapshot(scratch_.path(), "org/m", "main"), fs::path());
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"})
    write_bytes(snapshot / name, "{}");
  EXPECT_EQ(find_snapshot(scratch_.path(), "org/m", "main"), snapshot);
  EXPECT_EQ(find_snapshot(scratch_.path(), "org/m", commit), snapshot);
  for (const char* revision : {"v2", "../main", "", "refs/../main"})
    EXPECT_EQ(find_snapshot(scratch_.path(), "org/m", revision), fs::path()) << revision;
  write_bytes(entry / "refs/main", "../../../etc");
  EXPECT_EQ(find_snapshot(scratch_.path(), "org/m", "main"), fs::path());
}

}  // namespace
}  // namespace wader::testing
