// Tested in src/reverie/rpc/peer_test.cc.
#include "reverie/os/host_id.h"

#include <fcntl.h>
#include <unistd.h>

namespace reverie {
namespace {

std::string file_text(const char* path) {
  char text[256] = {};
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t size = ::read(fd, text, sizeof(text) - 1);
  ::close(fd);
  std::string found(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  while (!found.empty() && found.back() == '\n') found.pop_back();
  return found;
}

}  // namespace

std::string host_id() {
  char space[64] = {};
  const ssize_t size = ::readlink("/proc/self/ns/net", space, sizeof(space) - 1);
  const std::string boot = file_text("/proc/sys/kernel/random/boot_id");
  if (size <= 0 || boot.empty()) return {};
  return boot + "/" + std::string(space, static_cast<std::size_t>(size));
}

}  // namespace reverie
