// Bodies and stream events of chat completions and completions, byte for byte.
#include "server/chat_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "server/answer_testing.h"
#include "server/api_testing.h"
#include "server/completion_answer.h"
#include "server/models_answer.h"

namespace wader {
namespace {

using ::testing::ElementsAre;

const AnswerHead kHead = {"chatcmpl-1", 1700000000, "demo"};

ChatCompletionRequest asked(bool include_usage, std::optional<uint32_t> top_logprobs = {}) {
  ChatCompletionRequest request;
  request.include_usage = include_usage;
  request.top_logprobs = top_logprobs;
  return request;
}

AnswerPiece text_piece(std::string text) {
  AnswerPiece piece;
  piece.content = std::move(text);
  return piece;
}

AnswerUsage usage_of(const Answer& answer) {
  AnswerUsage usage;
  usage.add(ended_by(GenerationEnd::stop).timings, answer);
  return usage;
}

Answer small_answer() {
  Answer answer;
  answer.content = "four";
  answer.reasoning = "hm";
  answer.tokens = 5;
  answer.reasoning_tokens = 2;
  return answer;
}

constexpr std::string_view kUsage =
    R"({"prompt_tokens":12,"completion_tokens":5,"total_tokens":17,)"
    R"("prompt_tokens_details":{"cached_tokens":8},"completion_tokens_details":{"reasoning_tokens":2}})";
constexpr std::string_view kTimings =
    R"({"queue_seconds":0.25,"prefill_seconds":1.5,"decode_seconds":2.0,"bytes_read":4096,"hit_rate":0.75})";

std::string chunk_with(std::string_view choices, std::string_view rest = "") {
  std::string text =
      R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,)"
      R"("model":"demo","choices":)";
  return text.append(choices).append(rest).append("}\n\n");
}

// Case D-01: without include_usage no chunk says anything of usage.
TEST(ChatAnswer, StreamWithoutUsage) {
  const ChatStream stream(kHead, asked(false));
  EXPECT_EQ(stream.role(0), chunk_with(R"([{"index":0,"delta":{"role":"assistant","content":""},)"
                                       R"("logprobs":null,"finish_reason":null}])"));
  EXPECT_EQ(stream.chunk(1, text_piece("fo\n\"")),
            chunk_with(R"([{"index":1,"delta":{"content":"fo\n\""},"logprobs":null,)"
                       R"("finish_reason":null}])"));
  EXPECT_EQ(stream.chunk(0, AnswerPiece()), "");
  EXPECT_EQ(stream.finish(0, AnswerFinish::length),
            chunk_with(R"([{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}])"));
  EXPECT_EQ(stream.usage(usage_of(small_answer())), "");
  EXPECT_EQ(kSseDone, "data: [DONE]\n\n");
}

// Case D-01: with it the last chunk has it, choices [] and our timings; the others null.
TEST(ChatAnswer, StreamWithUsage) {
  const ChatStream stream(kHead, asked(true));
  EXPECT_EQ(stream.chunk(0, text_piece("x")),
            chunk_with(R"([{"index":0,"delta":{"content":"x"},"logprobs":null,)"
                       R"("finish_reason":null}])",
                       R"(,"usage":null)"));
  EXPECT_EQ(
      stream.usage(usage_of(small_answer())),
      chunk_with(
          "[]",
          std::string(R"(,"usage":)").append(kUsage).append(R"(,"timings":)").append(kTimings)));
}

TEST(ChatAnswer, ReasoningAndCallsAreStreamed) {
  const ChatStream stream(kHead, asked(false));
  AnswerPiece piece;
  piece.reasoning = "hm";
  piece.tool_calls = {{0, "call_1", "f", ""}, {0, "", "", "{\"a\""}};
  EXPECT_EQ(
      stream.chunk(0, piece),
      chunk_with(
          R"([{"index":0,"delta":{"reasoning_content":"hm","tool_calls":[)"
          R"({"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}},)"
          R"({"index":0,"function":{"arguments":"{\"a\""}}]},"logprobs":null,)"
          R"("finish_reason":null}])"));
}

