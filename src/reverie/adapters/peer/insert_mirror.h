// InsertMirror: the server's copies of a writer's chunks; reads the bodies of its inserts. A
// message is checked completely before it is used: numbers, sizes, references, and the memory that
// a chunk takes. insert_records.h has the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "reverie/adapters/peer/store_bytes.h"
#include "reverie/base/clock.h"
#include "reverie/codec/codec.h"
#include "reverie/door/byte_budget.h"
#include "reverie/record/item.h"
#include "reverie/reverb_wire/item.h"
#include "reverie/store_messages/insert_records.h"
#include "reverie/tensor/payload.h"

namespace reverie {

// Not thread-safe.
class InsertMirror {
 public:
  struct Options {
    Allocator& memory;
    // The column names of a table's items, also for an unknown table. The result outlives the
    // mirror.
    std::function<const wire::ColumnNames&(std::string_view table)> names;
    // How many bytes of chunks are kept for later items.
    std::size_t kept_bytes_max = std::size_t{4} << 30;
    std::shared_ptr<ByteBudget> in_flight = nullptr;  // counts them too; null: no bound
    // kLz4, kZstd: chunks that are still raw are compressed when their writer releases them.
    CodecChoice codec = CodecChoice::kAuto;
  };
  // An item of a message.
  struct Taken {
    Item item;
    const std::string* table = nullptr;  // owned by the mirror
    bool begins = false;                 // the first of its request
    std::optional<Duration> timeout;     // of that request
  };

  explicit InsertMirror(Options options) : options_(std::move(options)) {}
  ~InsertMirror() { give_back(kept_bytes_ + released_bytes_); }
  InsertMirror(const InsertMirror&) = delete;
  InsertMirror& operator=(const InsertMirror&) = delete;

  // The writer of a message. DATA_LOSS if it is missing.
  static Result<insert_records::Head> head_of(const Payload& payload);
  // Appends the items of a message. DATA_LOSS for malformed bytes, RESOURCE_EXHAUSTED for an
  // exceeded bound: the mirror cannot be used after that.
  Status take(const Payload& payload, std::vector<Taken>& items);

  std::size_t kept_bytes() const { return kept_bytes_; }
  // Bytes of chunks that were released since the last call: they still count in the shared budget,
  // until the caller returns them.
  std::size_t take_released_bytes() { return std::exchange(released_bytes_, 0); }
  std::size_t chunk_count() const { return chunks_.size(); }

 private:
  struct Mirrored {
    insert_records::Open open;
    Ref<Chunk> chunk;  // null until rows arrive
    std::size_t size_bytes = 0;
  };
  // A layout for one table and the schemas of its pieces.
  struct Variant {
    std::uint16_t table = 0;
    std::vector<const ChunkSchema*> schemas;
    Ref<const Layout> layout;
  };
  struct Kind {
    std::uint32_t piece_count = 0;
    std::vector<insert_records::LayoutColumnRecord> columns;
    std::vector<Variant> variants;  // the most recently used first
  };

  Status take_schema();
  Status take_layout();
  Status take_open();
  Status take_rows();
  Status take_columns();
  Status take_forget();
  Status take_item(std::vector<Taken>& items);
  Result<Ref<const Layout>> layout_for(Kind& kind, std::uint16_t table);
  Result<Variant> make_variant(const Kind& kind, std::uint16_t table) const;
  // The next bytes of the head, or of the bulk.
  std::span<const std::byte> bytes(std::size_t size_bytes, bool is_in_bulk);
  Result<Mirrored*> find(std::uint32_t chunk);
  Status keep(Mirrored& mirrored, std::size_t size_bytes);
  void pack(Chunk& chunk) const;
  void give_back(std::size_t bytes) {
    if (options_.in_flight) options_.in_flight->give_back(bytes);
  }

  const Options options_;
  std::vector<std::unique_ptr<const std::string>> tables_;
  std::vector<Ref<const ChunkSchema>> schemas_;
  std::vector<Kind> kinds_;
  std::unordered_map<std::uint32_t, Mirrored> chunks_;
  std::uint32_t last_id_ = 0;
  Mirrored* last_ = nullptr;  // of chunks_
  std::size_t kept_bytes_ = 0;
  std::size_t released_bytes_ = 0;
  std::size_t named_bytes_ = 0;     // of tables, schemas and layouts
  std::size_t received_bytes_ = 0;  // since the mirror was made
  std::vector<Piece> pieces_;

  // The message that is being read.
  StoreBytesIn in_{std::span<const std::byte>()};
  std::span<const std::byte> bulk_;
  std::size_t bulk_at_ = 0;
};

}  // namespace reverie
