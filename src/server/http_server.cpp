// The listener, the connections it has let in, the workers, and the way down.
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <condition_variable>
#include <mutex>
#include <unordered_map>

#include "base/ascii.h"
#include "base/error.h"
#include "server/http_connection.h"
#include "server/http_text.h"

namespace wader {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr auto kAcceptPause = std::chrono::milliseconds(100);  // after EMFILE and its like
constexpr auto kTurnAwayPatience = std::chrono::milliseconds(500);
constexpr uint32_t kMaxTurnedAway = 64;                     // more at once are closed unheard
constexpr auto kCutGrace = std::chrono::milliseconds(800);  // of the second that stop() promises
// Files that connections leave to the rest of the process: containers, logs, /proc.
constexpr uint64_t kReservedFiles = 256;

// Raises the soft limit of open files to the hard one, and says how many connections fit.
uint32_t connections_that_fit(uint32_t wanted) {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
  if (files.rlim_cur < files.rlim_max) {
    rlimit raised = files;
    raised.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) files = raised;
  }
  const uint64_t most =
      files.rlim_cur > 2 * kReservedFiles ? files.rlim_cur - kReservedFiles : files.rlim_cur / 2;
  return static_cast<uint32_t>(std::clamp<uint64_t>(wanted, 1, std::max<uint64_t>(most, 1)));
}

Result<asio::ip::address> parse_address(std::string_view host) {
  if (equal_ignoring_case(host, "localhost"))
    return asio::ip::address(asio::ip::address_v4::loopback());
  std::string text(host);
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  error_code ec;
  const auto address = asio::ip::make_address(text, ec);
  if (ec)
    return invalid_argument_error("host '{}' is no address; give one of this machine, as 127.0.0.1",
                                  host);
  return address;
}

std::string host_text(const asio::ip::address& address) {
  return address.is_v6() ? fmt::format("[{}]", address.to_string()) : address.to_string();
}

Status check_access(const HttpAccess& access) {
  if (access.api_key && (access.api_key->empty() || !is_field_value(*access.api_key) ||
                         trim_blanks(*access.api_key) != *access.api_key))
    return invalid_argument_error(
        "the API key is empty, or holds a control byte or a blank at an end");
  for (const std::string& host : access.allowed_hosts)
    if (!parse_authority(host))
      return invalid_argument_error("allowed host '{}' is no host name", host);
  for (const std::string& origin : access.allowed_origins) {
    const size_t scheme = origin.find("://");
    const bool fine = origin == "*" || origin == "null" ||
                      (scheme != origin.npos && scheme > 0 && is_field_value(origin) &&
                       parse_authority(std::string_view(origin).substr(scheme + 3)));
    if (!fine)
      return invalid_argument_error(
          "allowed origin '{}' is no origin; write it as a browser does: https://app.example",
          origin);
  }
  return {};
}

class Server final : public HttpServer {
 public:
  Server(const HttpOptions& options, HttpRouter router, asio::ip::address address)
      : core_(options, std::move(router), HttpGuard(options.access, options.port)),
        address_(std::move(address)),
        max_connections_(connections_that_fit(options.limits.max_connections)),
        acceptor_(io_),
        accept_pause_(io_),
        stop_timer_(io_),
        workers_(std::max<uint32_t>(options.workers, 1)) {}

  ~Server() override {
    workers_.stop();
    workers_.join();
  }

  Status bind(const HttpOptions& options);

  uint16_t port() const override { return port_; }
  std::string url() const override {
    const std::string host = address_.is_unspecified() ? "127.0.0.1" : host_text(address_);
    return fmt::format("http://{}:{}", host, port_);
  }
  void run() override;
  void stop(std::chrono::milliseconds grace) override {
    asio::post(io_, [this, grace] { begin_stop(grace); });
  }
  Task<> run_aside(std::function<void()> work) override;
  bool workers_idle(std::chrono::milliseconds patience) override {
    std::unique_lock lock(aside_mutex_);
    return aside_done_.wait_for(lock, patience, [this] { return aside_ == 0; });
  }
  asio::any_io_executor executor() override { return io_.get_executor(); }
  uint32_t connections() const override { return connection_count_; }

