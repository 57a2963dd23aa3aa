// ChildProcess: this program once more with other arguments, for what a server does not do in its
// own memory. Used in the network's thread.
#pragma once

#include <sys/types.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/http.h"

namespace wader {

class ChildProcess {
 public:
  // Without standard input, in a process group of its own; signals as they are by default.
  static Result<std::unique_ptr<ChildProcess>> start(boost::asio::any_io_executor executor,
                                                     const std::vector<std::string>& arguments);
  // Interrupts it if it has not been waited for; its end is not waited for.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Of its standard output, without the line's end; nothing after the last one, and after a line of
  // over 4 MiB.
  Task<std::optional<std::string>> next_line();
  // Its status, 128 and the number for a signal. Nothing more of its output is read.
  Task<int> wait();
  // What it has written to standard error, the last 4 KiB.
  std::string errors() const;
  // SIGINT: every command ends by itself and loses nothing.
  void interrupt();

 private:
  ChildProcess(boost::asio::any_io_executor executor, pid_t pid, int output, int errors);

  boost::asio::any_io_executor executor_;
  pid_t pid_;  // 0: it has been waited for
  boost::asio::posix::stream_descriptor output_;
  int errors_;  // a file without a name
  std::string buffer_;
};

}  // namespace wader
