// The four families from their fixtures: every canonical value where the architecture says it
// stands.
#include "checkpoint/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/family_testing.h"

namespace wader {
namespace {

using ::testing::HasSubstr;
using namespace wader::testing;  // NOLINT

const char* const kQwenFixtures[] = {"tiny-qwen3-moe", "tiny-qwen3-next", "tiny-qwen3.5-moe"};

TEST(Families, PlainFixturesHaveTheReleasedValues) {
  for (const char* name : kQwenFixtures) {
    const auto checkpoint = Checkpoint::open(fixture(name));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ((*checkpoint)->kind(), "Hugging Face");
    const ValuesByName released = plain_values(read_raw(fixture(name)));
    expect_values(**checkpoint, ExpectedQwen((*checkpoint)->spec(), released, false), 3);
  }
}

TEST(Families, MlxQuantisedHaveTheValuesOfTheirCodes) {
  for (const char* name : kQwenFixtures) {
    const TempDirectory directory;
    const ValuesByName values = write_mlx(fixture(name), directory.path());
    const auto checkpoint = Checkpoint::open(directory.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ((*checkpoint)->kind(), "MLX");
    expect_values(**checkpoint, ExpectedQwen((*checkpoint)->spec(), values, true), 7);
  }
}

}  // namespace
}  // namespace wader
