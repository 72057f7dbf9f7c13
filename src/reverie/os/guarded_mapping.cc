#include "reverie/os/guarded_mapping.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

namespace reverie {
namespace {

// What the handler knows of a mapping: nothing here needs a lock.
struct Slot {
  std::atomic<bool> is_taken{false};
  std::atomic<std::uintptr_t> begin{0};  // 0: not mapped
  std::atomic<std::uintptr_t> end{0};
  std::atomic<int> fd{-1};
  std::atomic<bool> is_lost{false};
  std::atomic<GuardedRange::Owner*> owner{nullptr};  // of a GuardedRange
};

std::array<Slot, GuardedMapping::kMost> slots;
struct sigaction other_handler;
// Held by a handler, so that two threads that meet one page replace it once.
std::atomic_flag is_handling;

std::uintptr_t page_bytes() {
  static const auto size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  return size;
}

// Null and ENOMEM if all are taken.
Slot* take_slot(std::size_t& index) {
  index = 0;
  while (index < GuardedMapping::kMost && slots[index].is_taken.exchange(true)) ++index;
  if (index < GuardedMapping::kMost) return &slots[index];
  errno = ENOMEM;
  return nullptr;
}

// System calls alone: this runs in a handler.
bool replace_page(Slot& slot, std::uintptr_t page) {
  const std::size_t size = page_bytes();
  void* const copy =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return false;
  // A part that cannot be read stays zero.
  const std::size_t offset = page - slot.begin.load();
  const ssize_t got = pread(slot.fd.load(), copy, size, static_cast<off_t>(offset));
  slot.is_lost.store(true);
  if (GuardedRange::Owner* const owner = slot.owner.load()) {
    owner->on_replace(offset, got == static_cast<ssize_t>(size));
  }
  void* const at = reinterpret_cast<void*>(page);  // NOLINT(performance-no-int-to-ptr)
  return mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at;
}

void on_bus_error(int number, siginfo_t* info, void* context) {
  const int error = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (Slot& slot : slots) {
    const std::uintptr_t begin = slot.begin.load();
    if (begin == 0 || address < begin || address >= slot.end.load()) continue;
    const std::uintptr_t page = address & ~(page_bytes() - 1);
    while (is_handling.test_and_set()) {
    }
    GuardedRange::Owner* const owner = slot.owner.load();
    const bool is_done =
        (owner != nullptr && owner->is_replaced(page - begin)) || replace_page(slot, page);
    is_handling.clear();
    if (!is_done) break;
    errno = error;
    return;
  }
  if ((other_handler.sa_flags & SA_SIGINFO) != 0) {
    other_handler.sa_sigaction(number, info, context);
  } else if (other_handler.sa_handler != SIG_DFL && other_handler.sa_handler != SIG_IGN) {
    other_handler.sa_handler(number);
  } else {
    signal(number, SIG_DFL);  // the instruction is tried again, and ends the process
  }
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    (void)page_bytes();
    struct sigaction ours {};
    ours.sa_sigaction = &on_bus_error;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    sigaction(SIGBUS, &ours, &other_handler);
  });
}

}  // namespace

std::unique_ptr<GuardedMapping> GuardedMapping::map(int fd, std::size_t size_bytes) {
  std::size_t free = 0;
  Slot* const taken = take_slot(free);
  if (taken == nullptr) return nullptr;
  Slot& slot = *taken;
  install_handler();
  slot.fd.store(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  void* const at = slot.fd.load() < 0 ? MAP_FAILED
                                      : mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                                             MAP_SHARED, slot.fd.load(), 0);
  if (at == MAP_FAILED) {
    const int error = errno;
    if (slot.fd.load() >= 0) close(slot.fd.exchange(-1));
    slot.is_taken.store(false);
    errno = error;
    return nullptr;
  }
  slot.is_lost.store(false);
  slot.end.store(reinterpret_cast<std::uintptr_t>(at) + size_bytes);
  slot.begin.store(reinterpret_cast<std::uintptr_t>(at));
  return std::unique_ptr<GuardedMapping>(
      new GuardedMapping(static_cast<std::byte*>(at), size_bytes, free));
}

GuardedMapping::~GuardedMapping() {
  Slot& slot = slots[slot_];
  slot.begin.store(0);
  munmap(at_, size_bytes_);
  close(slot.fd.exchange(-1));
  slot.is_taken.store(false);
}

bool GuardedMapping::is_lost() const {
  return slots[slot_].is_lost.load();
}

std::unique_ptr<GuardedRange> GuardedRange::guard(std::byte* at, std::size_t size_bytes, int fd,
                                                  Owner& owner) {
  std::size_t free = 0;
  Slot* const slot = take_slot(free);
  if (slot == nullptr) return nullptr;
  install_handler();
  slot->fd.store(fd);
  slot->owner.store(&owner);
  slot->end.store(reinterpret_cast<std::uintptr_t>(at) + size_bytes);
  slot->begin.store(reinterpret_cast<std::uintptr_t>(at));
  return std::unique_ptr<GuardedRange>(new GuardedRange(free));
}

GuardedRange::~GuardedRange() {
  Slot& slot = slots[slot_];
  slot.begin.store(0);
  slot.owner.store(nullptr);
  slot.fd.store(-1);
  slot.is_taken.store(false);
}

}  // namespace reverie
