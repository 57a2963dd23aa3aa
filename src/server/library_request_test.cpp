#include "server/library_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api_testing.h"
#include "server/install_jobs.h"

namespace wader {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(InstallRequest, BecomesACommandLine) {
  const InstallRequest plain =
      accepted(parse_install(body_of(R"({"source": "openai/gpt-oss-20b"})")));
  EXPECT_EQ(plain.source, "openai/gpt-oss-20b");
  EXPECT_EQ(plain.name, "gpt-oss-20b");
  EXPECT_THAT(plain.arguments, IsEmpty());
  const InstallRequest formats = accepted(parse_install(
      body_of(R"({"source": "/models/Qwen 3", "experts": "affine4", "trunk": "bf16"})")));
  EXPECT_EQ(formats.name, "Qwen-3");
  EXPECT_THAT(formats.arguments, ElementsAre("--experts", "affine4", "--trunk", "bf16"));
}

// What would be an option of the command, or mean something else in another directory.
TEST(InstallRequest, TakesNoOptionAndNoRelativePath) {
  for (const char* source : {"--repair", "-o", "", "name", "../x", "./checkpoint", "a/b/c",
                             "org/..", "org/-x", "/a\\u0000b", "~/x", "org/name --repair"}) {
    const std::string body = std::string(R"({"source": ")") + source + "\"}";
    EXPECT_EQ(refused(parse_install(body_of(body))).param, "source") << source;
  }
}

TEST(InstallRequest, EmptyBodies) {
  EXPECT_FALSE(check_empty_body(""));
  EXPECT_FALSE(check_empty_body("{}"));
  EXPECT_TRUE(check_empty_body("[]"));
  EXPECT_TRUE(check_empty_body("{"));
  EXPECT_EQ(check_empty_body(R"({"force": true})")->param, "force");
}

TEST(InstallJob, TakesProgressLinesAlone) {
  InstallJob job{.name = "x", .source = "org/x"};
  EXPECT_TRUE(take_install_line(
      R"({"event":"progress","phase":"experts","done_bytes":5,"total_bytes":18446744073709551615})",
      job));
  EXPECT_EQ(job.stage, "experts");
  EXPECT_EQ(job.done_bytes, 5u);
  EXPECT_EQ(job.total_bytes, UINT64_MAX);
  for (const char* line :
       {"", "x", "[]", R"({"event":"report"})", R"({"event":"progress","phase":"experts"})",
        R"({"event":"progress","phase":1,"done_bytes":1,"total_bytes":2})",
        R"({"event":"progress","phase":"trunk","done_bytes":-1,"total_bytes":2})"})
    EXPECT_FALSE(take_install_line(line, job)) << line;
  EXPECT_EQ(job.stage, "experts");
  EXPECT_EQ(job.done_bytes, 5u);
}

TEST(InstallJob, TheLastErrorOfACommand) {
  EXPECT_EQ(last_error("wader: a note\nwader: error: first\nwader: error: no room\n  free 3 GiB\n"),
            "no room;  free 3 GiB");
  EXPECT_EQ(last_error("killed\n"), "");
}

}  // namespace
}  // namespace wader
