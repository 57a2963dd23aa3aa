#include <fmt/chrono.h>
#include <fmt/format.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>

#include "base/ascii.h"
#include "base/error.h"
#include "base/units.h"
#include "cli/api_key.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/in_place.h"
#include "cli/options.h"
#include "cli/text.h"
#include "install/models.h"
#include "range/range_probe.h"
#include "server/server.h"

namespace wader {
namespace {

constexpr std::chrono::seconds kGrace{3};        // for answers in progress, at SIGTERM
constexpr std::chrono::milliseconds kRest{800};  // and for the engine's pass after that

// Of requests that are being received or handled. They stand beside --memory, and no conversation
// that fits a model is more than a few megabytes.
constexpr uint64_t kAllBodiesBytes = 96 << 20;

// The model that is named, or the only one that is installed.
Result<std::filesystem::path> model_path(const Args& args) {
  if (args.has_operand(0)) return container_of(args.operand(0));
  ASSIGN_OR_RETURN(const auto directory, models_directory());
  std::vector<InstalledModel> models = list_models(directory);
  std::erase_if(models, [](const InstalledModel& model) {
    return model.state != InstalledModel::State::complete;
  });
  if (models.size() == 1) return models.front().path;
  if (models.empty())
    return not_found_error("no model is installed; `wader install SOURCE` brings one");
  std::string names;
  for (const InstalledModel& model : models) names += (names.empty() ? "" : ", ") + model.name;
  return invalid_argument_error("wader serve needs a MODEL: one of {}", names);
}

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

bool is_loopback(std::string_view given) {
  const std::string host = lower_ascii(given);
  return host == "localhost" || host == "::1" || host == "[::1]" || host.starts_with("127.");
}

Result<ServerOptions> server_options(const Args& args) {
  ServerOptions options;
  options.http.host = args.text("--host", options.http.host);
  ASSIGN_OR_RETURN(const uint64_t port, args.whole("--port", 0, 65535, options.http.port));
  options.http.port = static_cast<uint16_t>(port);
  options.http.limits.max_all_bodies_bytes = kAllBodiesBytes;
  options.http.workers = 2;  // requests go on while one looks through directories or loads a model
  ASSIGN_OR_RETURN(options.http.access.api_key, api_key(args));
  options.http.access.allowed_hosts = names_in(args.text("--allow-host"));
  options.http.access.allowed_origins = names_in(args.text("--allow-origin"));
  ASSIGN_OR_RETURN(const uint64_t queue, args.whole("--queue", 0, 100'000, 64));
  options.scheduler.max_queued = static_cast<uint32_t>(queue);
  ASSIGN_OR_RETURN(const uint64_t seconds, args.whole("--request-timeout", 0, 1u << 30, 0));
  options.request_timeout = std::chrono::seconds(seconds);
  options.web_directory = args.text("--web-dir");
  if (!is_loopback(options.http.host) && !options.http.access.api_key)
    return invalid_argument_error(
        "--host {} can be reached by other machines: give a key with --api-key-file or "
        "WADER_API_KEY",
        options.http.host);
  if (!args.has("--quiet"))
    options.log = [](std::string_view line) {
      print_note(fmt::format("{:%Y-%m-%dT%H:%M:%SZ} {}", fmt::gmtime(std::time(nullptr)), line));
    };
  return options;
}

// systemd's readiness protocol (sd_notify(3)); nothing without its socket.
void notify_manager(std::string_view state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path == nullptr || *path == '\0' || std::strlen(path) >= sizeof address.sun_path) return;
  std::strcpy(address.sun_path, path);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  [[maybe_unused]] const auto sent = sendto(fd, state.data(), state.size(), MSG_NOSIGNAL,
                                            reinterpret_cast<const sockaddr*>(&address), length);
  close(fd);
}

// SIGTERM and SIGINT stop the server, a second one at once; while the model is loading they end the
// process, which has nothing to lose yet. They are blocked in every thread and taken by one that
// waits for them.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    signal(SIGPIPE, SIG_IGN);
    thread_ = std::thread([this] { wait(); });
  }
  ~StopSignals() {
    done_ = true;
    pthread_kill(thread_.native_handle(), SIGTERM);
    thread_.join();
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  void stop(Server* server) { server_ = server; }  // null: not any more

 private:
  void wait() {
    for (std::chrono::milliseconds grace = kGrace;; grace = std::chrono::milliseconds(0)) {
      int number = 0;
      sigwait(&set_, &number);
      if (done_) return;
      Server* const server = server_;
      if (server == nullptr) _exit(128 + number);
      notify_manager("STOPPING=1");
      server->stop(grace);
    }
  }

  sigset_t set_;
  std::atomic<bool> done_ = false;
  std::atomic<Server*> server_ = nullptr;
  std::thread thread_;
};

// Every model that is served gets the memory that the first one's plan took, whatever the machine
// has left at that moment.
class Opener {
 public:
  explicit Opener(const EngineOptions& options) : options_(options) {}

