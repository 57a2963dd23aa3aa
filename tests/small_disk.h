// For tests of full and read-only disks: a small tmpfs in a mount namespace of this process. A
// process may mount what it likes there, as root or as root of a user namespace of its own;
// children that it starts see the same.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace wader::testing {

class SmallDisk {
 public:
  // Not mounted when the system does not let us; error() says why.
  SmallDisk(std::filesystem::path directory, const std::string& options)
      : directory_(std::move(directory)) {
    static const bool entered = enter_namespace();
    std::filesystem::create_directories(directory_);
    mounted_ = entered && ::mount("tmpfs", directory_.c_str(), "tmpfs", 0, options.c_str()) == 0;
    if (!mounted_) error_ = std::string("cannot mount a tmpfs: ") + std::strerror(errno);
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(directory_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  const std::string& error() const { return error_; }
  // A test machine where root cannot mount would skip these for ever, and nobody would see it.
  bool must_mount() const { return std::getenv("CI") != nullptr && ::getuid() == 0; }
  const std::filesystem::path& path() const { return directory_; }

  bool resize(uint64_t bytes, unsigned long flags = 0) const {
    return ::mount(nullptr, directory_.c_str(), nullptr, MS_REMOUNT | flags,
                   ("size=" + std::to_string(bytes)).c_str()) == 0;
  }
  // Another program's file takes every block that is left.
  void fill() const {
    std::ofstream hog(directory_ / "hog", std::ios::binary);
    const std::string block(4096, 'x');
    while (hog.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) continue;
  }
  void free() const { std::filesystem::remove(directory_ / "hog"); }

 private:
  static bool write_proc(const char* file, const std::string& text) {
    std::ofstream out(std::string("/proc/self/") + file);
    return static_cast<bool>(out << text << std::flush);
  }

  static bool enter_namespace() {
    const uid_t uid = ::getuid();
    const gid_t gid = ::getgid();
    if (uid == 0) {
      if (::unshare(CLONE_NEWNS) != 0) return false;
    } else if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || !write_proc("setgroups", "deny") ||
               !write_proc("uid_map", "0 " + std::to_string(uid) + " 1") ||
               !write_proc("gid_map", "0 " + std::to_string(gid) + " 1")) {
      return false;
    }
    return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  }

  std::filesystem::path directory_;
  bool mounted_ = false;
  std::string error_;
};

}  // namespace wader::testing
