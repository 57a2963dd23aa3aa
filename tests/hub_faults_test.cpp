// Installs from a hub under faults: spoilt responses by schedule and one by one, killed processes,
// full and read-only disks, two at once. WADER_HUB_SEEDS: how many schedules (24; `make hub-faults`
// runs 200), WADER_HUB_FIRST_SEED: from which on (1).
#include <sys/mount.h>

#include <atomic>
#include <chrono>
#include <iostream>
#include <random>
#include <thread>

#include "background.h"
#include "hub_fixture.h"
#include "small_disk.h"

namespace wader::testing {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t number_from_env(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

class HubFaults : public HubTest {
 protected:
  Background start(const std::string& model, const fs::path& to) const {
    return Background({"install", repository_of(model), "-o", to.string()}, env(),
                      home() / "background.log");
  }
  // Which model a seed is tried on: mostly small ones, now and then the demo's two shards.
  static std::string model_of(uint64_t seed) {
    return seed % 8 == 0 ? "demo" : kHubModels[1 + seed % (kHubModels.size() - 1)];
  }
  // One install under a schedule; returns how many faults it met.
  static uint64_t run_schedule(const StubHub& stub, uint64_t seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::string model = model_of(seed);
    TempDirectory scratch;
    const fs::path to = scratch.path() / "out.wader";
    RunOptions options;
    options.env = env_of(stub, scratch.path());
    const auto run = [&] {
      return run_wader({"install", repository_of(model), "-o", to.string()}, options);
    };
    stub.clear();
    stub.faults({{"seed", seed}, {"rate", 0.3}, {"in_a_row", 2}, {"stall_ms", 1500}});
    const RunResult result = run();
    const Json log = stub.log();
    EXPECT_EQ(result.exit_code, 0) << model << ": " << result.err;
    EXPECT_EQ(json_text(log["violations"]), "[]");
    if (result.exit_code != 0) {
      // What was refused must not be a container, and must end well on a good day.
      EXPECT_FALSE(fs::exists(to / "manifest.json"));
      stub.faults(Json::object());
      const RunResult again = run();
      EXPECT_EQ(again.exit_code, 0) << model << ", continued: " << again.err;
    }
    if (fs::exists(to)) expect_same_tree(read_tree(to), local_tree(model));
    return log["faults"].get<uint64_t>();
  }
  static Json rule(Json fields) { return {{"rules", Json::array({std::move(fields)})}}; }
};

// Every fault passes when the request is made again, and no path is spoilt more than twice in a
// row: so the install must come to its end. Most of the time is spent waiting; so several go on at
// once, each with a stub and a home of its own.
TEST_F(HubFaults, SchedulesOfFaultsThatPass) {
  constexpr uint64_t kLanes = 6;
  const uint64_t first = number_from_env("WADER_HUB_FIRST_SEED", 1);
  const uint64_t seeds = number_from_env("WADER_HUB_SEEDS", 24);
  for (const std::string& model : kHubModels) local_tree(model);
  std::atomic<uint64_t> next = first, faults = 0;
  std::vector<std::thread> lanes;
  for (uint64_t lane = 0; lane < std::min(kLanes, seeds); ++lane)
    lanes.emplace_back([&] {
      const StubHub stub(all_repositories());
      for (uint64_t seed; (seed = next++) < first + seeds;) faults += run_schedule(stub, seed);
    });
  for (std::thread& lane : lanes) lane.join();
  EXPECT_GT(faults.load(), seeds) << "the schedules spoil too little";
}

// One fault, for ever: an error that says what, within bounded time and requests, that the same
// command gets over when the hub is well again.
TEST_F(HubFaults, FaultsThatStay) {
  const std::string model = "tiny-gpt-oss";
  for (const Json& fault : std::vector<Json>{
           {{"on", "resolve"}, {"fault", "loop"}},
           {{"on", "cdn"}, {"fault", "html"}},
           {{"on", "cdn"}, {"fault", "expired"}},
           {{"on", "cdn"}, {"fault", "wrong_range"}, {"shift", 64}},
           {{"on", "cdn"}, {"fault", "short"}, {"keep", 0}},
           {{"on", "cdn"}, {"fault", "status"}, {"status", 503}},
           {{"on", "cdn"}, {"fault", "cut"}, {"at", 0}},
           {{"on", "tree"}, {"fault", "truncated_json"}, {"keep", 20}},
           {{"on", "info"}, {"fault", "html"}},
           {{"on", "info"}, {"fault", "garbage"}},
           {{"on", "info"}, {"fault", "status"}, {"status", 429}, {"retry_after", 1}},
           {{"on", "resolve"}, {"fault", "status"}, {"status", 429}, {"rate_limit", 1}},
           {{"on", "small"}, {"fault", "html"}},
           {{"on", "info"}, {"fault", "huge_header"}, {"bytes", 15'000'000}}}) {
    SCOPED_TRACE(json_text(fault));
    Json forever = fault;
    forever["times"] = -1;
    stub_->faults(rule(forever));
    stub_->clear();
    const auto begin = Clock::now();
    expect_refused(install(model, {}, {{"WADER_HUB_TRIES", "4"}}), "");
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
    EXPECT_LT(stub_->log()["count"].get<int>(), 300);
    stub_->faults(Json::object());
    const RunResult after = install(model);
    EXPECT_EQ(after.exit_code, 0) << after.err;
    if (after.exit_code == 0) expect_same_tree(read_tree(destination()), local_tree(model));
    fs::remove_all(destination());
  }
}

// Links that last a moment, connections that break, and a rate at which none lasts for the file.
TEST_F(HubFaults, LinksThatExpireInMidFile) {
  stub_->options({{"link_ttl_ms", 150}, {"bytes_per_s", 16'000'000}});
  stub_->faults({{"rules",
                  {{{"on", "cdn"}, {"skip", 3}, {"times", 20}, {"fault", "cut"}, {"at", 500'000}},
                   {{"on", "cdn"},
                    {"times", 2},
                    {"fault", "stall"},
                    {"at", 100'000},
                    {"stall_ms", 20'000}}}}});
  const RunResult result = install("demo");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_same_tree(read_tree(destination()), local_tree("demo"));
}

// The wait that a hub asks for is kept, in each of its forms.
TEST_F(HubFaults, WaitsAsLongAsItIsTold) {
  for (const Json& how : std::vector<Json>{{{"retry_after", 2}}, {{"rate_limit", 2}}}) {
    Json fault = {{"on", "info"}, {"fault", "status"}, {"status", 429}};
    fault.update(how);
    stub_->faults(rule(fault));
    stub_->clear();
    ASSERT_EQ(install("tiny-gpt-oss").exit_code, 0);
    const Json requests = stub_->log()["requests"];
    ASSERT_EQ(requests[0]["status"], 429);
    EXPECT_GE(requests[1]["at_ms"].get<int>() - requests[0]["at_ms"].get<int>(), 1950)
        << json_text(how);
    fs::remove_all(destination());
  }
}

// One bit of the weights, which no length and no header shows: only the file's SHA-256 does.
TEST_F(HubFaults, AFlippedBitIsFound) {
  // The third request is the first for weights; before it come the header's length and the header.
  stub_->faults(rule({{"on", "cdn"},
                      {"path", "model.safetensors"},
                      {"skip", 2},
                      {"fault", "wrong_bytes"},
                      {"at", 100}}));
  const RunResult result = install("tiny-gpt-oss");
  ASSERT_EQ(stub_->log()["faults"], 1);
  if (result.exit_code == 0) {
    expect_same_tree(read_tree(destination()), local_tree("tiny-gpt-oss"));
  } else {
    expect_refused(result, "model.safetensors");
  }
}

// Another file under the same name from one request on: bytes of two models must never meet.
TEST_F(HubFaults, AFileThatIsReplacedMeanwhile) {
  stub_->faults(rule({{"on", "cdn"}, {"skip", 2}, {"times", -1}, {"fault", "etag"}}));
  const RunResult result = install("demo");
  if (result.exit_code == 0) {
    expect_same_tree(read_tree(destination()), local_tree("demo"));
  } else {
    expect_refused(result, "safetensors");
  }
}

TEST_F(HubFaults, KilledAtAnyMomentItFetchesLittleAgain) {
  constexpr int kKills = 30;
  const std::string model = "demo";
  // So slow that nearly nothing is under way when the process dies: 22 MB in a second.
  stub_->options({{"bytes_per_s", 20'000'000}});
  const auto begin = Clock::now();
  {
    Background calm = start(model, destination());
    ASSERT_EQ(calm.wait(), 0) << calm.output();
  }
  const double whole_s = std::chrono::duration<double>(Clock::now() - begin).count();
  const uint64_t once = weight_bytes(stub_->log()).sent;
  fs::remove_all(destination());

  std::mt19937 random(20261130);
  std::uniform_real_distribution<double> moment(0.02, 0.9);
  int kills = 0;
  uint64_t again = 0, killed_installs = 0;
  while (kills < kKills) {
    ASSERT_LT(killed_installs, 10u * kKills) << "installs end before they are killed";
    stub_->clear();
    // Killed three times, then left alone. One that was done already was not killed.
    bool done = false;
    for (int here = 0; here < 3 && !done && kills < kKills; ++here) {
      Background worker = start(model, destination());
      std::this_thread::sleep_for(std::chrono::duration<double>(moment(random) * whole_s / 3));
      worker.kill_now();
      worker.wait();
      done = fs::exists(destination() / "manifest.json") &&
             !fs::exists(destination() / "install.json");
      kills += done ? 0 : 1;
    }
    if (!done) {
      Background last = start(model, destination());
      ASSERT_EQ(last.wait(), 0) << last.output();
    }
    expect_same_tree(read_tree(destination()), local_tree(model));
    fs::remove_all(destination());
    const WeightBytes bytes = weight_bytes(stub_->log());
    again += bytes.sent - once;
    ++killed_installs;
  }
  std::cout << kills << " kills of " << killed_installs << " installs of " << once
            << " bytes: " << again << " bytes fetched again\n";
  RecordProperty("refetched_bytes", std::to_string(again));
  RecordProperty("kills", std::to_string(kills));
  EXPECT_LT(static_cast<double>(again), 0.02 * static_cast<double>(once * killed_installs));
}

TEST_F(HubFaults, OfTwoAtOnceOneIsRefused) {
  stub_->options({{"bytes_per_s", 4'000'000}});
  Background first = start("demo", destination());
  for (int i = 0; i < 5000 && !fs::exists(destination()); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  stub_->clear();
  const RunResult second = install("demo");
  EXPECT_EQ(second.exit_code, 1) << second.err;
  EXPECT_THAT(second.err, HasSubstr("another install"));
  stub_->options({{"bytes_per_s", 0}});
  EXPECT_EQ(first.wait(), 0) << first.output();
  expect_same_tree(read_tree(destination()), local_tree("demo"));
}

class HubDisk : public HubTest {
 protected:
  void SetUp() override {
    HubTest::SetUp();
    if (HasFatalFailure() || IsSkipped() || disk_.mounted()) return;
    if (disk_.must_mount()) FAIL() << disk_.error();
    GTEST_SKIP() << disk_.error() << ": full disks are not tested";
  }
  RunResult install_there(const std::string& model) const {
    return wader({"install", repository_of(model), "-o", (disk_.path() / "out.wader").string()});
  }
  // Facts of `wader install --dry-run --json`.
  Json planned(const std::string& model) const {
    const RunResult result = wader({"install", repository_of(model), "-o",
                                    (disk_.path() / "out.wader").string(), "--dry-run", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    Result<Json> json = parse_json(result.out, "the plan");
    EXPECT_TRUE(json.ok()) << result.out;
    return json.ok() ? *json : Json();
  }
  SmallDisk disk_{scratch_.path() / "disk", "size=128m"};
};

TEST_F(HubDisk, TooSmallIsRefusedBeforeWeightsAreFetched) {
  const uint64_t peak_bytes = planned("demo")["peak_bytes"].get<uint64_t>();
  ASSERT_TRUE(disk_.resize(peak_bytes - 4096));
  stub_->clear();
  const RunResult result = install_there("demo");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr(std::to_string(peak_bytes) + " bytes"));
  EXPECT_THAT(result.err, HasSubstr("free"));
  EXPECT_LT(weight_bytes(stub_->log()).sent, 1'000'000u);
  EXPECT_FALSE(fs::exists(disk_.path() / "out.wader"));
}

// What is said up front is enough: no second copy of the checkpoint is made on the way.
TEST_F(HubDisk, ThePlannedRoomIsEnough) {
  const Json plan = planned("demo");
  const uint64_t peak_bytes = plan["peak_bytes"].get<uint64_t>();
  EXPECT_LT(peak_bytes, plan["write_bytes"].get<uint64_t>() + (66u << 20));
  ASSERT_TRUE(disk_.resize(peak_bytes));
  const RunResult result = install_there("demo");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_same_tree(read_tree(disk_.path() / "out.wader"), local_tree("demo"));
}

TEST_F(HubDisk, FillingUpHalfWayLosesNothing) {
  std::mt19937 random(7);
  for (int round = 0; round < 5; ++round) {
    stub_->options({{"bytes_per_s", 16'000'000}});
    const fs::path to = disk_.path() / "out.wader";
    Background worker({"install", repository_of("demo"), "-o", to.string()}, env(),
                      home() / "background.log");
    std::this_thread::sleep_for(std::chrono::milliseconds(100 + random() % 1000));
    disk_.fill();
    const int status = worker.wait();
    stub_->options({{"bytes_per_s", 0}});
    if (status != 0) {
      EXPECT_EQ(WEXITSTATUS(status), 1) << worker.output();
      EXPECT_THAT(worker.output(), AnyOf(HasSubstr("No space left"), HasSubstr("free")));
      EXPECT_FALSE(fs::exists(to / "manifest.json"));
    }
    disk_.free();
    if (status != 0) {
      const RunResult result = install_there("demo");
      ASSERT_EQ(result.exit_code, 0) << result.err;
    }
    expect_same_tree(read_tree(to), local_tree("demo"));
    fs::remove_all(to);
  }
}

// The very last step fails: everything is there but the name that makes it a container.
TEST_F(HubDisk, TheLastStepThatFailsIsDoneAgain) {
  stub_->options({{"bytes_per_s", 16'000'000}});
  const fs::path to = disk_.path() / "out.wader";
  Background worker({"install", repository_of("demo"), "-o", to.string()}, env(),
                    home() / "background.log");
  for (int i = 0; i < 5000 && !fs::exists(to / "trunk.bin"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  fs::create_directories(to / "manifest.json/in the way");
  EXPECT_EQ(WEXITSTATUS(worker.wait()), 1);
  stub_->options({{"bytes_per_s", 0}});
  EXPECT_THAT(worker.output(), HasSubstr("manifest.json"));
  EXPECT_THAT(wader({"list"}).out, Not(HasSubstr("out")));
  EXPECT_NE(wader({"verify", to.string()}).exit_code, 0) << "it is no container";
  fs::remove_all(to / "manifest.json");
  stub_->clear();
  const RunResult result = install_there("demo");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_same_tree(read_tree(to), local_tree("demo"));
  EXPECT_LT(weight_bytes(stub_->log()).sent, 1'000'000u) << "all weights were there";
}

TEST_F(HubDisk, ReadOnlyIsAnErrorThatNamesThePlace) {
  ASSERT_TRUE(disk_.resize(128 << 20, MS_RDONLY));
  const RunResult result = install_there("demo");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr((disk_.path() / "out.wader").string()));
  EXPECT_THAT(result.err, HasSubstr("Read-only file system"));
  EXPECT_LT(weight_bytes(stub_->log()).sent, 1'000'000u);
}

}  // namespace
}  // namespace wader::testing