  Result<std::unique_ptr<Engine>> open(const std::filesystem::path& path,
                                       RoutingListener on_routing) {
    ASSIGN_OR_RETURN(const Container container, container_at(path));
    EngineOptions options = options_for(container);
    options.on_routing = std::move(on_routing);
    ASSIGN_OR_RETURN(auto engine, open_engine(container, options));
    if (options_.process_bytes == 0) {  // the first, before anything else is asked
      options_.memory_bytes = engine->plan().budget_bytes;
      options_.process_bytes = engine->plan().process_bytes;
    }
    return engine;
  }

  Result<MemoryPlan> plan(const std::filesystem::path& path) const {
    ASSIGN_OR_RETURN(const Container container, container_at(path));
    auto plan = plan_for(container, options_for(container));
    if (!plan.ok()) return not_usage(std::move(plan).error());
    return plan;
  }

 private:
  static Result<Container> container_at(const std::filesystem::path& path) {
    auto container = Container::open(path);
    if (!container.ok()) return not_usage(std::move(container).error());
    return container;
  }
  EngineOptions options_for(const Container& container) const {
    EngineOptions options = options_;
    options.extra_bytes += range_memory_bytes(container.spec());  // built on demand, among requests
    return options;
  }

  EngineOptions options_;
};

}  // namespace

Result<int> run_serve(const Args& args) {
#ifdef M_MMAP_THRESHOLD
  // Fixed: else glibc raises it to the largest body that was freed, up to 32 MiB, and keeps such
  // blocks from then on. A fifth of a gigabyte stayed after a few bodies of 20 MB.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
  ASSIGN_OR_RETURN(EngineOptions engine, engine_options(args));
  ASSIGN_OR_RETURN(ServerOptions options, server_options(args));
  ASSIGN_OR_RETURN(const std::filesystem::path path, model_path(args));
  engine.sessions = 0;
  if (args.text("--sessions", "auto") != "auto") {
    ASSIGN_OR_RETURN(const uint64_t sessions, args.whole("--sessions", 1, 1024, 1));
    engine.sessions = static_cast<uint32_t>(sessions);
  }
  ASSIGN_OR_RETURN(options.models_directory, models_directory());
  options.fixed_id = args.text("--name");
  Opener opener(engine);
  StopSignals signals;
  show_status("loading");
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Server> server,
      Server::start(path,
                    {.open =
                         [&opener](const auto& container, RoutingListener on_routing) {
                           return opener.open(container, std::move(on_routing));
                         },
                     .plan = [&opener](const auto& container) { return opener.plan(container); }},
                    options));
  signals.stop(server.get());  // before anybody is told: who reads the address may send one at once
  show_status("");
  const MemoryPlan& plan = server->engine().plan();
  print(fmt::format("{} is served at {}\n", server->model_id(), server->url()));
  print_note(fmt::format(
      "{} conversations of {} tokens, {} of {} for experts; API key {}; Ctrl-C ends", plan.sessions,
      plan.context, format_bytes(plan.slots_bytes), format_bytes(plan.budget_bytes),
      options.http.access.api_key ? "needed" : "not needed: only this machine can ask"));
  notify_manager("READY=1");
  server->run();
  // A pass that reads for long cannot be interrupted; nobody waits for what it computes.
  if (!server->at_rest(kRest)) {
    print_note("the engine was in the middle of a pass; ended without it");
    _exit(0);
  }
  signals.stop(nullptr);
  return 0;
}

}  // namespace wader
