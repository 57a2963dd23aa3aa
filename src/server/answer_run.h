// One request to an answering endpoint, from the engine's queue to the last byte of its answer.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/answer.h"
#include "server/answer_json.h"
#include "server/service.h"

namespace wader {

// What the endpoint has made of the request.
struct AnswerJob {
  std::vector<TokenId> prompt;
  uint32_t turn_start = 0;
  AnswerOptions options;
  std::vector<std::unique_ptr<ChatParser>> parsers = {};  // one a choice; none: plain text
};

// How the endpoint says it: events ready to write ("" for nothing), or one body. Without a stream
// the events go nowhere.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  virtual std::string begin() = 0;
  virtual std::string piece(uint32_t choice, const AnswerPiece& piece) = 0;
  virtual std::string finish(uint32_t choice, AnswerFinish finish) = 0;
  virtual std::string end(const AnswerUsage& usage) = 0;
  virtual std::string fail(const ApiError& error) = 0;
  virtual Json whole(std::span<const Answer> answers, const AnswerUsage& usage) = 0;
};

// What the sinks of chat and text completions have in common; `Stream` is a ChunkStream.
template <typename Stream>
class ChunkSink : public AnswerSink {
 public:
  explicit ChunkSink(Stream stream) : stream_(std::move(stream)) {}

  std::string begin() override { return {}; }
  std::string piece(uint32_t choice, const AnswerPiece& piece) override {
    return stream_.chunk(choice, piece);
  }
  std::string finish(uint32_t choice, AnswerFinish finish) override {
    return stream_.finish(choice, finish);
  }
  std::string end(const AnswerUsage& usage) override {
    return stream_.usage(usage) + std::string(kSseDone);
  }
  std::string fail(const ApiError& error) override { return sse_error(error); }

 protected:
  Stream stream_;
};

// Generates request.n answers and sends them. While nothing comes, a stream gets a comment a second
// with its place in the queue or the prompt's progress. Work stops when the client goes.
Task<> run_answer(Service& service, ServedModel& model, HttpExchange& exchange,
                  AnswerRequest request, AnswerJob job, AnswerSink& sink);

// "chatcmpl-" and 24 random digits.
std::string new_answer_id(std::string_view prefix);
AnswerHead new_answer_head(std::string_view prefix, const ServedModel& model);

}  // namespace wader
