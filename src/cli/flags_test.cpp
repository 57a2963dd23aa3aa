#include "cli/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "cli/args.h"
#include "cli/help.h"
#include "cli/options.h"
#include "cli/text.h"

namespace wader {
namespace {

using testing::HasSubstr;

Result<Args> parse(Command command, std::vector<std::string> words) {
  return Args::parse(spec_of(command), words);
}

std::string error_of(Command command, std::vector<std::string> words) {
  const Result<Args> args = parse(command, std::move(words));
  return args.ok() ? "" : args.error().message;
}

TEST(Flags, TableIsSound) {
  std::set<std::string_view> commands;
  for (const CommandSpec& spec : command_specs()) {
    EXPECT_TRUE(commands.insert(spec.name).second) << spec.name;
    EXPECT_EQ(find_command(spec.name), &spec);
    EXPECT_EQ(&spec_of(spec.id), &spec);
    EXPECT_FALSE(spec.summary.empty() || spec.details.empty()) << spec.name;
    std::set<std::string_view> flags;  // of this command
    for (const FlagSpec& flag : flag_specs()) {
      if (flag.belongs_to(spec.id))
        EXPECT_TRUE(flags.insert(flag.name).second) << spec.name << flag.name;
    }
    EXPECT_TRUE(flags.contains("--help")) << spec.name;
  }
  for (const FlagSpec& flag : flag_specs()) {
    EXPECT_TRUE(flag.name.starts_with("--")) << flag.name;
    EXPECT_FALSE(flag.help.empty()) << flag.name;
    EXPECT_TRUE(!flag.value.empty() || flag.fallback.empty())
        << flag.name << ": a switch has no default";
    EXPECT_EQ(std::string(flag.help).find('\n'), std::string::npos) << flag.name;
  }
  EXPECT_EQ(find_command("bench"), nullptr);  // a group
}

TEST(Flags, EveryFlagParses) {
  for (const CommandSpec& spec : command_specs()) {
    for (const FlagSpec& flag : flag_specs()) {
      if (!flag.belongs_to(spec.id)) continue;
      std::vector<std::string> words = {std::string(flag.name)};
      if (!flag.value.empty()) words.emplace_back("7");
      const Result<Args> args = Args::parse(spec, words);
      ASSERT_TRUE(args.ok()) << spec.name << " " << flag.name << ": " << args.error().message;
      EXPECT_TRUE(args->has(flag.name)) << spec.name << " " << flag.name;
      EXPECT_EQ(args->text(flag.name), flag.value.empty() ? "" : "7");
    }
  }
}

TEST(Args, OperandsFlagsAndTheirOrder) {
  const Args args =
      parse(Command::chat, {"--prompt", "--help me", "model", "--top-p=0.5", "--greedy"}).value();
  EXPECT_EQ(args.operand(0), "model");
  EXPECT_EQ(args.text("--prompt"), "--help me");
  EXPECT_EQ(*args.number("--top-p", 1), 0.5);
  EXPECT_TRUE(args.has("--greedy"));
  EXPECT_FALSE(args.has("--help"));
  EXPECT_TRUE(args.require_operands().ok());
  EXPECT_EQ(parse(Command::install, {"-o", "x", "y"})->text("--output"), "x");
  EXPECT_EQ(
      *parse(Command::chat, {"m", "--presence-penalty", "-0.5"})->number("--presence-penalty", 0),
      -0.5);
  EXPECT_EQ(parse(Command::chat, {"m", "--prompt", ""})->text("--prompt", "x"), "");
  EXPECT_EQ(parse(Command::tokenize, {"m", "--", "--special"})->operand(1), "--special");
  EXPECT_EQ(parse(Command::tokenize, {"m", "-"})->operand(1), "-");
  EXPECT_TRUE(parse(Command::tokenize, {"m", ""})->has_operand(1));
  EXPECT_EQ(parse(Command::tokenize, {"m", "\xff\xfe"})->operand(1), "\xff\xfe");
  EXPECT_EQ(parse(Command::tokenize, {"m", std::string(1 << 20, 'x')})->operand(1).size(),
            1u << 20);
}

TEST(Flags, AGroupNamesItsCommands) {
  EXPECT_EQ(commands_of_group("bench"), "kernels, decode, prefill, io");
  EXPECT_EQ(commands_of_group("chat"), "");
  EXPECT_EQ(commands_of_group(""), "");
}

TEST(Args, ASettingGoesOverTheFlagsBesideIt) {
  constexpr std::string_view kAllowed[] = {"--slots", "--kernels"};
  const Args args = parse(Command::bench_decode, {"m", "--slots", "4", "--threads", "2", "--a",
                                                  " --slots 8  --kernels=ref"})
                        .value();
  const Args a = args.with_setting("--a", kAllowed).value();
  EXPECT_EQ(a.operand(0), "m");
  EXPECT_EQ(a.text("--slots"), "8");
  EXPECT_EQ(a.text("--kernels"), "ref");
  EXPECT_EQ(a.text("--threads"), "2");
  EXPECT_EQ(args.with_setting("--b", kAllowed)->text("--slots"), "4");  // not given: as it stands
  const auto error = [&](std::string text) {
    const auto setting =
        parse(Command::bench_decode, {"m", "--a", std::move(text)})->with_setting("--a", kAllowed);
    return setting.ok() ? "" : setting.error().message;
  };
  EXPECT_EQ(error("--slots 1"), "");
  EXPECT_THAT(error("--count 1"), HasSubstr("--a: --count is the same for both"));
  EXPECT_THAT(error("other"), HasSubstr("'other' is not a flag"));
  EXPECT_THAT(error("--slot 1"), HasSubstr("did you mean --slots?"));
  EXPECT_THAT(error("--slots"), HasSubstr("takes one value"));
  EXPECT_THAT(error("--a --b"), HasSubstr("--a"));
}

TEST(Args, RefuseWithASuggestion) {
  EXPECT_THAT(error_of(Command::chat, {"m", "--temprature", "1"}),
              HasSubstr("did you mean --temperature?"));
  EXPECT_THAT(error_of(Command::chat, {"m", "--temprature=1"}),
              HasSubstr("unknown flag '--temprature'"));
  EXPECT_THAT(error_of(Command::list, {"--yes"}),
              HasSubstr("unknown flag '--yes'"));  // another command's
  EXPECT_THAT(error_of(Command::chat, {"m", "-x"}), HasSubstr("unknown flag '-x'"));
  EXPECT_THAT(error_of(Command::rm, {"a", "b"}), HasSubstr("unexpected argument 'b'"));
  EXPECT_THAT(error_of(Command::chat, {"m", "--seed"}), HasSubstr("--seed takes one value"));
  EXPECT_THAT(error_of(Command::chat, {"m", "--seed", "1", "--seed", "2"}),
              HasSubstr("--seed takes one value"));
  EXPECT_THAT(error_of(Command::chat, {"m", "--greedy=banana"}),
              HasSubstr("--greedy takes no value"));
  EXPECT_THAT(parse(Command::check, {"m"})->require_operands().error().message,
              HasSubstr("needs GOLDEN"));
  EXPECT_FALSE(parse(Command::chat, {""})->require_operands().ok());
}

TEST(Args, NumbersAreCheckedWhole) {
  const auto whole = [](std::string text) {
    return parse(Command::chat, {"m", "--top-k", std::move(text)})->whole("--top-k", 1, 100, 5);
  };
  EXPECT_EQ(*whole("7"), 7u);
  for (const char* bad :
       {"", "0", "101", "-1", "+1", "1.0", "1e1", "7x", " 7", "99999999999999999999"}) {
    EXPECT_FALSE(whole(bad).ok()) << "'" << bad << "'";
  }
  const auto number = [](std::string text) {
    return parse(Command::chat, {"m", "--top-p", std::move(text)})->number("--top-p", 1);
  };
  EXPECT_EQ(*number("1e-3"), 1e-3);
  for (const char* bad : {"", "nan", "inf", "-inf", "1,5", "0.5.5", "x"})
    EXPECT_FALSE(number(bad).ok()) << bad;
  const auto bytes = [](std::string text) {
    return parse(Command::chat, {"m", "--memory", std::move(text)})->bytes("--memory", 0);
  };
  EXPECT_EQ(*bytes("4GiB"), uint64_t{4} << 30);
  EXPECT_EQ(*bytes("auto"), 0u);
  for (const char* bad : {"", "0", "-1GiB", "4XiB", "GiB", "1e30"})
    EXPECT_FALSE(bytes(bad).ok()) << bad;
}

TEST(Options, EngineFlagsNeedKnownValues) {
  const auto options = [](std::vector<std::string> words) {
    words.insert(words.begin(), "m");
    return engine_options(parse(Command::chat, words).value());
  };
  EXPECT_TRUE(options({}).ok());
  EXPECT_EQ(options({"--context", "auto"})->context, 0u);
  EXPECT_EQ(options({"--context", "4096", "--slots", "64"})->slots, 64u);
  EXPECT_TRUE(options({"--lookahead", "auto"}).ok());
  EXPECT_TRUE(options({"--lookahead", "off"}).ok());
  EXPECT_TRUE(options({"--lookahead", "on"}).ok());
  for (const char* engine : {"auto", "uring", "threads"})
    EXPECT_EQ(options({"--io", engine})->io, engine);
  for (const auto& bad : std::vector<std::vector<std::string>>{{"--lookahead", "maybe"},
                                                               {"--io", "aio"},
                                                               {"--kernels", "mmx"},
                                                               {"--direct", "yes"},
                                                               {"--cache-policy", "fifo!"},
                                                               {"--context", "0"},
                                                               {"--threads", "4294967296"}}) {
    const auto result = options(bad);
    ASSERT_FALSE(result.ok()) << bad[0] << " " << bad[1];
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(result.error().message, HasSubstr(bad[0]));
  }
}

TEST(Options, SamplingFlagsGoOverTheModelsDefaults) {
  SamplingParams defaults;
  defaults.temperature = 0.8;
  defaults.top_p = 0.95;
  const auto params = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "m");
    return sampling_params(parse(Command::generate, words).value(), defaults);
  };
  EXPECT_EQ(params({})->temperature, 0.8);
  EXPECT_EQ(params({"--temperature", "0.2"})->temperature, 0.2);
  EXPECT_EQ(params({"--temperature", "0.2"})->top_p, 0.95);
  EXPECT_EQ(params({"--greedy"})->temperature, 0.0);
  EXPECT_EQ(params({"--greedy", "--temperature", "0"})->temperature, 0.0);
  EXPECT_FALSE(params({"--greedy", "--temperature", "1"}).ok());
  EXPECT_EQ(params({"--seed", "18446744073709551615"})->seed, ~uint64_t{0});
  EXPECT_EQ(params({"--top-k", "1000000000000"})->top_k, 0xffffffffu);
  EXPECT_FALSE(params({"--min-p", "2"}).ok());
  std::set<uint64_t> seeds;
  for (int i = 0; i < 8; ++i) seeds.insert(params({})->seed);
  EXPECT_GT(seeds.size(), 1u);  // random where none is given
}

