// Received and outgoing messages, and the memory pool of received ones.
//
// A received message is copied once, from the socket's buffer into memory of its own size; what is
// stored of it (a chunk's columns) views that memory and keeps it. Long contents of a field that
// the method names (the chunks of InsertStream) get separate memory, each kept or released by
// itself. An outgoing message is a list of pieces with owners: the socket gathers them, nothing is
// copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/base/ref.h"
#include "reverie/base/status.h"
#include "reverie/tensor/buffer.h"

namespace reverie {

// Keeps the memory of large messages for the next ones: a fresh page costs ten times the copy into
// it. Sizes are rounded up by at most an eighth; small messages use the C heap. Thread-safe; lives
// until its last message is gone.
class MessagePool final : public RefCounted<MessagePool> {
 public:
  // Free memory beyond `kept_bytes_max` goes back to the system.
  explicit MessagePool(std::size_t kept_bytes_max = std::size_t{64} << 20);
  ~MessagePool();

  std::size_t kept_bytes() const;

 private:
  friend class GrpcMessage;
  // Null if there is no memory. Sets `capacity` to the size to give back.
  std::byte* take(std::size_t size_bytes, std::size_t* capacity);
  void give_back(std::byte* data, std::size_t capacity) noexcept;

  struct SizeClass {
    std::size_t capacity;
    std::vector<std::byte*> free;
  };
  const std::size_t kept_bytes_max_;
  mutable Mutex mutex_;
  std::size_t kept_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::vector<SizeClass> classes_ REVERIE_GUARDED_BY(mutex_);
};

// One received message. The transport writes the bytes; they are constant once the message is
// delivered. Thread-safe to read, to share and to release.
class GrpcMessage final : public RefCounted<GrpcMessage>, private BufferOwner {
 public:
  // Not zeroed. RESOURCE_EXHAUSTED when there is no memory.
  static Result<Ref<GrpcMessage>> make(Ref<MessagePool> pool, std::size_t size_bytes);
  ~GrpcMessage() override;

  // The message without its parts.
  std::span<const std::byte> bytes() const { return {data_, size_bytes_}; }
  std::span<std::byte> writable() { return {data_, size_bytes_}; }

  // A part that keeps the whole message alive. Requires offset + size <= bytes().size().
  Buffer view(std::size_t offset, std::size_t size_bytes);
  // The memory that a view keeps alive.
  std::size_t memory_bytes() const { return memory_bytes_; }

  // A field's content in separate memory. The field, including its head, preceded byte `at` of
  // bytes().
  struct Part {
    std::size_t at = 0;
    Ref<GrpcMessage> content;
  };
  // Moves the parts out, in order: views of the message do not keep them. Only its reader may take
  // them, once.
  std::vector<Part> take_parts() { return std::exchange(parts_, {}); }

  // For the transport: keeps the first `size_bytes`, and adds the parts.
  void finish(std::size_t size_bytes, std::vector<Part> parts, std::size_t received_bytes);
  // The announced size of the whole message.
  std::size_t received_bytes() const { return received_bytes_; }

 private:
  GrpcMessage(Ref<MessagePool> pool, std::byte* data, std::size_t size_bytes, std::size_t capacity);
  void take_back(std::byte* data, std::size_t size_bytes) noexcept override;

  Ref<MessagePool> pool_;
  std::byte* data_;
  std::size_t size_bytes_;
  std::size_t capacity_;
  std::size_t memory_bytes_;
  std::size_t received_bytes_;
  std::vector<Part> parts_;
};

// An outgoing message: pieces in order, each kept until the socket has taken it. Move-only; not
// thread-safe. The pieces are released on the connection's I/O thread.
class GrpcPayload {
 public:
  GrpcPayload() = default;
  GrpcPayload(GrpcPayload&& other) noexcept;
  GrpcPayload& operator=(GrpcPayload&& other) noexcept;
  ~GrpcPayload();

  // A message of these bytes, which it owns.
  static GrpcPayload of(std::string bytes);

  // Appends bytes and owns them.
  void append(std::string bytes);
  void append(Buffer bytes);
  // Appends bytes that `owner` keeps alive and unchanged. The same owner may be given many times.
  void append(std::span<const std::byte> bytes, std::shared_ptr<const void> owner);
  template <typename T>
  void append(std::span<const std::byte> bytes, Ref<T> owner) {
    append_kept(bytes, {owner.release(),
                        [](const void* object) { static_cast<const T*>(object)->release(); }});
  }
  // Appends bytes whose owner this payload keeps already (see keep).
  void append_borrowed(std::span<const std::byte> bytes) { append_kept(bytes, {}); }
  // Keeps `owner` until the whole message is sent.
  template <typename T>
  void keep(Ref<T> owner) {
    keepers_.push_back(
        {owner.release(), [](const void* object) { static_cast<const T*>(object)->release(); }});
  }
  void keep(std::shared_ptr<const void> owner);

  std::size_t size_bytes() const { return size_bytes_; }
  std::size_t piece_count() const { return pieces_.size(); }
  std::span<const std::byte> piece(std::size_t index) const { return pieces_[index]; }
  // All pieces as one string: for tests and small messages.
  std::string flat() const;

 private:
  // What to release, and how.
  struct Keeper {
    const void* object = nullptr;
    void (*release)(const void*) = nullptr;
  };
  void append_kept(std::span<const std::byte> bytes, Keeper keeper);
  void clear() noexcept;

  std::vector<std::span<const std::byte>> pieces_;
  std::vector<Keeper> keepers_;
  std::size_t size_bytes_ = 0;
};

}  // namespace reverie
