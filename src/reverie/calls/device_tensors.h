// DeviceTensors: tensors in a GPU's memory that another process of this host copies from there.
//
//     sender                                              receiver
//     can_lend()       may you read a nonce of mine?  -->
//                                             <--         the nonce, read through its handle
//     lend()           the call, with a record        -->  find(): opens the handle, or has it open
//     memory is kept                          <--         receipt, once the copy is done
//
// The question is asked once per device and run of the other peer, with the first tensor for it.
// Only a peer that shares memory with this one is asked (os/link_share.h), and only a process that
// uses the device says yes: nothing is loaded for the question. The nonce that comes back shows
// that handles can be opened, which containers may prevent.
//
// A received record may be forged: only a peer on this host may send one, and it must name a part
// of an allocation, whose size the driver says. To open another process's memory it needs the
// driver's handle; memory of this process it names by a number, so that memory must have been lent
// in the session in which the record comes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/net/io_threads.h"
#include "reverie/os/device_driver.h"
#include "reverie/rpc/peer.h"
#include "reverie/tensor/device_record.h"

namespace reverie {

// Memory of a sender, mapped while `pin` lives.
struct DeviceSource {
  int device = 0;
  std::uint64_t address = 0;
  std::shared_ptr<const void> pin;
};

// Thread-safe. Calls may wait for the driver: make them under no lock.
class DeviceTensors : public std::enable_shared_from_this<DeviceTensors> {
 public:
  struct Options {
    // Outlives the object.
    DeviceDriver* driver = nullptr;
    // How much may be lent at once; a single tensor of any size may be.
    std::size_t lent_bytes_max = std::size_t{4} << 30;
    // How many allocations of others are kept open, and for how long after their last use.
    std::size_t open_count_max = 64;
    Duration open_for = std::chrono::seconds(5);
    // For tests, where one process acts as two; else it has its own.
    std::optional<ProcessId> process = std::nullopt;
  };
  struct Counts {
    std::size_t lent_bytes = 0;
    std::size_t open_count = 0;  // allocations of others
    std::uint64_t lent = 0;      // tensors, since the start
    std::uint64_t found = 0;
    std::string
        refusal;  // why the latest tensor was not lent that was not; empty: none was refused
  };

  // Answers the questions of other peers from now on.
  static std::shared_ptr<DeviceTensors> make(const std::shared_ptr<Peer>& peer,
                                             const Options& options);
  ~DeviceTensors() { close(); }
  // Closes what is open. What was lent stays lent. Not on a thread of this object.
  void close();

  DeviceDriver& driver() { return driver_; }
  Counts counts() const;

  // --- Sending.
  // Whether the run at the other end reads memory of the device; asks it if that is not known, and
  // waits for the answer, at most for half of the time until `deadline` and for three seconds.
  // False if no answer comes; if the time was shorter than that, the next caller asks again.
  bool can_lend(const Neighbour& receiver, int device, TimePoint deadline);
  struct Loan {
    DeviceRecord record;
    std::shared_ptr<const void> counted;  // while it lives, the memory counts as lent
  };
  // Lends memory to the run of a session of the peer. UNAVAILABLE if the memory has no handle,
  // RESOURCE_EXHAUSTED if too much is lent.
  Result<Loan> lend(std::uint64_t session, int device, std::uint64_t address,
                    std::size_t size_bytes);
  // Runs `work` soon, on a thread of this object. Dropped after close().
  void post(std::function<void()> work);

  // --- Receiving.
  // The memory that `record` names, if all `size_bytes` are there. DATA_LOSS for a record that no
  // peer of this host sends, and for memory of this process that was not lent in the session of the
  // message.
  Result<DeviceSource> find(const Payload& message, const DeviceRecord& record,
                            std::size_t size_bytes);
  // Whether all that the message lent was lent until now, so that copies of it are right. A sender
  // takes it back from a run that it takes for dead, which may only have been stopped.
  Status confirm(const Payload& message);

 private:
  // An allocation of another process.
  struct Opened;
  using OpenedKey = std::pair<ProcessId, std::uint64_t>;  // the owner, the number of the allocation
  // What a run has said about a device.
  struct Verdict {
    bool is_yes = false;
    TimePoint until;
    std::string why = {};  // it is a no
    bool is_kept = true;   // else the next tensor asks again
  };

  DeviceTensors(const std::shared_ptr<Peer>& peer, const Options& options);
  Verdict ask(const Neighbour& receiver, int device, const DeviceUuid& uuid, TimePoint deadline);
  void on_question(Request request);
  // The nonce that a question names.
  Result<decltype(DeviceNonce::bytes)> read_nonce(const Request& question);
  Status refused(Status why);  // notes it
  // As that of Neighbour; 0 if the session has ended.
  std::uint64_t secret_of(std::uint64_t session) const;
  // Only what was lent in the session.
  Result<DeviceSource> find_own(int device, const DeviceRecord& record, std::size_t size_bytes,
                                std::uint64_t session);
  Result<DeviceSource> find_opened(int device, const DeviceRecord& record, std::size_t size_bytes,
                                   const std::weak_ptr<const void>& run);
  // Opens it, or returns what is open.
  Result<std::shared_ptr<Opened>> open(int device, const DeviceRecord& record,
                                       const std::weak_ptr<const void>& run);
  // CANCELLED once it is closed, RESOURCE_EXHAUSTED if no thread can be started.
  Result<IoLoop*> loop();
  void watch_open();
  void look_at_open();  // loop thread only
  // Takes out those that were unused for `open_for`, or whose sender's run has ended.
  std::vector<std::shared_ptr<Opened>> take_stale(Duration open_for) REVERIE_REQUIRES(mutex_);

  const ForkGuard fork_guard_;
  const std::weak_ptr<Peer> peer_;
  const Options options_;
  const ProcessId process_;
  DeviceDriver& driver_;
  Clock& clock_ = Clock::system();

  mutable Mutex mutex_;
  std::map<std::pair<std::uint64_t, DeviceUuid>, Verdict> verdicts_ REVERIE_GUARDED_BY(mutex_);
  std::map<OpenedKey, std::shared_ptr<Opened>> opened_ REVERIE_GUARDED_BY(mutex_);
  Counts counts_ REVERIE_GUARDED_BY(mutex_);
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_watching_ REVERIE_GUARDED_BY(mutex_) = false;
  std::unique_ptr<IoThreads> threads_ REVERIE_GUARDED_BY(mutex_);  // once there is work for it
  std::unique_ptr<LoopTimer> timer_;                               // loop thread only
  Mutex opening_;  // one thread at a time opens handles
};

}  // namespace reverie
