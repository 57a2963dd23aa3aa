#include "install/hub_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wader {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

HubRequest file_request() {
  HubRequest request;
  request.repository = "org/m";
  request.revision = "main";
  request.name = "model.safetensors";
  request.endpoint = "https://huggingface.co";
  request.range = {1000, 500, 10'000};
  request.commit = std::string(40, 'a');
  request.linked_etag = "\"" + std::string(64, 'b') + "\"";
  return request;
}

HubAnswer answer_of(int status) {
  HubAnswer answer;
  answer.status = status;
  return answer;
}

TEST(HubRules, NamesOfModels) {
  for (const char* good :
       {"org/name", "openai/gpt-oss-20b", "Qwen/Qwen3-30B-A3B", "a/b.c_d", "gpt2"})
    EXPECT_TRUE(is_hub_id(good)) << good;
  for (const char* bad : {"", "/", "a/", "/a", "a/b/c", "../b", "a/..", "a b/c", "a/b?c", "a/-b",
                          "a/b-", "a/b--c", "a/.b", "a/b\nc", "a\\b"})
    EXPECT_FALSE(is_hub_id(bad)) << bad;
  EXPECT_FALSE(is_hub_id("a/" + std::string(100, 'b')));
  EXPECT_TRUE(is_hub_revision("refs/pr/1"));
  for (const char* bad : {"", "a..b", "a?b", "a#b", "a%2e", "-x", "/x", "a b"})
    EXPECT_FALSE(is_hub_revision(bad)) << bad;
}

TEST(HubRules, Origins) {
  EXPECT_EQ(*url_origin("HTTPS://HuggingFace.co/x"), "https://huggingface.co:443");
  EXPECT_EQ(*url_origin("http://127.0.0.1:8080"), "http://127.0.0.1:8080");
  for (const char* bad :
       {"", "huggingface.co", "ftp://x/", "file:///etc/passwd", "https://u:p@x/", "http://"})
    EXPECT_FALSE(url_origin(bad).ok()) << bad;
  EXPECT_TRUE(is_safe_for_token("https://mirror:443"));
  EXPECT_TRUE(is_safe_for_token("http://127.0.0.1:80"));
  EXPECT_FALSE(is_safe_for_token("http://127.0.0.1.evil.com:80"));
  EXPECT_FALSE(is_safe_for_token("http://mirror:80"));
}

TEST(HubRules, APasswordIsInNoMessage) {
  for (const char* text : {"https://me:secret@hub.example", "me:secret@x", "ftp://me:secret@x"})
    EXPECT_THAT(url_origin(text).error().message, Not(HasSubstr("secret"))) << text;
}

TEST(HubRules, Escapes) {
  EXPECT_EQ(percent_encode("org/a b~c"), "org/a%20b~c");
  EXPECT_EQ(percent_encode("refs/pr/1", false), "refs%2Fpr%2F1");
}

TEST(HubRules, ThisMachine) {
  for (const char* url : {"http://127.0.0.1", "https://LOCALHOST:8", "http://[::1]:80/x"})
    EXPECT_TRUE(is_this_machine(url_origin(url).value())) << url;
  for (const char* url : {"http://localhost.example", "http://127.0.0.1.example",
                          "https://hub.example/localhost:80/", "http://x/://localhost:1"})
    EXPECT_FALSE(is_this_machine(url_origin(url).value())) << url;
}

TEST(HubRules, Redirects) {
  EXPECT_EQ(*follow_location("https://a/x/y", "/z?q=1"), "https://a/z?q=1");
  EXPECT_EQ(*follow_location("https://a/x", "https://b/c"), "https://b/c");
  EXPECT_THAT(follow_location("https://a/x", "http://b/c").error().message, HasSubstr("to http"));
  EXPECT_FALSE(follow_location("https://a/x", "file:///etc/passwd").ok());
  EXPECT_FALSE(follow_location("https://a/x", std::string(20'000, 'y')).ok());
  EXPECT_EQ(next_page("<https://a/?c=1>; rel=\"next\""), "https://a/?c=1");
  EXPECT_EQ(next_page("<https://a/0>; rel=\"prev\", <https://a/2>; rel=\"next\""), "https://a/2");
  EXPECT_EQ(next_page("<https://a"), "");
  EXPECT_EQ(percent_encode("a b/c%?.x"), "a%20b/c%25%3F.x");
}

TEST(HubRules, RefusalsSayWhatToDo) {
  HubRequest request = file_request();
  const auto message = [&](int status, const char* code) {
    HubAnswer answer = answer_of(status);
    answer.error_code = code;
    const Judgement judgement = judge(request, answer, 0);
    EXPECT_EQ(judgement.verdict, Verdict::stop);
    EXPECT_THAT(judgement.error.message, Not(HasSubstr("\n")));
    return judgement.error.message;
  };
  EXPECT_THAT(message(401, "GatedRepo"),
              HasSubstr("accept its licence at https://huggingface.co/org/m"));
  EXPECT_THAT(message(401, "RepoNotFound"), HasSubstr("HF_TOKEN"));
  EXPECT_THAT(message(404, "RevisionNotFound"), HasSubstr("no revision 'main'"));
  EXPECT_THAT(message(404, "EntryNotFound"), HasSubstr("no file model.safetensors"));
  request.keeps_token = true;
  for (const char* code : {"GatedRepo", "RepoNotFound", ""})
    EXPECT_THAT(message(401, code), HasSubstr("HF_ENDPOINT must be https")) << code;
  request.keeps_token = false;
  request.has_token = true;
  EXPECT_THAT(message(403, "GatedRepo"), HasSubstr("token has no access"));
  EXPECT_THAT(message(401, ""), HasSubstr("refused the token"));
}

TEST(HubRules, WhatASignedAddressAnswers) {
  HubRequest request = file_request();
  request.at_endpoint = false;
  for (const int status : {400, 401, 403, 404, 410})
    EXPECT_EQ(judge(request, answer_of(status), 0).verdict, Verdict::renew) << status;
  for (const int status : {500, 502, 503, 504, 408})
    EXPECT_EQ(judge(request, answer_of(status), 0).verdict, Verdict::retry) << status;
}

TEST(HubRules, Ranges) {
  const HubRequest request = file_request();
  const auto verdict = [&](const char* range) {
    HubAnswer answer = answer_of(206);
    answer.content_range = range;
    return judge(request, answer, 0).verdict;
  };
  EXPECT_EQ(verdict("bytes 1000-1499/10000"), Verdict::take);
  EXPECT_EQ(verdict("bytes 1000-1200/10000"), Verdict::take);  // less: the rest is asked for again
  for (const char* bad : {"", "bytes 1000-1499/10001", "bytes 1001-1499/10000",
                          "bytes 1000-1500/10000", "bytes 1000-999/10000", "bytes 1000-1499/*",
                          "bytes -1-2/3", "bytes 18446744073709551616-1/2"})
    EXPECT_EQ(verdict(bad), Verdict::renew) << bad;
  HubAnswer whole = answer_of(200);
  whole.content_bytes = 10'000;
  EXPECT_EQ(judge(request, whole, 0).verdict, Verdict::take);
  EXPECT_EQ(judge(request, whole, 0).skip_bytes, 1000u);
  whole.content_bytes = 9'999;
  EXPECT_EQ(judge(request, whole, 0).verdict, Verdict::renew);
  HubRequest far = request;
  far.range = {5'000'000, 10, 10'000'000};
  whole.content_bytes = 10'000'000;
  EXPECT_THAT(judge(far, whole, 0).error.message, HasSubstr("ignores ranges"));
  whole.content_encoding = "gzip";
  EXPECT_THAT(judge(request, whole, 0).error.message, HasSubstr("gzip"));
}

TEST(HubRules, RedirectsOfOtherContentsAreRefused) {
  const HubRequest request = file_request();
  HubAnswer answer = answer_of(302);
  answer.location = "https://cdn/x";
  answer.linked_etag = request.linked_etag;
  answer.repo_commit = request.commit;
  EXPECT_EQ(judge(request, answer, 0).verdict, Verdict::redirect);
  answer.linked_etag = "\"other\"";
  EXPECT_EQ(judge(request, answer, 0).verdict, Verdict::stop);
  answer.linked_etag = request.linked_etag;
  answer.repo_commit = std::string(40, 'c');
  EXPECT_EQ(judge(request, answer, 0).verdict, Verdict::stop);
}

TEST(HubRules, WaitsAsLongAsItIsTold) {
  const HubRequest request = file_request();
  HubAnswer answer = answer_of(429);
  EXPECT_EQ(judge(request, answer, 0).verdict, Verdict::wait);
  EXPECT_FALSE(judge(request, answer, 0).delay);
  answer.rate_limit = "\"api\";r=0;t=55";
  EXPECT_EQ(judge(request, answer, 0).delay, milliseconds(55'000));
  answer.retry_after = "2";
  EXPECT_EQ(judge(request, answer, 0).delay, milliseconds(2'000));
  answer.retry_after = "Thu, 01 Jan 1970 00:01:40 GMT";
  EXPECT_EQ(judge(request, answer, 90).delay, milliseconds(10'000));
  EXPECT_EQ(judge(request, answer, 200).delay, milliseconds(0));
}

// While others come through, a request may fail more often, but not for ever.
TEST(RetrySchedule, BadLuckIsForgivenForAWhile) {
  RetrySchedule schedule({milliseconds(1), milliseconds(5), milliseconds(10), 5});
  uint32_t tries = 1;
  for (; schedule.next(std::nullopt, 0); ++tries) {
    ASSERT_LT(tries, 100u);
    schedule.forgive();
  }
  EXPECT_GE(tries, 15u);
  EXPECT_LE(tries, 20u);
  EXPECT_EQ(schedule.failures(), tries);
}

TEST(RetrySchedule, GrowsAndEnds) {
  RetrySchedule schedule({milliseconds(100), milliseconds(500), milliseconds(10'000), 5});
  EXPECT_EQ(schedule.next({}, 0), milliseconds(100));
  EXPECT_EQ(schedule.next({}, 0), milliseconds(200));
  EXPECT_EQ(schedule.next({}, 0), milliseconds(400));
  EXPECT_EQ(schedule.next({}, 0), milliseconds(500));
  EXPECT_FALSE(schedule.next({}, 0));
  schedule.progressed();
  EXPECT_EQ(schedule.next(milliseconds(3'000), 500), milliseconds(3'500));
  EXPECT_FALSE(schedule.next(milliseconds(11'000), 0));  // longer than we wait
  RetrySchedule jittered({milliseconds(1024), milliseconds(5000), milliseconds(1), 5});
  EXPECT_EQ(jittered.next({}, 255), milliseconds(1024 + 255));
}

}  // namespace
}  // namespace wader
