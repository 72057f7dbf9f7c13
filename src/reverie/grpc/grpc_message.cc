// Tested in message_reader_test.cc.
#include "reverie/grpc/grpc_message.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "reverie/grpc/field_scan.h"
#include "reverie/tensor/block_memory.h"

namespace reverie {
namespace {

// Smaller messages are freed as soon as they are read, and use the C heap.
constexpr std::size_t kBlockBytesMin = FieldScan::kApartBytesMin;
// For smaller messages, the BlockHeap is as fast as a pool.
constexpr std::size_t kPooledBytesMin = std::size_t{32} << 10;

}  // namespace

MessagePool::MessagePool(std::size_t kept_bytes_max) : kept_bytes_max_(kept_bytes_max) {}

MessagePool::~MessagePool() {
  for (const SizeClass& size_class : classes_) {
    for (std::byte* data : size_class.free) {
      give_back_block(data, size_class.capacity);
    }
  }
}

std::size_t MessagePool::kept_bytes() const {
  MutexLock lock(mutex_);
  return kept_bytes_;
}

std::byte* MessagePool::take(std::size_t size_bytes, std::size_t* capacity) {
  if (size_bytes < kBlockBytesMin) {
    *capacity = 0;
    return static_cast<std::byte*>(std::malloc(std::max<std::size_t>(size_bytes, 1)));
  }
  *capacity = block_bytes(size_bytes);
  if (*capacity >= kPooledBytesMin) {
    MutexLock lock(mutex_);
    const auto place = std::lower_bound(
        classes_.begin(), classes_.end(), *capacity,
        [](const SizeClass& c, std::size_t wanted) { return c.capacity < wanted; });
    if (place != classes_.end() && place->capacity == *capacity && !place->free.empty()) {
      std::byte* const data = place->free.back();
      place->free.pop_back();
      kept_bytes_ -= *capacity;
      return data;
    }
  }
  return static_cast<std::byte*>(take_block(*capacity));
}

void MessagePool::give_back(std::byte* data, std::size_t capacity) noexcept {
  if (capacity == 0) return std::free(data);
  if (capacity >= kPooledBytesMin) {
    MutexLock lock(mutex_);
    if (kept_bytes_ + capacity <= kept_bytes_max_) {
      auto place = std::lower_bound(
          classes_.begin(), classes_.end(), capacity,
          [](const SizeClass& c, std::size_t wanted) { return c.capacity < wanted; });
      if (place == classes_.end() || place->capacity != capacity) {
        place = classes_.insert(place, SizeClass{capacity, {}});
      }
      place->free.push_back(data);
      kept_bytes_ += capacity;
      return;
    }
  }
  give_back_block(data, capacity);
}

Result<Ref<GrpcMessage>> GrpcMessage::make(Ref<MessagePool> pool, std::size_t size_bytes) {
  std::size_t capacity = 0;
  std::byte* const data = pool->take(size_bytes, &capacity);
  if (data == nullptr) {
    return resource_exhausted("{} bytes of memory for a message could not be allocated",
                              size_bytes);
  }
  return Ref<GrpcMessage>::adopt(new GrpcMessage(std::move(pool), data, size_bytes, capacity));
}

GrpcMessage::GrpcMessage(Ref<MessagePool> pool, std::byte* data, std::size_t size_bytes,
                         std::size_t capacity)
    : pool_(std::move(pool)),
      data_(data),
      size_bytes_(size_bytes),
      capacity_(capacity),
      memory_bytes_(size_bytes),
      received_bytes_(size_bytes) {}

GrpcMessage::~GrpcMessage() {
  pool_->give_back(data_, capacity_);
}

void GrpcMessage::finish(std::size_t size_bytes, std::vector<Part> parts,
                         std::size_t received_bytes) {
  REVERIE_CHECK(size_bytes <= size_bytes_);
  size_bytes_ = size_bytes;
  parts_ = std::move(parts);
  received_bytes_ = received_bytes;
}

Buffer GrpcMessage::view(std::size_t offset, std::size_t size_bytes) {
  REVERIE_CHECK(offset <= size_bytes_ && size_bytes <= size_bytes_ - offset);
  add_ref();
  return {data_ + offset, size_bytes, this};
}

void GrpcMessage::take_back(std::byte*, std::size_t) noexcept {
  release();
}

GrpcPayload::GrpcPayload(GrpcPayload&& other) noexcept
    : pieces_(std::move(other.pieces_)),
      keepers_(std::move(other.keepers_)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {
  other.pieces_.clear();
  other.keepers_.clear();
}

GrpcPayload& GrpcPayload::operator=(GrpcPayload&& other) noexcept {
  std::swap(pieces_, other.pieces_);
  std::swap(keepers_, other.keepers_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

GrpcPayload::~GrpcPayload() {
  clear();
}

GrpcPayload GrpcPayload::of(std::string bytes) {
  GrpcPayload payload;
  payload.append(std::move(bytes));
  return payload;
}

void GrpcPayload::append(std::string bytes) {
  if (bytes.empty()) return;
  const auto* const owned = new std::string(std::move(bytes));
  append_kept(std::as_bytes(std::span(*owned)),
              {owned, [](const void* object) { delete static_cast<const std::string*>(object); }});
}

void GrpcPayload::append(Buffer bytes) {
  const auto* const owned = new Buffer(std::move(bytes));
  append_kept(owned->bytes(),
              {owned, [](const void* object) { delete static_cast<const Buffer*>(object); }});
}

void GrpcPayload::append(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  keep(std::move(owner));
  append_kept(bytes, {});
}

void GrpcPayload::keep(std::shared_ptr<const void> owner) {
  using Owner = std::shared_ptr<const void>;
  keepers_.push_back({new Owner(std::move(owner)),
                      [](const void* object) { delete static_cast<const Owner*>(object); }});
}

void GrpcPayload::append_kept(std::span<const std::byte> bytes, Keeper keeper) {
  if (keeper.release != nullptr) keepers_.push_back(keeper);
  if (bytes.empty()) return;
  pieces_.push_back(bytes);
  size_bytes_ += bytes.size();
}

std::string GrpcPayload::flat() const {
  std::string text;
  text.reserve(size_bytes_);
  for (const auto& piece : pieces_) {
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return text;
}

void GrpcPayload::clear() noexcept {
  for (const Keeper& keeper : keepers_) {
    if (keeper.object != nullptr) keeper.release(keeper.object);
  }
  keepers_.clear();
  pieces_.clear();
  size_bytes_ = 0;
}

}  // namespace reverie
