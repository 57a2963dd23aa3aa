#include "hub_stub.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace wader::testing {
namespace {

// Reads to the end, or to the end of the first line.
std::string read_all(int fd, bool one_line) {
  std::string text;
  char buffer[65536];
  for (ssize_t count; (count = read(fd, buffer, one_line ? 1 : sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(count));
    if (one_line && text.back() == '\n') break;
  }
  return text;
}

Json parsed(const std::string& text, const std::string& what) {
  Result<Json> json = parse_json(text, "the stub's answer");
  EXPECT_TRUE(json.ok()) << what << ": " << text.substr(0, 500);
  return json.ok() ? *json : Json::object();
}

}  // namespace

StubHub::StubHub(const std::vector<std::string>& repositories) {
  if (std::string(WADER_NODE).empty()) return;
  int in[2], out[2];
  EXPECT_TRUE(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    std::vector<std::string> args = {WADER_NODE, WADER_SOURCE_DIR "/tests/hub/stub_hub.mjs"};
    for (const char* arg :
         {"--watch-stdin", "--tls", "--page", "3", "--token", "hf_good", "--token", "hf_stranger"})
      args.emplace_back(arg);
    for (const std::string& pair : repositories) args.insert(args.end(), {"--repo", pair});
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    execv(WADER_NODE, argv.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  input_ = in[1];
  const Json ports = parsed(read_all(out[0], true), "the stub's first line");
  close(out[0]);
  hub_ = ports.value("hub", "");
  cdn_ = ports.value("cdn", "");
  tls_ = ports.value("tls", "");
}

StubHub::~StubHub() {
  if (input_ >= 0) close(input_);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

std::string StubHub::exchange(const std::string& request) const {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(&hub_[hub_.rfind(':') + 1])));
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << hub_;
  EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  const std::string answer = read_all(fd, false);
  close(fd);
  EXPECT_EQ(answer.substr(9, 3), "200") << request << "\n" << answer;
  const size_t end = answer.find("\r\n\r\n");
  return end == answer.npos ? "" : answer.substr(end + 4);
}

Json StubHub::get(const std::string& path) const {
  return parsed(exchange("GET " + path + " HTTP/1.0\r\n\r\n"), path);
}

void StubHub::post(const std::string& path, const Json& body) const {
  const std::string text = json_text(body);
  exchange("POST " + path + " HTTP/1.0\r\nContent-Length: " + std::to_string(text.size()) +
           "\r\n\r\n" + text);
}

std::string StubHub::commit_of(const std::string& id) const {
  return get("/__stub/commits").value(id, "");
}

WeightBytes weight_bytes(const Json& log) {
  WeightBytes bytes;
  for (const auto& [name, file] : log["files"].items()) {
    if (!name.ends_with(".safetensors")) continue;
    bytes.sent += file["sent"].get<uint64_t>();
    bytes.again += file["again"].get<uint64_t>();
  }
  return bytes;
}

}  // namespace wader::testing