TEST(ChatAnswer, Logprobs) {
  const ChatStream stream(kHead, asked(false, 1));
  AnswerPiece piece = text_piece("→");
  const float none = -std::numeric_limits<float>::infinity();
  piece.logprobs = {{"\xE2\x86", -0.5f, {{"\xE2\x86", -0.5f}}}, {"\x92", none, {}}};
  EXPECT_EQ(stream.chunk(0, piece),
            chunk_with(R"([{"index":0,"delta":{"content":"→"},"logprobs":{"content":[)"
                       R"({"token":"�","logprob":-0.5,"bytes":[226,134],"top_logprobs":[)"
                       R"({"token":"�","logprob":-0.5,"bytes":[226,134]}]},)"
                       R"({"token":"�","logprob":-9999.0,"bytes":[146],"top_logprobs":[]}],)"
                       R"("refusal":null},"finish_reason":null}])"));
}

TEST(ChatAnswer, Whole) {
  const Answer answer = small_answer();
  EXPECT_EQ(
      json_text(chat_completion_json(kHead, asked(false), std::span(&answer, 1), usage_of(answer))),
      std::string(R"({"id":"chatcmpl-1","object":"chat.completion","created":1700000000,)"
                  R"("model":"demo","choices":[{"index":0,"message":{"role":"assistant",)"
                  R"("content":"four","refusal":null,"reasoning_content":"hm"},)"
                  R"("logprobs":null,"finish_reason":"stop"}],"usage":)")
          .append(kUsage)
          .append(R"(,"timings":)")
          .append(kTimings)
          .append("}"));
}

// Case B-02: one entry a call, with id, type and arguments as text; content null.
TEST(ChatAnswer, WholeWithCalls) {
  Answer answers[2];
  answers[0].tool_calls = {{"call_1", "f", "{\"x\": 1}"}};
  answers[0].finish = AnswerFinish::tool_calls;
  const Json json =
      chat_completion_json(kHead, asked(false), answers, usage_of(answers[0]))["choices"];
  EXPECT_EQ(json.dump(),
            R"([{"index":0,"message":{"role":"assistant","content":null,"refusal":null,)"
            R"("tool_calls":[{"id":"call_1","type":"function","function":{"name":"f",)"
            R"("arguments":"{\"x\": 1}"}}]},"logprobs":null,"finish_reason":"tool_calls"},)"
            R"({"index":1,"message":{"role":"assistant","content":"","refusal":null},)"
            R"("logprobs":null,"finish_reason":"stop"}])");
  // What goes out can be sent back.
  const Json history = {
      {"messages",
       Json::array({{{"role", "user"}, {"content", "x"}},
                    json[0]["message"],
                    {{"role", "tool"}, {"tool_call_id", "call_1"}, {"content", "1"}}})}};
  EXPECT_EQ(accepted(parse_chat_completion(history, test_facts())).chat.messages.size(), 3u);
}

TEST(ChatAnswer, UsageOfSeveralChoices) {
  AnswerUsage usage;
  GenerationTimings timings = ended_by(GenerationEnd::stop).timings;
  usage.add(timings, small_answer());
  timings.reused_tokens = 12;
  timings.hit_rate = 0.25;
  timings.queue_seconds = 0.5;
  usage.add(timings, small_answer());
  EXPECT_EQ(usage.chat().dump(), R"({"prompt_tokens":12,"completion_tokens":10,"total_tokens":22,)"
                                 R"("prompt_tokens_details":{"cached_tokens":8},)"
                                 R"("completion_tokens_details":{"reasoning_tokens":4}})");
  EXPECT_EQ(usage.timings().dump(),
            R"({"queue_seconds":0.5,"prefill_seconds":3.0,"decode_seconds":4.0,)"
            R"("bytes_read":8192,"hit_rate":0.5})");
}

TEST(ChatAnswer, ErrorInTheMidstOfAStream) {
  EXPECT_EQ(sse_error({500, "experts.bin: bad \xFF checksum", "", "generation_failed"}),
            "data: {\"error\":{\"message\":\"experts.bin: bad \xEF\xBF\xBD checksum\","
            "\"type\":\"server_error\",\"param\":null,\"code\":\"generation_failed\"}}\n\n");
}

const AnswerHead kTextHead = {"cmpl-1", 1700000000, "demo"};