 private:
  Task<> accept_all();
  void admit(tcp::socket socket);
  Task<> turn_away(tcp::socket socket);
  void ended(HttpConnection* connection);
  std::vector<std::shared_ptr<HttpConnection>> alive() const;
  void begin_stop(std::chrono::milliseconds grace);
  void cut_all();

  // Coroutines that are still suspended die with io_, and refer to what stands above it.
  HttpCore core_;
  asio::ip::address address_;
  uint16_t port_ = 0;
  uint32_t max_connections_;
  std::atomic<uint32_t> connection_count_ = 0;
  std::unordered_map<HttpConnection*, std::weak_ptr<HttpConnection>> connections_;
  uint32_t turned_away_ = 0;  // connections that hear why
  bool accept_fails_ = false;
  Clock::time_point cut_at_ = Clock::time_point::max();

  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
  tcp::acceptor acceptor_;
  asio::steady_timer accept_pause_, stop_timer_;
  std::mutex aside_mutex_;
  std::condition_variable aside_done_;
  uint32_t aside_ = 0;  // pieces of work with the workers
  asio::thread_pool workers_;
};

Status Server::bind(const HttpOptions& options) {
  const tcp::endpoint endpoint(address_, options.port);
  error_code ec;
  acceptor_.open(endpoint.protocol(), ec);
  if (!ec) acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor_.bind(endpoint, ec);
  if (!ec) acceptor_.listen(asio::socket_base::max_listen_connections, ec);
  if (!ec) port_ = acceptor_.local_endpoint(ec).port();
  if (ec == asio::error::address_in_use)
    return io_error(
        "{}:{}: address already in use; stop the program that listens there, or take "
        "another port",
        host_text(address_), options.port);
  if (ec)
    return io_error("{}:{}: cannot listen: {}", host_text(address_), options.port, ec.message());
  HttpAccess access = options.access;
  if (address_.is_unspecified())
    access.any_address = true;
  else
    access.allowed_hosts.push_back(url().substr(7));
  core_.guard = HttpGuard(std::move(access), port_);
  asio::co_spawn(io_, accept_all(), asio::detached);
  return {};
}

void Server::run() {
  // What others post to executor() may throw; it ends there and not here.
  while (!io_.stopped()) {
    try {
      io_.run();
    } catch (const std::exception& error) {
      core_.problem(fmt::format("a task of the network's thread failed: {}", error.what()));
    } catch (...) {
      core_.problem("a task of the network's thread threw what is no std::exception");
    }
  }
}

Task<> Server::accept_all() {
  while (!core_.stopping) {
    error_code ec;
    tcp::socket socket(io_);
    co_await acceptor_.async_accept(socket, asio::redirect_error(asio::use_awaitable, ec));
    if (core_.stopping) break;
    if (!ec) {
      accept_fails_ = false;
      admit(std::move(socket));
      continue;
    }
    if (ec == asio::error::connection_aborted) continue;
    // Out of files or memory: the connection stays in the queue, and asking again at once would
    // spin.
    if (!accept_fails_)
      core_.problem(fmt::format("cannot take connections for now: {}", ec.message()));
    accept_fails_ = true;
    accept_pause_.expires_after(kAcceptPause);
    co_await accept_pause_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  }
}

void Server::admit(tcp::socket socket) {
  try {
    if (connection_count_ >= max_connections_) {
      if (turned_away_ < kMaxTurnedAway)
        asio::co_spawn(io_, turn_away(std::move(socket)), asio::detached);
      return;
    }
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    // A client whose machine is gone answers no probe: its connection, and its work, end in a
    // minute.
    using KeepIdle = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPIDLE>;
    using KeepInterval = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPINTVL>;
    using KeepCount = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPCNT>;
    socket.set_option(tcp::socket::keep_alive(true), ignored);
    socket.set_option(KeepIdle(30), ignored);
    socket.set_option(KeepInterval(10), ignored);
    socket.set_option(KeepCount(3), ignored);
    auto connection =
        std::make_shared<HttpConnection>(HttpStream::Socket(std::move(socket)), core_);
    HttpConnection* const key = connection.get();
    connections_.emplace(key, connection);
    connection_count_ = static_cast<uint32_t>(connections_.size());
    asio::co_spawn(io_, HttpConnection::serve(std::move(connection)),
                   [this, key](std::exception_ptr) { ended(key); });
  } catch (const std::exception& error) {
    core_.problem(fmt::format("a connection was dropped: {}", error.what()));
  }
}

