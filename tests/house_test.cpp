// The rules of the house hold in this tree; and each rule finds what it is there to find.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "house_rules.h"

namespace wader::house {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Files that may be longer than 600 lines, each with the reason a reader would accept.
const std::map<std::string, std::string> kLongFiles = {};

const fs::path kRoot = WADER_SOURCE_DIR;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string joined(const Findings& findings) {
  std::string text;
  for (const auto& finding : findings) text += "  " + finding + "\n";
  return text;
}

TEST(House, IncludesFollowTheRanks) {
  const auto findings = check_layers(kRoot);
  EXPECT_TRUE(findings.empty()) << joined(findings);
}

TEST(House, LibraryCodeNeitherPrintsNorExits) {
  const auto findings = check_library_calls(kRoot);
  EXPECT_TRUE(findings.empty()) << joined(findings);
}

TEST(House, FilesAreLaidOutAsAgreed) {
  const auto findings = check_layout(kRoot, kLongFiles);
  EXPECT_TRUE(findings.empty()) << joined(findings);
}

TEST(House, TypesHaveNamesOfTheirOwn) {
  const auto findings = check_type_names(kRoot);
  EXPECT_TRUE(findings.empty()) << joined(findings);
}

TEST(House, NothingIsLeftUnfinished) {
  const auto findings = check_unfinished(kRoot);
  EXPECT_TRUE(findings.empty()) << joined(findings);
}

TEST(House, LinksOfTheDocumentsLeadSomewhere) {
  const auto findings = check_links(kRoot);
  EXPECT_TRUE(findings.empty()) << joined(findings);
}

TEST(House, EveryFolderWithCodeIsRankedAndBuilt) {
  const auto ranks = parse_ranks(text_of(kRoot / "docs/architecture.md"));
  const auto links = parse_links(text_of(kRoot / "CMakeLists.txt"));
  EXPECT_EQ(ranks.at("base"), "0 ");
  EXPECT_EQ(ranks.at("arch"), "1b");
  EXPECT_EQ(ranks.at("cli"), "6 ");
  for (const auto& entry : fs::directory_iterator(kRoot / "src")) {
    for (const auto& file : fs::directory_iterator(entry)) {
      if (file.path().extension() != ".cpp") continue;
      EXPECT_TRUE(links.contains(entry.path().filename())) << file.path() << " is not built";
    }
  }
}

// A small tree in a temporary folder, in which every rule holds until a test breaks it.
class BrokenHouse : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "wader-house-";
    pattern.append(6, 'X');
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    write("docs/architecture.md",
          "| rank | folder | owns |\n|---|---|---|\n| 0 | `base/` | a |\n| 1 | `tensor/` | b |\n"
          "| 1 | `io/` | c |\n| 1b | `arch/` | d |\n| 6 | `cli/` | e |\n");
    write("CMakeLists.txt",
          "wader_folder(base THREADED LIBS fmt::fmt)\nwader_folder(tensor DEPS "
          "base)\nwader_folder(io DEPS base)\n"
          "wader_folder(arch DEPS base tensor)\nwader_folder(cli DEPS base tensor io\n    arch "
          "LIBS edit)\n");
    write("README.md", "[ranks](docs/architecture.md) and [elsewhere](https://example.org/none)\n");
    write("CONTRIBUTING.md", "Welcome.\n");
    write("src/base/a.h", "// What it is.\n#pragma once\n#include <cstdio>\n");
    write("src/tensor/t.cpp", "#include \"base/a.h\"\n#include \"tensor/t.h\"\n");
    write("src/arch/s.cpp", "#include \"tensor/t.h\"\n");
    write("src/cli/main.cpp",
          "#include <iostream>\n#include \"arch/s.h\"\nint main() { std::cout << 1; exit(0); }\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const fs::path& name, std::string_view text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name, std::ios::binary) << text;
  }

  fs::path root_;
};

TEST_F(BrokenHouse, IsFineBeforeItIsBroken) {
  EXPECT_THAT(check_layers(root_), IsEmpty());
  EXPECT_THAT(check_library_calls(root_), IsEmpty());
  EXPECT_THAT(check_layout(root_, {}), IsEmpty());
  EXPECT_THAT(check_unfinished(root_), IsEmpty());
  EXPECT_THAT(check_links(root_), IsEmpty());
}

TEST_F(BrokenHouse, IncludeOfAHigherRank) {
  write("src/base/b.cpp", "\n  #  include \"arch/s.h\"\n");
  EXPECT_THAT(check_layers(root_),
              ElementsAre(AllOf(HasSubstr("src/base/b.cpp:2:"), HasSubstr("arch/"))));
}

TEST_F(BrokenHouse, IncludeOfTheSameRankButAnotherFolder) {
  write("src/tensor/u_test.cpp", "#include \"io/file.h\"\n");
  EXPECT_THAT(check_layers(root_),
              ElementsAre(HasSubstr("src/tensor/u_test.cpp:1: tensor/ may not include io/")));
}

TEST_F(BrokenHouse, RankOneMayNotIncludeRankOneB) {
  write("src/io/f.h", "// F.\n#pragma once\n#include \"arch/s.h\"\n");
  EXPECT_THAT(check_layers(root_), ElementsAre(HasSubstr("src/io/f.h:3:")));
}

TEST_F(BrokenHouse, IncludeOfAFolderThatIsNotLinked) {
  write("src/arch/io.cpp", "#include \"io/file.h\"\n");
  EXPECT_THAT(check_layers(root_), ElementsAre(HasSubstr("not in the DEPS of arch")));
}

TEST_F(BrokenHouse, IncludeWithoutAFolder) {
  write("src/io/g.cpp", "#include \"file.h\"\n#include \"../base/a.h\"\n");
  EXPECT_THAT(check_layers(root_), ElementsAre(HasSubstr("g.cpp:1:"), HasSubstr("g.cpp:2:")));
}

