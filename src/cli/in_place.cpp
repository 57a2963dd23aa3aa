#include "cli/in_place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/units.h"
#include "checkpoint/small_files.h"
#include "checkpoint/source_tree.h"
#include "cli/console.h"
#include "cli/generation_config.h"
#include "cli/options.h"
#include "cli/text.h"
#include "container/container.h"
#include "container/manifest.h"
#include "install/install.h"
#include "install/models.h"
#include "io/file.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// So that "-in-place-" and 16 digits more are still a model's name.
constexpr size_t kMostNameBytes = 96;

// ORG--NAME for a snapshot in the hub's local cache, …/models--ORG--NAME/snapshots/COMMIT, else the
// directory's own name.
std::string name_of(const fs::path& checkpoint) {
  constexpr std::string_view kPrefix = "models--";
  const fs::path repository = checkpoint.parent_path().parent_path();
  const bool hub = checkpoint.parent_path().filename() == "snapshots" &&
                   repository.filename().string().starts_with(kPrefix);
  if (!hub) return model_name_from(checkpoint).substr(0, kMostNameBytes);
  return model_name_from(repository).substr(kPrefix.size(), kMostNameBytes);
}

enum class Kept : uint8_t { none, current, outdated, damaged };

// Block by block: a tokenizer of 28 MB must not count in this run's memory.
bool same_bytes(const fs::path& one, const fs::path& other) {
  const auto a = File::open(one, File::Mode::read), b = File::open(other, File::Mode::read);
  if (!a.ok() || !b.ok()) return false;
  const auto bytes = a->size(), other_bytes = b->size();
  if (!bytes.ok() || !other_bytes.ok() || *bytes != *other_bytes) return false;
  std::array<std::byte, 64 * kKiB> left, right;
  for (uint64_t at = 0; at < *bytes; at += left.size()) {
    const size_t count = std::min<uint64_t>(left.size(), *bytes - at);
    if (!a->read_at(at, std::span(left).first(count)).ok() ||
        !b->read_at(at, std::span(right).first(count)).ok() ||
        std::memcmp(left.data(), right.data(), count) != 0)
      return false;
  }
  return true;
}

// Whether the container's copies of the small files (config, tokenizer, template, …) are what the
// checkpoint has now. One that has gone from there since is still right.
bool has_same_small_files(const fs::path& checkpoint, const Container& container) {
  const auto files = find_small_files(DirectoryTree(checkpoint));
  return files.ok() && std::all_of(files->begin(), files->end(), [&](const SmallFile& file) {
           return same_bytes(checkpoint / file.name, container.directory() / file.name);
         });
}

Kept what_is_kept(const fs::path& checkpoint, const fs::path& path) {
  if (!is_there(path / kManifestFile) || is_there(path / kJournalFile)) return Kept::none;
  const auto container = Container::open_to_repair(path);
  if (!container.ok()) return Kept::damaged;
  const bool changed = container->in_place() && (!check_source_files(*container->in_place()).ok() ||
                                                 !has_same_small_files(checkpoint, *container));
  return changed ? Kept::outdated : Kept::current;
}

// Whatever keeps it from being made is found before anything is announced, or removed.
Status install_here(const InstallOptions& options, Kept kept) {
  RETURN_IF_ERROR(check_generation_config(DirectoryTree(options.source)));
  RETURN_IF_ERROR(planned_container_bytes(options));
  if (kept == Kept::outdated) RETURN_IF_ERROR(remove_model(options.destination));
  print_note(fmt::format(
      "{} {}: reading it once for checksums and a small copy of its trunk, in {}",
      options.source.string(),
      kept == Kept::outdated ? "changed since it was last used in place" : "is used in place",
      options.destination.string()));
  const auto report = install(options, make_progress(ProgressStyle::human));
  show_status("");
  if (!report.ok()) return report.error();
  print_note(fmt::format("{} read, {} written", format_bytes(report->source_bytes_read),
                         format_bytes(report->container_bytes)));
  return {};
}

// The code's number, a newline, the message; empty for none.
std::string status_to(const Status& status) {
  if (status.ok()) return {};
  return fmt::format("{}\n{}", static_cast<int>(status.error().code), status.error().message);
}

Status status_from(const std::string& text) {
  if (text.empty()) return {};
  const size_t newline = text.find('\n');
  CHECK(newline != text.npos);
  int code = 0;
  const auto [stop, wrong] = std::from_chars(text.data(), text.data() + newline, code);
  CHECK(wrong == std::errc() && stop == text.data() + newline);
  return Error{static_cast<ErrorCode>(code), text.substr(newline + 1)};
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno != EINTR) return;
    if (count > 0) text.remove_prefix(static_cast<size_t>(count));
  }
}

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer, static_cast<size_t>(count));
  }
}