TEST(CompletionAnswer, Stream) {
  CompletionRequest request;
  request.n = 2;
  request.echo = true;
  request.prompt_text = "A→";
  request.top_logprobs = 1;
  CompletionStream stream(kTextHead, request, echo_text(request, demo_tokenizer()));
  AnswerPiece piece = text_piece("b→");
  piece.logprobs = {{"b", -1, {{"c", -0.5f}}}, {"\xE2\x86", -1, {}}, {"\x92", -1, {}}};
  const std::string head =
      R"(data: {"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"demo",)"
      R"("choices":[{"text":)";
  EXPECT_EQ(stream.chunk(1, piece),
            head +
                R"("A→b→","index":1,"logprobs":{"tokens":["b","bytes:\\xe2\\x86","bytes:\\x92"],)"
                R"("token_logprobs":[-1.0,-1.0,-1.0],"top_logprobs":[{"c":-0.5,"b":-1.0},)"
                R"({"bytes:\\xe2\\x86":-1.0},{"bytes:\\x92":-1.0}],"text_offset":[2,3,4]},)"
                R"("finish_reason":null}]})"
                "\n\n");
  EXPECT_EQ(stream.chunk(1, text_piece("d")),
            head + R"("d","index":1,"logprobs":{"tokens":[],"token_logprobs":[],)"
                   R"("top_logprobs":[],"text_offset":[]},"finish_reason":null}]})"
                   "\n\n");
  EXPECT_EQ(stream.chunk(1, AnswerPiece()), "");
  EXPECT_EQ(stream.finish(0, AnswerFinish::stop),
            head + R"("A→","index":0,"logprobs":null,"finish_reason":"stop"}]})"
                   "\n\n")
      << "an answer of no tokens still has its echo";
  EXPECT_EQ(stream.finish(1, AnswerFinish::length),
            head + R"("","index":1,"logprobs":null,"finish_reason":"length"}]})"
                   "\n\n");
  EXPECT_EQ(stream.usage(usage_of(small_answer())), "");
}

TEST(CompletionAnswer, Whole) {
  CompletionRequest request;
  request.top_logprobs = 0;
  Answer answer = small_answer();
  answer.logprobs = {{"fo", -1, {}}, {"ur", -2, {}}};
  const Json json =
      completion_json(kTextHead, request, "Say ", std::span(&answer, 1), usage_of(answer));
  EXPECT_EQ(json_text(json),
            std::string(R"({"id":"cmpl-1","object":"text_completion","created":1700000000,)"
                        R"("model":"demo","choices":[{"text":"Say four","index":0,"logprobs":)"
                        R"({"tokens":["fo","ur"],"token_logprobs":[-1.0,-2.0],)"
                        R"("top_logprobs":[{"fo":-1.0},{"ur":-2.0}],"text_offset":[4,6]},)"
                        R"("finish_reason":"stop"}],"usage":)")
                .append(kUsage)
                .append(R"(,"timings":)")
                .append(kTimings)
                .append("}"));
}

TEST(CompletionAnswer, EchoOfIds) {
  CompletionRequest request;
  request.prompt_ids = with_markup("<|start|>Hi");
  EXPECT_EQ(echo_text(request, demo_tokenizer()), "");
  request.echo = true;
  EXPECT_EQ(echo_text(request, demo_tokenizer()), "<|start|>Hi");
}

TEST(Models, ListAndOne) {
  const ModelFacts facts = test_facts();
  const std::string model =
      R"({"id":"demo","object":"model","created":1700000000,"owned_by":"wader",)"
      R"("context_length":4096})";
  EXPECT_EQ(models_json(facts).dump(), R"({"object":"list","data":[)" + model + "]}");
  EXPECT_EQ(accepted(model_json("demo", facts)).dump(), model);
  EXPECT_EQ(accepted(model_json("gpt-4o", facts)).at("id"), "gpt-4o");
  const ApiError error = refused(model_json("x\xFF", facts));
  EXPECT_EQ(error.status, 404);
  EXPECT_EQ(error.code, "model_not_found");
  EXPECT_EQ(error.message, "The model 'x\\ufffd' does not exist: this server has 'demo'");
}

}  // namespace
}  // namespace wader
