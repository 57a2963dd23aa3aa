// For tests of the HTTP layer: a server that runs in a thread, and a client that sends exactly the
// bytes it is told. Waits are long (a machine may be busy) and end as soon as what is waited for is
// there.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/http.h"

namespace wader {

inline constexpr auto kLongWait = std::chrono::seconds(60);

// Something that happens in the server's thread and is waited for in the test's.
class Signal {
 public:
  void raise() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  bool wait(int times = 1) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLongWait, [&] { return count_ >= times; });
  }
  int count() {
    const std::lock_guard lock(mutex_);
    return count_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

inline bool wait_until(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kLongWait;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

struct RawAnswer {
  int status = 0;  // 0: the connection ended before a whole answer
  std::string head, body;
  std::string header(std::string_view name) const {
    const size_t at = head.find("\r\n" + std::string(name) + ": ");
    if (at == head.npos) return {};
    const size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
};

class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer_bytes = 0) {
    file_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer_bytes > 0)
      setsockopt(file_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(int));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(file_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
      ADD_FAILURE() << "cannot connect to port " << port;
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // False when the server does not take it all.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(file_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  void close_sending() { ::shutdown(file_, SHUT_WR); }
  void close() {
    if (file_ >= 0) ::close(file_);
    file_ = -1;
  }
  // Closes so that the server sees a reset.
  void reset() {
    const linger hard = {1, 0};
    setsockopt(file_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    close();
  }

  // Waits for more bytes; false at the connection's end.
  bool receive() {
    pollfd waiting = {file_, POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(std::chrono::milliseconds(kLongWait).count())) != 1) {
      ADD_FAILURE() << "the server sends nothing";
      return false;
    }
    char bytes[16384];
    const ssize_t count = ::recv(file_, bytes, sizeof(bytes), 0);
    if (count <= 0) return false;
    inbox_.append(bytes, static_cast<size_t>(count));
    return true;
  }
  bool receive_until(std::string_view text) {
    while (inbox_.find(text) == inbox_.npos)
      if (!receive()) return false;
    return true;
  }
  // Until the server has closed: all that came.
  std::string receive_all() {
    while (receive()) {
    }
    return std::move(inbox_);
  }
  bool closed_by_server() { return receive_all().empty(); }

  // The next answer; its body by Content-Length or chunks.
  RawAnswer answer(bool to_head = false) {
    RawAnswer answer;
    if (!receive_until("\r\n\r\n")) return answer;
    const size_t end = inbox_.find("\r\n\r\n") + 4;
    answer.head = inbox_.substr(0, end - 2);
    inbox_.erase(0, end);
    const int status = std::stoi(answer.head.substr(9, 3));
    if (!to_head && answer.header("Transfer-Encoding") == "chunked") {
      if (!take_chunks(answer.body)) return answer;
    } else if (!to_head && status >= 200 && !answer.header("Content-Length").empty()) {
      const size_t bytes = std::stoul(answer.header("Content-Length"));
      while (inbox_.size() < bytes)
        if (!receive()) return answer;
      answer.body = inbox_.substr(0, bytes);
      inbox_.erase(0, bytes);
    }
    answer.status = status;
    return answer;
  }
  RawAnswer get(const std::string& path, const std::string& headers = "") {
    send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
    return answer();
  }
  RawAnswer post(const std::string& path, const std::string& body,
                 const std::string& headers = "") {
    send("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
         "Content-Length: " + std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body);
    return answer();
  }
  const std::string& inbox() const { return inbox_; }

 private:
  bool take_chunks(std::string& body) {
    for (;;) {
      if (!receive_until("\r\n")) return false;
      const size_t line = inbox_.find("\r\n") + 2;
      const size_t bytes = std::stoul(inbox_.substr(0, line - 2), nullptr, 16);
      while (inbox_.size() < line + bytes + 2)
        if (!receive()) return false;
      body += inbox_.substr(line, bytes);
      inbox_.erase(0, line + bytes + 2);
      if (bytes == 0) return true;
    }
  }

  int file_ = -1;
  std::string inbox_;
};

// A server with the given routes, in a thread of its own.
class RunningServer {
 public:
  RunningServer(HttpOptions options, std::vector<HttpRoute> routes) {
    options.port = 0;
    auto server = HttpServer::listen(options, std::move(routes));
    if (!server.ok()) {
      ADD_FAILURE() << server.error().message;
      return;
    }
    server_ = std::move(server).value();
    thread_ = std::thread([this] {
      server_->run();
      ended_.raise();
    });
  }
  ~RunningServer() {
    if (!server_) return;
    server_->stop(std::chrono::milliseconds(0));
    thread_.join();
  }
  HttpServer& operator*() { return *server_; }
  HttpServer* operator->() { return server_.get(); }
  uint16_t port() { return server_->port(); }
  bool has_ended() { return ended_.count() > 0; }
  bool wait_for_end() { return ended_.wait(); }

 private:
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  Signal ended_;
};

}  // namespace wader