// In a process of its own: what repacking leaves resident would count in the memory plan of this
// run, which must not differ from that of the next one. No thread runs yet.
Status install_apart(const InstallOptions& options, Kept kept) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error(errno, "pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    write_all(ends[1], status_to(install_here(options, kept)));
    ::_exit(0);
  }
  const int fork_errno = errno;
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return errno_error(fork_errno, "fork");
  }
  const std::string text = read_all(ends[0]);
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return io_error("the process that was reading {} ended early; the same command continues",
                    options.source.string());
  return status_from(text);
}

// Held while a checkpoint is read for the first time, so that of several uses that begin at once
// one reads it and the others wait. A file beside the container, as the container may come and go;
// its holder removes it, or after a kill the next one. The kernel drops the lock with the process,
// and with the child that reads, however they end.
class FirstUse {
 public:
  // cancelled when interrupted meanwhile.
  static Result<FirstUse> wait(const fs::path& checkpoint, const fs::path& container) {
    FirstUse lock;
    lock.path_ =
        container.parent_path() / fmt::format(".{}.reading", container.filename().string());
    std::error_code error;
    fs::create_directories(container.parent_path(), error);
    if (error) return errno_error(error.value(), container.parent_path().string());
    for (bool told = false;;) {
      ASSIGN_OR_RETURN(lock.file_, File::open(lock.path_, File::Mode::update));
      if (::flock(lock.file_.fd(), LOCK_EX | LOCK_NB) == 0) {
        if (lock.is_named()) return lock;
        continue;  // its holder has removed it meanwhile
      }
      if (errno != EWOULDBLOCK)
        return errno_error(errno, fmt::format("cannot lock {}", lock.path_.string()));
      if (!std::exchange(told, true))
        print_note(fmt::format("another wader is reading {} for its first use: waiting for it",
                               checkpoint.string()));
      if (interrupted()) return cancelled_error("stopped");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  FirstUse(FirstUse&&) = default;
  ~FirstUse() {
    if (file_.is_open() && is_named()) ::unlink(path_.c_str());
  }

 private:
  FirstUse() = default;
  // Whether the file that we hold is the one that others find.
  bool is_named() const {
    struct stat held {
    }, named{};
    return ::fstat(file_.fd(), &held) == 0 && ::stat(path_.c_str(), &named) == 0 &&
           held.st_dev == named.st_dev && held.st_ino == named.st_ino;
  }

  fs::path path_;
  File file_;
};

}  // namespace

bool is_checkpoint(const fs::path& path) {
  if (is_there(path / kManifestFile) || is_there(path / kJournalFile) ||
      !is_there(path / "config.json"))
    return false;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".safetensors") return true;
  return false;
}

Result<fs::path> in_place_path(const fs::path& checkpoint) {
  ASSIGN_OR_RETURN(const fs::path models, models_directory());
  std::error_code error;
  const fs::path whole = fs::canonical(checkpoint, error);
  if (error) return errno_error(error.value(), checkpoint.string());
  return models / fmt::format("{}-in-place-{}.wader", name_of(whole),
                              digest_to_hex(xxh3_64(std::string_view(whole.native()))));
}

Result<fs::path> in_place_container(const fs::path& checkpoint) {
  ASSIGN_OR_RETURN(const fs::path path, in_place_path(checkpoint));
  if (what_is_kept(checkpoint, path) == Kept::current) return path;
  watch_interrupts();
  ASSIGN_OR_RETURN(const FirstUse alone, FirstUse::wait(checkpoint, path));
  const Kept kept = what_is_kept(checkpoint, path);
  // Whoever opens what is damaged is told how; before we were alone it may have been half gone.
  if (kept == Kept::current || kept == Kept::damaged) return path;
  InstallOptions options;
  options.source = checkpoint;
  options.destination = path;
  options.in_place = true;
  if (Status made = install_apart(options, kept); !made.ok()) {
    Error failure = not_usage(std::move(made).error());
    if (failure.code == ErrorCode::cancelled)
      failure.message = "stopped\nthe same command continues where this one stopped";
    return failure;
  }
  return path;
}

Result<fs::path> container_of(std::string_view model) {
  ASSIGN_OR_RETURN(const fs::path path, resolve_model(model));
  if (!is_checkpoint(path)) return path;
  return in_place_container(path);
}

}  // namespace wader
