// For tests: the back ends by name, and files of known bytes on several file systems.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "io/aligned_buffer.h"
#include "io/io_testing.h"
#include "io/read_queue.h"

namespace wader::testing {

constexpr const char* kBackEnds[] = {"threads", "uring", "fake", "throttled"};

inline Result<std::unique_ptr<ReadQueue>> make_back_end(const std::string& name,
                                                        uint32_t capacity) {
  if (name == "threads") return make_thread_read_queue(2, capacity);
  if (name == "uring") return make_uring_read_queue(capacity);
  if (name == "fake")
    return make_fake_read_queue({.seed = 3, .short_read = 0.3, .interrupt = 0.2, .eio = 0.1},
                                capacity);
  return make_throttled_read_queue(5e9, 10e-6, capacity);
}

// A temporary directory on a file system of the wanted kind, or the reason why there is none.
class PlaceForFiles {
 public:
  explicit PlaceForFiles(const std::string& kind) {
    if (kind == "tmpfs")
      make_tmpfs();
    else if (kind == "overlay")
      make_overlay();
    else
      directory_ = root_.path();  // the disk, whatever file system that has
  }
  ~PlaceForFiles() {
    if (overlay_mounted_) ::umount2((root_.path() / "merged").c_str(), MNT_DETACH);
    std::error_code ignored;
    if (!shm_.empty()) std::filesystem::remove_all(shm_, ignored);
  }
  PlaceForFiles(const PlaceForFiles&) = delete;
  PlaceForFiles& operator=(const PlaceForFiles&) = delete;

  const std::string& missing() const { return missing_; }  // empty: there is one
  const std::filesystem::path& directory() const { return directory_; }

 private:
  void make_tmpfs() {
    constexpr long kTmpfsMagic = 0x01021994;
    struct statfs info {};
    std::string name = "/dev/shm/wader-test-XXXXXX";
    if (::statfs("/dev/shm", &info) != 0 || info.f_type != kTmpfsMagic)
      missing_ = "no tmpfs at /dev/shm";
    else if (::mkdtemp(name.data()) == nullptr)
      missing_ = "/dev/shm cannot be written: " + std::string(std::strerror(errno));
    else
      directory_ = shm_ = name;
  }

  // In a mount namespace of this process, so that nothing is left behind.
  void make_overlay() {
    static const bool own_namespace =
        ::unshare(CLONE_NEWNS) == 0 &&
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    if (!own_namespace) {
      missing_ = "no right to mount an overlay: " + std::string(std::strerror(errno));
      return;
    }
    for (const char* name : {"lower", "upper", "work", "merged"})
      std::filesystem::create_directory(root_.path() / name);
    const std::string root = root_.path().string();
    const std::string options =
        "lowerdir=" + root + "/lower,upperdir=" + root + "/upper,workdir=" + root + "/work";
    directory_ = root_.path() / "merged";
    if (::mount("overlay", directory_.c_str(), "overlay", 0, options.c_str()) != 0)
      missing_ = "no overlay can be mounted here: " + std::string(std::strerror(errno));
    else
      overlay_mounted_ = true;
  }

  TempDirectory root_;
  std::filesystem::path directory_, shm_;
  std::string missing_;
  bool overlay_mounted_ = false;
};

// Byte i of the test file: no two blocks alike.
inline std::vector<std::byte> known_bytes(size_t count) {
  std::vector<std::byte> bytes(count);
  uint64_t state = 88172645463325252u;
  for (size_t i = 0; i + 8 <= count; i += 8) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    std::memcpy(&bytes[i], &state, 8);
  }
  return bytes;
}

}  // namespace wader::testing
