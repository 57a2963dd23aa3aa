// Events of /v1/responses, and that they tell the same as the response that is sent whole.
#include "server/responses_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/answer_testing.h"
#include "server/api_testing.h"

namespace wader {
namespace {

using ::testing::ElementsAre;

const AnswerHead kHead = {"resp_1", 1700000000, "demo"};

// Parses a stream and checks its form: "event:" equals the type, numbers count up.
std::vector<Json> events_of(std::string_view text) {
  std::vector<Json> events;
  while (!text.empty()) {
    const size_t end = text.find("\n\n");
    if (end == text.npos) {
      ADD_FAILURE() << "no blank line after " << text;
      break;
    }
    const std::string_view event = text.substr(0, end);
    text.remove_prefix(end + 2);
    const size_t line = event.find('\n');
    EXPECT_TRUE(event.starts_with("event: ")) << event;
    EXPECT_TRUE(event.substr(line + 1).starts_with("data: ")) << event;
    Json json = body_of(event.substr(line + 7));
    EXPECT_EQ(json.at("type"), event.substr(7, line - 7));
    EXPECT_EQ(json.at("sequence_number"), events.size());
    json.erase("sequence_number");
    events.push_back(std::move(json));
  }
  return events;
}

std::vector<std::string> types_of(const std::vector<Json>& events) {
  std::vector<std::string> types;
  for (const Json& event : events) types.push_back(event.at("type"));
  return types;
}

struct Told {
  std::vector<Json> events;
  Json response;
};

Told tell(std::string_view text, GenerationEnd end = GenerationEnd::stop,
          std::string_view fields = "") {
  const ResponsesRequest request = responses_of(responses_with(fields));
  const TestAnswer test = run_harmony(text, {.logprobs = request.top_logprobs.has_value()}, end);
  ResponsesAnswer answer(kHead, request);
  std::string stream = answer.begin();
  for (const AnswerPiece& piece : test.pieces) stream += answer.push(piece);
  AnswerUsage usage;
  usage.add(ended_by(end).timings, test.answer);
  stream += answer.finish(test.answer.finish, usage);
  return {events_of(stream), answer.response()};
}

TEST(ResponsesAnswer, Text) {
  const Told test = tell("<|channel|>final<|message|>Four.<|return|>");
  std::vector<std::string> types = types_of(test.events);
  types.erase(std::unique(types.begin(), types.end()), types.end());
  EXPECT_THAT(types,
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.output_text.delta",
                          "response.output_text.done", "response.content_part.done",
                          "response.output_item.done", "response.completed"));
  EXPECT_EQ(test.events[0].at("response").at("status"), "in_progress");
  EXPECT_EQ(test.events[0].at("response").at("usage"), nullptr);
  EXPECT_EQ(test.events[0].at("response").at("output"), Json::array());
  EXPECT_EQ(test.events[2].dump(),
            R"({"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1_0",)"
            R"("type":"message","status":"in_progress","role":"assistant","content":[]}})");
  EXPECT_EQ(test.events[3].dump(),
            R"({"type":"response.content_part.added","item_id":"msg_1_0","output_index":0,)"
            R"("content_index":0,"part":{"type":"output_text","text":"","annotations":[],)"
            R"("logprobs":[]}})");
  EXPECT_EQ(test.events.back().at("response"), test.response);
  EXPECT_EQ(
      test.response.dump(),
      R"({"id":"resp_1","object":"response","created_at":1700000000,"status":"completed",)"
      R"("error":null,"incomplete_details":null,"model":"demo","output":[{"id":"msg_1_0",)"
      R"("type":"message","status":"completed","role":"assistant","content":[{"type":)"
      R"("output_text","text":"Four.","annotations":[],"logprobs":[]}]}],"instructions":null,)"
      R"("max_output_tokens":null,"metadata":{},"parallel_tool_calls":true,)"
      R"("previous_response_id":null,"reasoning":{"effort":null,"summary":null},"store":false,)"
      R"("temperature":0.7,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],)"
      R"("top_logprobs":0,"top_p":0.8,"truncation":"disabled","usage":{"input_tokens":12,)"
      R"("input_tokens_details":{"cached_tokens":8},"output_tokens":7,)"
      R"("output_tokens_details":{"reasoning_tokens":0},"total_tokens":19},"timings":)"
      R"({"queue_seconds":0.25,"prefill_seconds":1.5,"decode_seconds":2.0,"bytes_read":4096,)"
      R"("hit_rate":0.75}})");
}

constexpr std::string_view kCall =
    "<|channel|>analysis<|message|>Look up.<|end|><|start|>assistant<|channel|>commentary"
    "<|message|>Wait.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
    "<|constrain|>json<|message|>{\"x\": 1}<|call|>";

TEST(ResponsesAnswer, ReasoningTextAndCall) {
  const Told test =
      tell(kCall, GenerationEnd::stop, R"("include": ["reasoning.encrypted_content"])");
  std::vector<std::string> types = types_of(test.events);
  types.erase(std::unique(types.begin(), types.end()), types.end());
  EXPECT_THAT(
      types,
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.reasoning_summary_part.added", "response.reasoning_summary_text.delta",
                  "response.reasoning_summary_text.done", "response.reasoning_summary_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta",
                  "response.output_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.function_call_arguments.delta", "response.function_call_arguments.done",
                  "response.output_item.done", "response.completed"));
  Json output = test.response.at("output");
  ASSERT_EQ(output.size(), 3u);
  const Json call_id = output[2].at("call_id");
  output[2]["call_id"] = "call_x";
  EXPECT_EQ(output.dump(),
            R"([{"id":"rs_1_0","type":"reasoning","summary":[{"type":"summary_text","text":)"
            R"("Look up."}],"encrypted_content":"the text is in summary","status":"completed"},)"
            R"({"id":"msg_1_1","type":"message","status":"completed","role":"assistant",)"
            R"("content":[{"type":"output_text","text":"Wait.","annotations":[],)"
            R"("logprobs":[]}]},{"id":"fc_1_2","type":"function_call","status":"completed",)"
            R"("call_id":"call_x","name":"f","arguments":"{\"x\": 1}"}])");

  // What the deltas add up to, by item, is what the done events and the response say.
  std::vector<std::string> texts(3);
  for (const Json& event : test.events) {
    const std::string type = event.at("type");
    if (type.ends_with(".delta")) {
      texts.at(event.at("output_index")) += event.at("delta").get<std::string>();
    } else if (type.ends_with("_text.done")) {
      EXPECT_EQ(event.at("text"), texts.at(event.at("output_index")));
    } else if (type == "response.function_call_arguments.done") {
      EXPECT_EQ(event.at("arguments"), texts.at(2));
      EXPECT_EQ(event.at("name"), "f");
      EXPECT_EQ(event.at("item_id"), "fc_1_2");
    } else if (type == "response.output_item.done") {
      EXPECT_EQ(event.at("item"),
                test.response.at("output")[event.at("output_index").get<size_t>()]);
    }
  }
  EXPECT_THAT(texts, ElementsAre("Look up.", "Wait.", "{\"x\": 1}"));

  // And a next turn takes it back.
  Json input = test.response.at("output");
  input.push_back({{"type", "function_call_output"}, {"call_id", call_id}, {"output", "7"}});
  const auto next = accepted(parse_responses(Json{{"input", input}}, test_facts()));
  ASSERT_EQ(next.chat.messages.size(), 2u);
  EXPECT_EQ(next.chat.messages[0].reasoning, "Look up.");
  EXPECT_EQ(next.chat.messages[0].content, "Wait.");
  EXPECT_EQ(next.chat.messages[0].tool_calls.at(0).arguments, "{\"x\": 1}");
}