TEST(Options, DateIsGivenOrReproducible) {
  const auto date = [](std::vector<std::string> words) {
    words.insert(words.begin(), "m");
    return conversation_date(parse(Command::render, words).value());
  };
  EXPECT_EQ(*date({"--date", "2024-02-29"}), "2024-02-29");
  for (const char* bad :
       {"2023-02-29", "2024-13-01", "2024-1-1", "today", "", "2024-00-10", "-024-01-01"}) {
    EXPECT_FALSE(date({"--date", bad}).ok()) << bad;
  }
  setenv("SOURCE_DATE_EPOCH", "86400", 1);
  EXPECT_EQ(*date({}), "1970-01-02");
  setenv("SOURCE_DATE_EPOCH", "yesterday", 1);
  EXPECT_FALSE(date({}).ok());
  unsetenv("SOURCE_DATE_EPOCH");
  EXPECT_EQ(date({})->size(), 10u);
}

TEST(Help, NamesEverything) {
  const std::string overview = overview_help();
  for (const CommandSpec& spec : command_specs()) {
    EXPECT_THAT(overview, HasSubstr(std::string(spec.name)));
    const std::string help = command_help(spec);
    for (const FlagSpec& flag : flag_specs()) {
      if (flag.belongs_to(spec.id))
        EXPECT_THAT(help, HasSubstr(std::string(flag.name))) << spec.name;
    }
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), 100u) << line;
  }
}

TEST(Help, DocsAreCurrent) {
  const std::string path = WADER_SOURCE_DIR "/docs/cli.md";
  if (std::getenv("WADER_WRITE_DOCS") != nullptr) std::ofstream(path) << cli_markdown();
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == cli_markdown())
      << "docs/cli.md is not what src/cli/flags.cpp says. Write it again with\n"
         "  WADER_WRITE_DOCS=1 BUILD/wader_cli_test --gtest_filter=Help.DocsAreCurrent";
}

}  // namespace
}  // namespace wader
