// `wader bench`: its figures are there, agree with each other and with the model's shapes.
#include "cli_fixture.h"

namespace wader::testing {
namespace {

double sum_of(const Json& object) {
  double sum = 0;
  for (const auto& value : object) sum += value.get<double>();
  return sum;
}

void expect_engine_figures(const Json& json) {
  for (const char* key :
       {"tokens_per_second", "seconds", "memory_bandwidth", "peak_rss_bytes", "budget_bytes"})
    EXPECT_GT(json.at(key).get<double>(), 0) << key;
  EXPECT_TRUE(json.at("read_rate_limit").is_null() || json.at("bytes_read") > 0) << json;
  EXPECT_GE(json.at("hit_rate").get<double>(), 0);
  EXPECT_LE(json.at("hit_rate").get<double>(), 1);
  EXPECT_LE(json["peak_rss_bytes"].get<double>(), json["budget_bytes"].get<double>());
  const double seconds = json["seconds"].get<double>();
  const Json& phases = json.at("phase_seconds");
  for (const char* key : {"mixer", "router", "expert_compute", "head"})
    EXPECT_GT(phases.at(key).get<double>(), 0) << key;
  EXPECT_GE(phases.at("expert_wait").get<double>(), 0);
  EXPECT_GE(phases.at("other").get<double>(), 0);
  EXPECT_EQ(phases.size(), 7u);
  EXPECT_NEAR(sum_of(phases), seconds, 1e-9 + 1e-6 * seconds);
  EXPECT_NEAR(json["tokens"].get<double>() / seconds, json["tokens_per_second"].get<double>(),
              1e-6 * json["tokens_per_second"].get<double>());
  EXPECT_EQ(json.at("tokens_per_second_by_round").size(), json["rounds"].get<size_t>());
}

TEST_F(Cli, BenchDecodeAccountsForItsTime) {
  const Json json = json_of(wader({"bench", "decode", "demo", "--count", "8", "--rounds", "3",
                                   "--memory", "512MiB", "--threads", "1", "--json"}));
  expect_engine_figures(json);
  EXPECT_EQ(json["tokens"], 8);
  EXPECT_EQ(json["budget_bytes"], 512 << 20);
  // The slots hold all experts, and the warm-up read them, but for some that it never met.
  EXPECT_GE(json["hit_rate"].get<double>(), 0.95);
  EXPECT_EQ(json["hit_rate"] == 1.0, json["bytes_read_per_token"] == 0.0);
  EXPECT_EQ(json.at("lookahead_accuracy").is_null(), json["lookahead_reads"] == 0);
  EXPECT_EQ(json.at("lookahead_accuracy_by_layer").size(), 8u);
  const double active = json.at("active_bytes_per_token").get<double>();
  EXPECT_EQ(active, json["active_trunk_bytes"].get<double>() +
                        json["active_expert_bytes"].get<double>() +
                        json["active_state_bytes"].get<double>());
  const double floor_seconds = active / json["memory_bandwidth"].get<double>();
  const double token_seconds = 1 / json["tokens_per_second"].get<double>();
  EXPECT_NEAR(json.at("floor_ratio").get<double>(), token_seconds / floor_seconds,
              1e-6 * token_seconds / floor_seconds);
}

TEST_F(Cli, BenchDecodeReadsWhatItsSlotsDoNotHold) {
  const Json json = json_of(wader({"bench", "decode", "demo", "--count", "16", "--slots", "16",
                                   "--rounds", "1", "--threads", "1", "--json"}));
  expect_engine_figures(json);
  EXPECT_LT(json["hit_rate"].get<double>(), 1);
  const double read = json.at("bytes_read_per_token").get<double>();
  EXPECT_GT(read, 0);
  EXPECT_NEAR(json.at("read_rate").get<double>(), read * json["tokens_per_second"].get<double>(),
              1e-6 * json["read_rate"].get<double>());
}

TEST_F(Cli, BenchDecodeOfMappedFilesReadsNothingItself) {
  const Json json = json_of(wader({"bench", "decode", "demo", "--count", "8", "--rounds", "2",
                                   "--mmap", "--threads", "1", "--json"}));
  EXPECT_EQ(json["io"], "memory-mapped");
  EXPECT_EQ(json["bytes_read"], 0);
  EXPECT_GT(json["tokens_per_second"].get<double>(), 0);
}

TEST_F(Cli, BenchDecodeThroughAModelOfADisk) {
  const Json json =
      json_of(wader({"bench", "decode", "demo", "--count", "4", "--rounds", "1", "--slots", "32",
                     "--disk-rate", "4MB", "--lookahead", "off", "--threads", "1", "--json"}));
  EXPECT_GT(json["bytes_read"].get<double>(), 0);
  EXPECT_LT(json["read_rate"].get<double>(), 4e6);
  EXPECT_GT(json["phase_seconds"]["expert_wait"].get<double>(),
            0.5 * json["seconds"].get<double>());
}

TEST_F(Cli, BenchPrefillComparesWithThePeak) {
  const Json json = json_of(wader({"bench", "prefill", "demo", "--count", "40", "--chunk", "16",
                                   "--rounds", "1", "--threads", "1", "--json"}));
  expect_engine_figures(json);
  EXPECT_EQ(json["chunk"], 16);
  EXPECT_GE(json.at("bytes_read").get<double>(), 0);
  if (json.at("int8_peak").is_null()) {
    EXPECT_TRUE(json.at("peak_fraction").is_null());
  } else {
    const double rate = json["operations"].get<double>() / json["seconds"].get<double>();
    EXPECT_NEAR(json["peak_fraction"].get<double>(), rate / json["int8_peak"].get<double>(), 1e-9);
  }
}

// 512 MiB hold both engines at once, 36 MiB one: then each round opens its own.
TEST_F(Cli, BenchComparesTwoSettings) {
#ifdef __SANITIZE_ADDRESS__
  const std::vector<const char*> budgets = {"1GiB"};  // the sanitizer's own memory counts in it
#else
  const std::vector<const char*> budgets = {"512MiB", "36MiB"};
#endif
  for (const char* memory : budgets) {
    const Json json =
        json_of(wader({"bench", "decode", "demo", "--count", "4", "--rounds", "4", "--memory",
                       memory, "--a", "--threads 1", "--b", "--threads 1 --slots 16", "--json"}));
    expect_engine_figures(json.at("a"));
    expect_engine_figures(json.at("b"));
    EXPECT_EQ(json["b"]["slots"], 16);
    EXPECT_NE(json["a"]["slots"], 16);
    const Json& comparison = json.at("comparison");
    EXPECT_EQ(comparison.at("rounds"), 4);
    EXPECT_LE(comparison["a_faster"].get<int>() + comparison["b_faster"].get<int>(), 4);
    EXPECT_LE(comparison.at("speed_ratio_smallest"), comparison.at("speed_ratio"));
    EXPECT_LE(comparison["speed_ratio"], comparison.at("speed_ratio_largest"));
    EXPECT_GE(comparison.at("sign_test_p").get<double>(), 0.125);  // 4 of 4, both sides
    EXPECT_LE(comparison["sign_test_p"].get<double>(), 1);
  }
}

#ifndef __SANITIZE_ADDRESS__
// What the larger engine had, and left behind, is nothing to the smaller one that follows it.
TEST_F(Cli, BenchComparesTwoBudgetsAndTwoNumbersOfThreads) {
  const Json json = json_of(
      wader({"bench", "decode", "demo", "--count", "4", "--rounds", "2", "--memory", "64MiB", "--a",
             "--memory 64MiB --threads 1", "--b", "--memory 40MiB --threads 2", "--json"}));
  EXPECT_EQ(json.at("a").at("budget_bytes"), 64 << 20);
  EXPECT_EQ(json.at("b").at("budget_bytes"), 40 << 20);
  EXPECT_EQ(json["a"].at("threads"), 1);
  EXPECT_EQ(json["b"].at("threads"), 2);
}
#endif

TEST_F(Cli, BenchKernelsNamesWhatItMeasured) {
  const Json json = json_of(wader({"bench", "kernels", "--shape", "96x128", "--format", "mxfp4",
                                   "--tokens", "3", "--rounds", "2", "--threads", "1", "--json"}));
  EXPECT_GT(json.at("memory_bandwidth").get<double>(), 0);
  EXPECT_TRUE(json.contains("int8_peak"));
  const Json& results = json.at("results");
  ASSERT_GE(results.size(), 2u);
  EXPECT_EQ(results[0]["kernels"], "ref");
  for (const Json& result : results) {
    EXPECT_EQ(result["op"], "matmul");
    EXPECT_EQ(result["format"], "mxfp4");
    EXPECT_EQ(result["bytes"], 96 * 128 * 17 / 32);
    EXPECT_EQ(result["operations"], 2 * 96 * 128 * 3);
    const double seconds = result.at("seconds").get<double>();
    EXPECT_NEAR(result["bytes_per_second"].get<double>() * seconds, 96 * 128 * 17 / 32, 1e-3);
    EXPECT_NEAR(result["operations_per_second"].get<double>() * seconds, 2 * 96 * 128 * 3, 1e-3);
    EXPECT_GT(result["bandwidth_fraction"].get<double>(), 0);
  }
  const Json attend =
      json_of(wader({"bench", "kernels", "--op", "attend", "--shape", "64x32", "--tokens", "2",
                     "--rounds", "1", "--threads", "1", "--json"}));
  ASSERT_GE(attend.at("results").size(), 2u);
  EXPECT_EQ(attend["results"][0]["op"], "attend");
  EXPECT_EQ(attend["results"][0]["format"], "f32");
  const Json pair = json_of(
      wader({"bench", "kernels", "--shape", "64x64", "--format", "affine8", "--tokens", "1",
             "--rounds", "2", "--a", "--kernels ref", "--b", "--kernels portable", "--json"}));
  ASSERT_EQ(pair["results"].size(), 2u);
  EXPECT_EQ(pair["results"][1]["kernels"], "portable");
  ASSERT_EQ(pair.at("comparisons").size(), 1u);
  EXPECT_GT(pair["comparisons"][0]["speed_ratio"].get<double>(), 0);
}

TEST_F(Cli, BenchTablesAreForPeople) {
  const RunResult decode = wader({"bench", "decode", "demo", "--count", "2", "--rounds", "2",
                                  "--threads", "1", "--b", "--slots 16"});
  EXPECT_EQ(decode.exit_code, 0) << decode.err;
  for (const char* part : {"speed", "floor", "hit rate", "expert wait", "tok/s", "B/A", "p = "})
    EXPECT_THAT(decode.out, HasSubstr(part));
  const RunResult kernels = wader({"bench", "kernels", "--shape", "64x64", "--tokens", "1",
                                   "--rounds", "1", "--threads", "1", "--kernels", "ref"});
  EXPECT_EQ(kernels.exit_code, 0) << kernels.err;
  for (const char* part : {"mxfp4", "affine4", "affine8", "64x64", "GB/s", "memory "})
    EXPECT_THAT(kernels.out, HasSubstr(part));
}

TEST_F(Cli, BenchRefusesWhatItCannotMeasure) {
  expect_error({"bench", "decode"}, 2, "needs MODEL");
  expect_error({"bench", "decode", "demo", "--count", "0"}, 2, "--count");
  expect_error({"bench", "decode", "demo", "--context", "5"}, 2, "96 tokens of a round");
  expect_error({"bench", "decode", "demo", "--count", "10000000"}, 1, "model's context");
  expect_error({"bench", "decode", "demo", "--a", "--count 5"}, 2, "--a: --count");
  expect_error({"bench", "decode", "demo", "--b", "--kernels mmx"}, 2, "mmx");
  expect_error({"bench", "decode", "demo", "--temperature", "-1"}, 2, "temperature");
  expect_error({"bench", "prefill", "demo", "--memory", "8MiB"}, 1, "--memory");
  expect_error({"bench", "prefill", "demo", "--rounds", "0"}, 2, "--rounds");
  for (const char* shape :
       {"", "5", "5x", "x5", "0x64", "64x64x64", "-1x64", "5000000000x64", "4000000000x64"})
    expect_error({"bench", "kernels", "--shape", shape}, 2, "shape");
  expect_error({"bench", "kernels", "--shape", "64x10"}, 2, "10 columns");
  expect_error({"bench", "kernels", "--matrices", "0"}, 2, "--matrices");
  expect_error({"bench", "kernels", "--op", "attend", "--matrices", "2"}, 2, "2 matrices");
  expect_error({"bench", "kernels", "--shape", "65536x65536", "--matrices", "9"}, 2, "9 matrices");
  expect_error({"bench", "kernels", "--op", "sort"}, 2, "sort");
  expect_error({"bench", "kernels", "--op", "delta", "--format", "mxfp4"}, 2, "--format");
  expect_error({"bench", "kernels", "--format", "f99"}, 2, "f99");
  expect_error({"bench", "kernels", "--format", "i64"}, 2, "i64");
  expect_error({"bench", "kernels", "--kernels", "mmx"}, 2, "mmx");
  expect_error({"bench", "kernels", "--threads", "100000"}, 2, "--threads");
}

TEST_F(Cli, BenchIoMeasuresEveryWayToRead) {
  const Json json = json_of(
      wader({"bench", "io", "demo", "--depth", "2", "--burst", "1,3", "--rounds", "2", "--json"}));
  ASSERT_EQ(json.at("results").size(), 4u * 3);
  size_t measured = 0;
  for (const Json& run : json["results"]) {
    if (run.contains("refused")) continue;  // no io_uring, or no O_DIRECT, said so
    ++measured;
    EXPECT_GT(run.at("bytes_per_second").get<double>(), 0);
    EXPECT_LE(run["bytes_per_second_smallest"], run["bytes_per_second"]);
    EXPECT_LE(run["bytes_per_second"], run["bytes_per_second_largest"]);
    const Json& latency = run.at("latency_seconds");
    EXPECT_LE(latency.at("p50"), latency.at("p90"));
    EXPECT_LE(latency["p90"], latency.at("p99"));
    EXPECT_LE(latency["p99"], latency.at("max"));
    EXPECT_GE(run.at("cpu_seconds_per_gigabyte").get<double>(), 0);
  }
  EXPECT_GE(measured, 3u) << "threads through the page cache work everywhere";
}

TEST_F(Cli, BenchIoTakesAFileAndRefusesNonsense) {
  const std::string file = kSource + "/models/demo/model-00001-of-00002.safetensors";
  const RunResult run =
      wader({"bench", "io", file, "--size", "100,64KiB", "--depth", "1", "--burst", "none",
             "--rounds", "1", "--engine", "threads", "--direct", "off"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("pread threads, page cache"));
  EXPECT_THAT(run.out, HasSubstr("dropped"));
  expect_error({"bench", "io", file, "--depth", "0"}, 2, "--depth");
  expect_error({"bench", "io", file, "--burst", "1,,2"}, 2, "--burst");
  expect_error({"bench", "io", file, "--burst", "65"}, 2, "--burst");
  expect_error({"bench", "io", file, "--size", "lots"}, 2, "lots");
  expect_error({"bench", "io", file, "--size", "1TiB"}, 2, "--size");
  expect_error({"bench", "io", file, "--engine", "aio"}, 2, "--engine");
  expect_error({"bench", "io", file, "--direct", "auto"}, 2, "--direct");
  expect_error({"bench", "io", file, "--depth", "none", "--burst", "none"}, 2,
               "nothing to measure");
  expect_error({"bench", "io", "no-such-model"}, 1, "no-such-model");
}

}  // namespace
}  // namespace wader::testing
