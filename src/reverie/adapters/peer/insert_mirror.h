// InsertMirror: a writer's chunks as its server keeps them; reads the bodies of its inserts.
//
// What comes is checked whole before anything is made of it: numbers, sizes, references, and the
// memory that a chunk takes. insert_records.h has the form.
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

#include "reverie/adapters/peer/insert_records.h"
#include "reverie/adapters/peer/store_bytes.h"
#include "reverie/base/clock.h"
#include "reverie/codec/codec.h"
#include "reverie/door/byte_budget.h"
#include "reverie/record/item.h"
#include "reverie/reverb_wire/item.h"
#include "reverie/rpc/message.h"

namespace reverie {

// Not thread-safe.
class InsertMirror {
 public:
  struct Options {
    Allocator& memory;
    // What the columns of a table's items are called; of one that is unknown too. Lives longer.
    std::function<const wire::ColumnNames&(std::string_view table)> names;
    // Bytes of the chunks that are kept for items to come.
    std::size_t kept_bytes_max = std::size_t{4} << 30;
    std::shared_ptr<ByteBudget> in_flight = nullptr;  // they count here too; null: no such bound
    // kLz4, kZstd: chunks that stayed raw are compressed when their writer lets them go.
    CodecChoice codec = CodecChoice::kAuto;
  };
  // An item of a message.
  struct Taken {
    Item item;
    const std::string* table = nullptr;  // the mirror's
    bool begins = false;                 // a request
    std::optional<Duration> timeout;     // of that request
  };

  explicit InsertMirror(Options options) : options_(std::move(options)) {}
  ~InsertMirror() { give_back(kept_bytes_ + let_go_bytes_); }
  InsertMirror(const InsertMirror&) = delete;
  InsertMirror& operator=(const InsertMirror&) = delete;

  // Which writer a message is of. DATA_LOSS where that is not there.
  static Result<insert_records::Head> head_of(const Payload& payload);
  // Appends the items of a message. DATA_LOSS for malformed bytes, RESOURCE_EXHAUSTED for a bound:
  // then the mirror cannot be used any more.
  Status take(const Payload& payload, std::vector<Taken>& items);

  std::size_t kept_bytes() const { return kept_bytes_; }
  // Bytes of chunks that were let go since the last call: they still count in the budget of all,
  // until the caller gives them back.
  std::size_t take_let_go() { return std::exchange(let_go_bytes_, 0); }
  std::size_t chunk_count() const { return chunks_.size(); }

 private:
  struct Mirrored {
    insert_records::Open open;
    Ref<Chunk> chunk;  // null until there are rows
    std::size_t size_bytes = 0;
  };
  // A layout, as it is for one table and the schemas of its pieces.
  struct Variant {
    std::uint16_t table = 0;
    std::vector<const ChunkSchema*> schemas;
    Ref<const Layout> layout;
  };
  struct Kind {
    std::uint32_t piece_count = 0;
    std::vector<insert_records::LayoutColumnRecord> columns;
    std::vector<Variant> variants;  // the last one that was used in front
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
  // Bytes that follow here, or in the bulk.
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
  std::size_t let_go_bytes_ = 0;
  std::size_t named_bytes_ = 0;     // of tables, schemas and layouts
  std::size_t received_bytes_ = 0;  // since it began
  std::vector<Piece> pieces_;

  // The message that is being taken.
  StoreBytesIn in_{std::span<const std::byte>()};
  std::span<const std::byte> bulk_;
  std::size_t bulk_at_ = 0;
};

}  // namespace reverie