TEST_F(BrokenHouse, FolderWithoutARank) {
  write("src/util/x.h", "// X.\n#pragma once\n");
  EXPECT_THAT(check_layers(root_), ElementsAre(HasSubstr("src/util: has no rank")));
}

TEST_F(BrokenHouse, LinkAgainstTheRanks) {
  write("CMakeLists.txt",
        "wader_folder(tensor DEPS base io)\nwader_folder(arch DEPS tensor)\nwader_folder(cli DEPS "
        "arch)\n");
  EXPECT_THAT(check_layers(root_),
              ElementsAre("CMakeLists.txt: tensor is linked with io, which has no lower rank"));
}

TEST_F(BrokenHouse, TableOfRanksIsGone) {
  write("docs/architecture.md", "Nothing here.\n");
  EXPECT_THAT(check_layers(root_), ElementsAre(HasSubstr("no table of ranks")));
}

TEST_F(BrokenHouse, LibraryCodeThatPrintsOrExits) {
  write(
      "src/io/p.cpp",
      "#include <iostream>\nvoid f() { std::printf(\"x\"); }\nvoid g() { std::abort (); }\n"
      "void h() { std::cerr << 1; }\nvoid i() { fmt::print(\"x\"); }\nvoid j() { ::_exit(1); }\n");
  EXPECT_THAT(check_library_calls(root_),
              ElementsAre(HasSubstr("p.cpp:1:"), HasSubstr("p.cpp:2:"), HasSubstr("p.cpp:3:"),
                          HasSubstr("p.cpp:4:"), HasSubstr("p.cpp:5:"), HasSubstr("p.cpp:6:")));
}

TEST_F(BrokenHouse, WordsInCommentsStringsAndNamesAreNoCalls) {
  write("src/io/q.cpp",
        "// abort() and printf(x)\n/* exit(1);\n exit(2); */\nauto a = \"exit(1) \\\" abort()\";\n"
        "auto b = R\"x(exit(1) )\" abort())x\";\nint c = 1'000; int exit_code(int); int d = "
        "exit_code(1);\n"
        "char e = '\"'; int f = snprintf(0, 0, \"\"); bool abort = false; bool g = abort && c;\n");
  EXPECT_THAT(check_library_calls(root_), IsEmpty());
}

TEST_F(BrokenHouse, TestsAndTheCheckMayEndTheProcess) {
  write("src/io/q_test.cpp", "void f() { _exit(1); }\n");
  write("src/base/check.cpp", "void f() { std::abort(); }\n");
  EXPECT_THAT(check_library_calls(root_), IsEmpty());
}

TEST_F(BrokenHouse, TabsAndLongLines) {
  const std::string wide = "// ≥≥" + std::string(105, 'x') + "\n";  // 110 columns, 114 bytes
  write("src/io/l.cpp",
        "\tint a;\n" + wide + "// " + std::string(108, 'x') + "\n// https://x.org/" + wide);
  EXPECT_THAT(check_layout(root_, {}),
              ElementsAre(HasSubstr("l.cpp:1: has a tab"), HasSubstr("l.cpp:3: is longer")));
}

TEST_F(BrokenHouse, LongFilesNeedAReasonForAsLongAsTheyAreLong) {
  std::string text;
  for (int i = 0; i < 601; ++i) text += "//\n";
  write("src/io/l.cpp", text);
  EXPECT_THAT(check_layout(root_, {}), ElementsAre(HasSubstr("src/io/l.cpp: has 601 lines")));
  EXPECT_THAT(check_layout(root_, {{"src/io/l.cpp", "one table"}}), IsEmpty());
  EXPECT_THAT(check_layout(root_, {{"src/io/l.cpp", ""}}),
              ElementsAre(HasSubstr("gives no reason")));
  write("src/io/l.cpp", "//\n");
  EXPECT_THAT(check_layout(root_, {{"src/io/l.cpp", "one table"}}),
              ElementsAre(HasSubstr("not long any more")));
}

TEST_F(BrokenHouse, HeadersSayWhatTheyAreAndAreGuarded) {
  write("src/io/h.h", "int x;");
  EXPECT_THAT(check_layout(root_, {}),
              ElementsAre(HasSubstr("newline"), HasSubstr("comment"), HasSubstr("pragma")));
}

TEST_F(BrokenHouse, TwoTypesOfOneName) {
  write("src/io/a.h", "namespace wader {\nstruct Answer;\nstruct Answer {};\nclass Other {};\n}\n");
  write("src/arch/b.h", "namespace wader {\nclass Answer final : public B {};\n}\n");
  write("src/arch/c.h", "namespace wader::c {\nstruct Other {};\n}\n");
  EXPECT_THAT(check_type_names(root_),
              ElementsAre(AllOf(HasSubstr(".h:"), HasSubstr("defines wader::Answer, as src/"))));
}

TEST_F(BrokenHouse, UnfinishedWork) {
  const std::string mark = std::string("TO") + "DO";
  write("src/io/u.cpp", "// " + mark + ": later\nint " + mark + "s;\n");
  write("tools/u.sh", "# " + std::string("FIX") + "ME\n");
  EXPECT_THAT(check_unfinished(root_),
              ElementsAre(HasSubstr("src/io/u.cpp:1:"), HasSubstr("tools/u.sh:1:")));
}

TEST_F(BrokenHouse, LinkToNowhere) {
  write("docs/x.md", "See [it](architecture.md#folders), [that](gone.md) and [above](#x).\n");
  EXPECT_THAT(check_links(root_), ElementsAre(HasSubstr("docs/x.md:1: links to gone.md")));
}

}  // namespace
}  // namespace wader::house
