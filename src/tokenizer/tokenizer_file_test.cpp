// Files that tell other stories than they should: each is refused by name.
#include "tokenizer/tokenizer_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tokenizer/test_files.h"
#include "tokenizer/tokenizer.h"

namespace wader {
namespace {

using testing::HasSubstr;

std::string error_of(std::string_view text) {
  const auto tokenizer = Tokenizer::parse(text);
  return tokenizer.ok() ? "accepted" : tokenizer.error().message;
}

Json small_file() {
  Json file = test_file({{"a", "b"}, {"ab", "c"}});
  file["added_tokens"].push_back(added_token("<|end|>", 300));
  return file;
}

struct Case {
  const char* error;  // part of the message
  std::function<void(Json&)> spoil;
};

TEST(TokenizerFile, TheUnspoiltFileIsAccepted) {
  EXPECT_EQ(error_of(small_file().dump()), "accepted");
}

TEST(TokenizerFile, RefusesWhatWouldChangeIds) {
  const auto step = [](Json& file, int i) -> Json& {
    return file["pre_tokenizer"]["pretokenizers"][i];
  };
  const std::vector<Case> cases = {
      {"model of type 'Unigram'", [](Json& f) { f["model"]["type"] = "Unigram"; }},
      {"model: key 'type' is missing", [](Json& f) { f["model"].erase("type"); }},
      {"model.dropout", [](Json& f) { f["model"]["dropout"] = 0.1; }},
      {"model.unk_token", [](Json& f) { f["model"]["unk_token"] = "<unk>"; }},
      {"model.continuing_subword_prefix",
       [](Json& f) { f["model"]["continuing_subword_prefix"] = "##"; }},
      {"model.end_of_word_suffix", [](Json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }},
      {"model.fuse_unk", [](Json& f) { f["model"]["fuse_unk"] = true; }},
      {"model.byte_fallback", [](Json& f) { f["model"]["byte_fallback"] = true; }},
      {"ignore_merges is neither", [](Json& f) { f["model"]["ignore_merges"] = 1; }},
      {"key 'new_option' is not known", [](Json& f) { f["model"]["new_option"] = 1; }},
      {"key 'new_section' is not known", [](Json& f) { f["new_section"] = 1; }},
      {"version", [](Json& f) { f["version"] = "2.0"; }},
      {"truncation", [](Json& f) { f["truncation"] = Json::object(); }},
      {"padding", [](Json& f) { f["padding"] = Json::object(); }},
      {"normalizer of type 'NFKC'",
       [](Json& f) {
         f["normalizer"] = {{"type", "NFKC"}};
       }},
      {"normalizer of type 'Sequence'",
       [](Json& f) {
         f["normalizer"] = {{"type", "Sequence"}};
       }},
      {"normalizer: key 'form'",
       [](Json& f) {
         f["normalizer"] = {{"type", "NFC"}, {"form", 1}};
       }},
      {"normalizer: expected an object", [](Json& f) { f["normalizer"] = "NFC"; }},
      {"without pre_tokenizer", [](Json& f) { f["pre_tokenizer"] = nullptr; }},
      {"pre_tokenizer of type 'Metaspace'",
       [](Json& f) {
         f["pre_tokenizer"] = {{"type", "Metaspace"}};
       }},
      {"use_regex = false",
       [](Json& f) {
         f["pre_tokenizer"] = {
             {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
       }},
      {"add_prefix_space = true",
       [](Json& f) {
         f["pre_tokenizer"] = {{"type", "ByteLevel"}};
       }},
      {"pretokenizers is not a list", [](Json& f) { f["pre_tokenizer"]["pretokenizers"] = 1; }},
      {"'ByteLevel, Split'", [&](Json& f) { std::swap(step(f, 0), step(f, 1)); }},
      {"'Split, Digits'",
       [&](Json& f) {
         step(f, 1) = {{"type", "Digits"}};
       }},
      {"'Split, ByteLevel, Split'",
       [&](Json& f) { f["pre_tokenizer"]["pretokenizers"].push_back(step(f, 0)); }},
      {"behavior Isolated", [&](Json& f) { step(f, 0)["behavior"] = "Removed"; }},
      {"invert = true", [&](Json& f) { step(f, 0)["invert"] = true; }},
      {"only a Regex pattern",
       [&](Json& f) {
         step(f, 0)["pattern"] = {{"String", " "}};
       }},
      {"only a Regex pattern", [&](Json& f) { step(f, 0)["pattern"]["Regex"] = 7; }},
      {"split pattern", [&](Json& f) { step(f, 0)["pattern"]["Regex"] = "(a"; }},
      {"add_prefix_space = true", [&](Json& f) { step(f, 1)["add_prefix_space"] = true; }},
      {"use_regex = true", [&](Json& f) { step(f, 1).erase("use_regex"); }},
      {"key 'more'", [&](Json& f) { step(f, 1)["more"] = true; }},
      {"without decoder", [](Json& f) { f.erase("decoder"); }},
      {"decoder of type 'WordPiece'",
       [](Json& f) {
         f["decoder"] = {{"type", "WordPiece"}};
       }},
      {"post_processor of type 'TemplateProcessing'",
       [](Json& f) {
         f["post_processor"] = {{"type", "TemplateProcessing"}};
       }},
      {"model is missing",
       [](Json& f) {
         f["model"].erase("vocab");
         f["model"].erase("merges");
         f["model"] = nullptr;
       }},
  };
  for (const Case& c : cases) {
    Json file = small_file();
    c.spoil(file);
    if (std::string_view(c.error) == "model is missing") {
      EXPECT_THAT(error_of(file.dump()), HasSubstr("model.vocab is missing"));
    } else {
      EXPECT_THAT(error_of(file.dump()), HasSubstr(c.error));
    }
  }
}

TEST(TokenizerFile, RefusesAddedTokensItWouldGetWrong) {
  const std::vector<Case> cases = {
      {"added_tokens is not a list", [](Json& f) { f["added_tokens"] = Json::object(); }},
      {"added_tokens[0] is not an object", [](Json& f) { f["added_tokens"][0] = "<|end|>"; }},
      {"single_word = true", [](Json& f) { f["added_tokens"][0]["single_word"] = true; }},
      {"lstrip = true", [](Json& f) { f["added_tokens"][0]["lstrip"] = true; }},
      {"rstrip = true", [](Json& f) { f["added_tokens"][0]["rstrip"] = true; }},
      {"content has 0 bytes", [](Json& f) { f["added_tokens"][0]["content"] = ""; }},
      {"content has 300 bytes",
       [](Json& f) { f["added_tokens"][0]["content"] = std::string(300, 'x'); }},
      {"key 'content'", [](Json& f) { f["added_tokens"][0]["content"] = 5; }},
      {"key 'id'", [](Json& f) { f["added_tokens"][0]["id"] = -1; }},
      {"key 'id'", [](Json& f) { f["added_tokens"][0]["id"] = 1.5; }},
      {"key 'id'", [](Json& f) { f["added_tokens"][0]["id"] = 1 << 24; }},
      {"key 'id' is missing", [](Json& f) { f["added_tokens"][0].erase("id"); }},
      {"special is neither", [](Json& f) { f["added_tokens"][0]["special"] = "yes"; }},
      {"key 'strip'", [](Json& f) { f["added_tokens"][0]["strip"] = true; }},
      {"'<|end|>' occurs twice",
       [](Json& f) {
         f["added_tokens"].push_back(f["added_tokens"][0]);
         f["added_tokens"][1]["id"] = 301;
       }},
      {"'<|two|>' and '<|end|>' have the same id 300",
       [](Json& f) { f["added_tokens"].push_back(added_token("<|two|>", 300)); }},
      {"'<|two|>' and 'ab' have the same id 256",
       [](Json& f) { f["added_tokens"].push_back(added_token("<|two|>", 256)); }},
      {"'abc' has id 300, but 257", [](Json& f) { f["added_tokens"][0]["content"] = "abc"; }},
      {"merges make the special token 'abc'",
       [](Json& f) { f["added_tokens"].push_back(added_token("abc", 257)); }},
      {"single byte 0x61 is a special token",
       [](Json& f) { f["added_tokens"].push_back(added_token("a", f["model"]["vocab"]["a"])); }},
      {"lies far beyond", [](Json& f) { f["added_tokens"][0]["id"] = (1 << 24) - 1; }},
  };
  for (const Case& c : cases) {
    Json file = small_file();
    c.spoil(file);
    EXPECT_THAT(error_of(file.dump()), HasSubstr(c.error));
  }
}

TEST(TokenizerFile, RefusesBadVocabulariesAndMerges) {
  const auto vocab = [](Json& f) -> Json& { return f["model"]["vocab"]; };
  const auto merges = [](Json& f) -> Json& { return f["model"]["merges"]; };
  const std::vector<Case> cases = {
      {"model.vocab is missing", [](Json& f) { f["model"].erase("vocab"); }},
      {"model.merges is missing", [](Json& f) { f["model"].erase("merges"); }},
      {"model.vocab is not an object", [&](Json& f) { vocab(f) = Json::array({"a"}); }},
      {"model.vocab is not an object", [&](Json& f) { vocab(f) = nullptr; }},
      {"model.merges is not a list", [&](Json& f) { merges(f) = Json::object(); }},
      {"model.merges is not a list", [&](Json& f) { merges(f) = "a b"; }},
      {"model.vocab is empty", [&](Json& f) { vocab(f) = Json::object(); }},
      {"no token for the single byte 0x20", [&](Json& f) { vocab(f).erase("Ġ"); }},
      {"the id of 'ab' is not a whole number", [&](Json& f) { vocab(f)["ab"] = -1; }},
      {"the id of 'ab' is not a whole number", [&](Json& f) { vocab(f)["ab"] = 3.0; }},
      {"the id of 'ab' is not a whole number", [&](Json& f) { vocab(f)["ab"] = "3"; }},
      {"the id of 'ab' is not a whole number", [&](Json& f) { vocab(f)["ab"] = 1 << 24; }},
      {"the id of 'ab' is not a whole number", [&](Json& f) { vocab(f)["ab"] = nullptr; }},
      {"the id of 'ab' is not a whole number", [&](Json& f) { vocab(f)["ab"] = Json::array(); }},
      {"the id of 'ab' is not a whole number", [&](Json& f) { vocab(f)["ab"] = Json::object(); }},
      {"lies far beyond", [&](Json& f) { vocab(f)["ab"] = (1 << 24) - 1; }},
      {"have the same id 256", [&](Json& f) { vocab(f)["xyz"] = 256; }},
      {"id 258 is an empty token", [&](Json& f) { vocab(f)[""] = 258; }},
      {"item 2 occurs twice",
       [&](Json& f) {
         merges(f).push_back({"a", "b"});
       }},
      {"item 2 names 'q#'",
       [&](Json& f) {
         merges(f).push_back({"q#", "b"});
       }},
      {"item 2 names ' '",
       [&](Json& f) {
         merges(f).push_back({" ", "b"});
       }},
      {"item 2 makes 'ba'",
       [&](Json& f) {
         merges(f).push_back({"b", "a"});
       }},
      {"item 2 is neither", [&](Json& f) { merges(f).push_back({"a"}); }},
      {"item 2 is neither",
       [&](Json& f) {
         merges(f).push_back({"a", "b", "c"});
       }},
      {"item 2 is neither", [&](Json& f) { merges(f).push_back(Json::array()); }},
      {"item 2 is neither", [&](Json& f) { merges(f).push_back(7); }},
      {"item 2 is neither", [&](Json& f) { merges(f).push_back(nullptr); }},
      {"item 2 is neither", [&](Json& f) { merges(f).push_back(Json::object()); }},
      {"item 2 is neither",
       [&](Json& f) {
         merges(f).push_back({"a", 1});
       }},
      {"item 2 is neither",
       [&](Json& f) {
         merges(f).push_back(Json::array({Json::array({"a", "b"})}));
       }},
      {"item 2 is neither", [&](Json& f) { merges(f).push_back("ab"); }},
      {"item 2 is neither", [&](Json& f) { merges(f).push_back("a b c"); }},
      {"item 2 names ''", [&](Json& f) { merges(f).push_back(" b"); }},
  };
  for (const Case& c : cases) {
    Json file = small_file();
    c.spoil(file);
    EXPECT_THAT(error_of(file.dump()), HasSubstr(c.error));
  }
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(TokenizerFile, RefusesBadJson) {
  const std::string good = small_file().dump();
  EXPECT_THAT(error_of(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("nonsense"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(good + "x"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(replaced(good, "\"abc\":", "\"ab\xFF\":")), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(replaced(good, "\"abc\":257", "\"abc\":NaN")), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(replaced(good, "\"abc\":257", "\"abc\":1e999")),
              HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("[]"), HasSubstr("model.vocab is missing"));
  EXPECT_THAT(error_of("7"), HasSubstr("model.vocab is missing"));
  EXPECT_THAT(error_of("{}"), HasSubstr("model.vocab is missing"));
  EXPECT_THAT(error_of(R"({"model":[{"vocab":{}}]})"), HasSubstr("model.vocab is missing"));
  // Keys named twice, where it matters: readers disagree on which one counts.
  EXPECT_THAT(error_of(replaced(good, "\"abc\":257", "\"abc\":257,\"abc\":258")),
              HasSubstr("'abc' occurs twice"));
  EXPECT_THAT(error_of(replaced(good, "\"type\":\"BPE\"", "\"type\":\"BPE\",\"type\":\"BPE\"")),
              HasSubstr("key 'type' occurs twice"));
  EXPECT_THAT(error_of(replaced(good, "\"merges\":", "\"vocab\":{},\"merges\":")),
              HasSubstr("key 'vocab' occurs twice"));
  EXPECT_THAT(error_of(replaced(good, "\"decoder\":", "\"model\":{},\"decoder\":")),
              HasSubstr("key 'model' occurs twice"));
}

TEST(TokenizerFile, EveryCutIsRefused) {
  const std::string good = small_file().dump();
  for (size_t length = 0; length < good.size(); length += 1 + length / 50)
    ASSERT_NE(error_of(std::string_view(good).substr(0, length)), "accepted") << length;
}

TEST(TokenizerFile, RefusesNestingAndBulk) {
  const std::string good = small_file().dump();
  const std::string brackets(200'000, '[');
  EXPECT_THAT(error_of(brackets), HasSubstr("nested deeper"));
  EXPECT_THAT(error_of(replaced(good, "\"padding\":null", "\"padding\":" + brackets)),
              HasSubstr("nested deeper"));
  EXPECT_THAT(error_of(replaced(good, "\"abc\":257", "\"abc\":" + brackets)),
              HasSubstr("not a whole number"));
  EXPECT_THAT(error_of(replaced(good, "\"merges\":[", "\"merges\":[" + brackets)),
              HasSubstr("neither"));
  // Merges before the vocabulary are skipped at first, and still counted.
  EXPECT_THAT(error_of(R"({"model":{"merges":)" + brackets), HasSubstr("nested deeper"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  EXPECT_THAT(error_of(objects), HasSubstr("nested deeper"));

  std::string many = "[0";
  for (int i = 0; i < 300'000; ++i) many += ",0";
  EXPECT_THAT(error_of(R"({"padding":)" + many), HasSubstr("values beside"));
  std::string keys = "{\"k\":0";
  for (int i = 0; i < 2000; ++i) keys += ",\"k" + std::to_string(i) + "\":0";
  EXPECT_THAT(error_of(R"({"padding":)" + keys), HasSubstr("keys"));
  EXPECT_THAT(error_of(R"({"padding":")" + std::string(17 << 20, 'x') + "\""),
              HasSubstr("bytes beside"));
}

TEST(TokenizerFile, MessagesDoNotCarryControlCharacters) {
  Json file = small_file();
  file["model"]["type"] = "\x1b[2J\u009b\u202e" + std::string(1000, 'x');
  const std::string message = error_of(file.dump());
  EXPECT_THAT(message, HasSubstr("\\u001b"));
  EXPECT_LT(message.size(), 200u);
  for (const char c : message) EXPECT_TRUE(c >= ' ' || c < 0);
  EXPECT_THAT(message, Not(HasSubstr("\u009b")));
}

TEST(TokenizerFile, MergesMayBeTextAndComeFirst) {
  Json file = small_file();
  const auto expected = Tokenizer::parse(file.dump())->encode("abcab <|end|>").value();
  const Json pairs = file["model"]["merges"];
  file["model"]["merges"] = {"a b", "ab c"};
  EXPECT_EQ(Tokenizer::parse(file.dump())->encode("abcab <|end|>").value(), expected);
  for (const Json& merges : {pairs, file["model"]["merges"]}) {
    Json model = {{"merges", merges}};  // the order of keys() sorted
    for (const auto& [key, value] : file["model"].items())
      if (key != "merges") model[key] = value;
    Json reordered = file;
    reordered["model"] = model;
    const auto tokenizer = Tokenizer::parse(reordered.dump());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    EXPECT_EQ(tokenizer->encode("abcab <|end|>").value(), expected);
  }
}

TEST(TokenizerFile, LoadNamesTheFile) {
  const auto missing = Tokenizer::load("/nonexistent/tokenizer.json");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_THAT(missing.error().message, HasSubstr("/nonexistent/tokenizer.json"));
  const auto directory = Tokenizer::load(WADER_SOURCE_DIR);
  ASSERT_FALSE(directory.ok());
  EXPECT_EQ(directory.error().code, ErrorCode::io);
  const auto wrong = Tokenizer::load(WADER_SOURCE_DIR "/models/demo/config.json");
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message, HasSubstr("config.json: model.vocab is missing"));
}

}  // namespace
}  // namespace wader