TEST(ResponsesAnswer, TwoCallsAreTwoItems) {
  const Told test = tell(
      "<|channel|>commentary to=functions.f<|message|>{}<|end|>"
      "<|start|>assistant<|channel|>commentary to=functions.g<|message|>[]<|call|>");
  const Json& output = test.response.at("output");
  ASSERT_EQ(output.size(), 2u);
  EXPECT_EQ(output[0].at("arguments"), "{}");
  EXPECT_EQ(output[1].at("name"), "g");
  EXPECT_EQ(output[1].at("arguments"), "[]");
}

TEST(ResponsesAnswer, CutShort) {
  const Told test = tell("<|channel|>final<|message|>Fo", GenerationEnd::length);
  EXPECT_EQ(test.events.back().at("type"), "response.incomplete");
  EXPECT_EQ(test.response.at("status"), "incomplete");
  EXPECT_EQ(test.response.at("incomplete_details").dump(), R"({"reason":"max_output_tokens"})");
  EXPECT_EQ(test.response.at("output")[0].at("status"), "incomplete");
  EXPECT_EQ(test.response.at("output")[0].at("content")[0].at("text"), "Fo");
}

TEST(ResponsesAnswer, AnEmptyAnswerIsAnEmptyMessage) {
  const Told test = tell("<|return|>");
  ASSERT_EQ(test.response.at("output").size(), 1u);
  EXPECT_EQ(test.response.at("output")[0].at("content")[0].at("text"), "");
}

TEST(ResponsesAnswer, Logprobs) {
  const Told test = tell("<|channel|>final<|message|>Four five<|return|>", GenerationEnd::stop,
                         R"("top_logprobs": 2)");
  const Json& part = test.response.at("output")[0].at("content")[0];
  std::string text;
  for (const Json& entry : part.at("logprobs")) text += entry.at("token").get<std::string>();
  EXPECT_EQ(text, "Four five");
  EXPECT_EQ(part.at("logprobs")[0].at("top_logprobs").size(), 2u);
  Json streamed = Json::array();
  for (const Json& event : test.events)
    if (event.at("type") == "response.output_text.delta")
      for (const Json& entry : event.at("logprobs")) streamed.push_back(entry);
  EXPECT_EQ(streamed, part.at("logprobs"));
}

TEST(ResponsesAnswer, Failure) {
  ResponsesAnswer answer(kHead, responses_of(responses_with("")));
  std::string stream = answer.begin();
  AnswerPiece piece;
  piece.content = "Fo";
  stream += answer.push(piece);
  stream += answer.fail({500, "experts.bin: bad checksum", "", "generation_failed"});
  const auto events = events_of(stream);
  EXPECT_EQ(events.back().at("type"), "response.failed");
  EXPECT_EQ(events.back().at("response").at("status"), "failed");
  EXPECT_EQ(events.back().at("response").at("error").dump(),
            R"({"code":"server_error","message":"experts.bin: bad checksum"})");
  EXPECT_EQ(events[events.size() - 2].at("item").at("status"), "incomplete");
}

}  // namespace
}  // namespace wader