// One that is too much is told so, and waited for a moment: its request lies unread, and a close
// over unread bytes would be a reset that takes the answer with it.
Task<> Server::turn_away(tcp::socket socket) {
  ++turned_away_;
  auto stream = std::make_shared<HttpStream>(HttpStream::Socket(std::move(socket)), core_.scratch);
  HttpResponse response = error_response(503, "too many connections; try again");
  response.headers.emplace_back("Retry-After", "1");
  HttpHeadFacts facts;
  facts.date = core_.date();
  const std::string text = http_head(response, {}, facts) + response.body;
  const bool sent = co_await stream->write(text, kTurnAwayPatience);
  if (sent) co_await stream->linger(kTurnAwayPatience);
  stream->close();
  --turned_away_;
}

void Server::ended(HttpConnection* connection) {
  connections_.erase(connection);
  connection_count_ = static_cast<uint32_t>(connections_.size());
  if (core_.stopping && connections_.empty()) io_.stop();
}

std::vector<std::shared_ptr<HttpConnection>> Server::alive() const {
  std::vector<std::shared_ptr<HttpConnection>> alive;
  for (const auto& [key, weak] : connections_)
    if (auto connection = weak.lock()) alive.push_back(std::move(connection));
  return alive;
}

void Server::begin_stop(std::chrono::milliseconds grace) {
  if (!core_.stopping) {
    core_.stopping = true;
    error_code ignored;
    acceptor_.close(ignored);
    accept_pause_.cancel();
    for (const auto& connection : alive()) connection->stop_soon();
  }
  if (connections_.empty()) return io_.stop();
  const auto wanted = Clock::now() + std::max(grace, std::chrono::milliseconds(0));
  if (wanted >= cut_at_) return;
  cut_at_ = wanted;
  stop_timer_.expires_at(cut_at_);
  stop_timer_.async_wait([this](error_code ec) {
    if (!ec) cut_all();
  });
}

void Server::cut_all() {
  for (const auto& connection : alive()) connection->cut();
  stop_timer_.expires_after(kCutGrace);
  stop_timer_.async_wait([this](error_code ec) {
    if (!ec) io_.stop();
  });
}

Task<> Server::run_aside(std::function<void()> work) {
  struct Job {
    explicit Job(asio::io_context& io) : done(io, Clock::time_point::max()) {}
    asio::steady_timer done;
    bool finished = false;
    std::exception_ptr error;
  };
  auto job = std::make_shared<Job>(io_);
  // The job is handed back whole, so that its timer dies in the network's thread.
  {
    const std::lock_guard lock(aside_mutex_);
    ++aside_;
  }
  asio::post(workers_, [this, handed = job, todo = std::move(work)]() mutable {
    std::exception_ptr error;
    try {
      todo();
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(aside_mutex_);
      --aside_;
      aside_done_.notify_all();
    }
    asio::post(io_, [back = std::move(handed), error = std::move(error)] {
      back->error = error;
      back->finished = true;
      back->done.cancel();
    });
  });
  while (!job->finished) {
    error_code ignored;
    co_await job->done.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  if (job->error) std::rethrow_exception(job->error);
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpOptions& options,
                                                       std::vector<HttpRoute> routes) {
  ASSIGN_OR_RETURN(auto address, parse_address(options.host));
  RETURN_IF_ERROR(check_access(options.access));
  ASSIGN_OR_RETURN(auto router, HttpRouter::make(std::move(routes)));
  auto server = std::make_unique<Server>(options, std::move(router), std::move(address));
  RETURN_IF_ERROR(server->bind(options));
  return Result<std::unique_ptr<HttpServer>>(std::move(server));
}

}  // namespace wader
