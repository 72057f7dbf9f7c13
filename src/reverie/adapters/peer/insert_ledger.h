// InsertLedger: records which rows of a writer's chunks its server has; writes the bodies of
// inserts.
//
//     chunk 7, rows 0..9     server: open, rows 0..5     the next item over row 7 brings rows 6..9
// Each row is sent once per connection. A chunk that its writer has compressed meanwhile is
// replaced at the server too, and a chunk that the writer has released is released there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "reverie/adapters/peer/store_bytes.h"
#include "reverie/base/clock.h"
#include "reverie/record/item.h"
#include "reverie/store_messages/insert_records.h"
#include "reverie/tensor/payload.h"

namespace reverie {

// Not thread-safe.
class InsertLedger {
 public:
  // Begins a message. Requires that none is in progress.
  void begin(std::uint32_t writer, std::uint64_t first_number, std::uint64_t settled_below);
  // Adds the next item. `begins` is true for the first item of a request, which has the `timeout`.
  // Requires an item whose trajectory was checked.
  void add(const Item& item, std::string_view table, bool begins, std::optional<Duration> timeout);
  std::size_t size_bytes() const { return payload_.head.size() + bulk_bytes_; }
  // What the message takes in a frame at least.
  std::size_t head_bytes() const { return payload_.head.size() + kForgetBytes * chunks_.size(); }
  std::size_t bulk_bytes() const { return bulk_bytes_; }
  // Notes the message as it is now; rewind() takes back what was added since.
  void mark();
  void rewind();
  // Chunks are replaced as far as the message's bulk then fits in `bulk_bytes_max`.
  Payload finish(std::size_t bulk_bytes_max = SIZE_MAX);
  // Ends a message with nothing in it.
  void abandon() { payload_ = {}; }

  // A new connection: its server has nothing.
  void restart();
  std::size_t chunk_count() const { return chunks_.size(); }

 private:
  static constexpr std::size_t kForgetBytes = 5;
  struct Known {
    Ref<const Chunk> chunk;
    std::uint32_t id = 0;
    std::uint32_t rows = 0;  // rows that were sent
    bool is_encoded = false;
  };
  // What was known of a chunk before it was sent.
  struct Change {
    const Chunk* chunk;
    std::uint32_t rows;
    bool is_encoded;
    bool is_new;  // nothing
  };
  struct Mark {
    std::size_t head, bulk, bulk_bytes, tables, schemas, layouts;
    std::uint32_t next_chunk;
  };

  std::uint16_t table_of(std::string_view table);
  std::uint32_t schema_of(const Chunk& chunk);
  std::uint32_t layout_of(const TrajectoryView& view);
  Known& know(const Chunk& chunk);
  void send_rows(Known& known);
  void send_columns(Known& known, insert_records::Record record);
  void put_bytes(std::span<const std::byte> bytes, bool is_in_bulk,
                 const std::shared_ptr<const void>& keep);
  void put(insert_records::Record record) { out_.put(record); }
  void note(const Known& known, bool is_new = false) {
    changes_.push_back({known.chunk.get(), known.rows, known.is_encoded, is_new});
  }

  Payload payload_;
  StoreBytesOut out_{payload_.head};
  std::size_t bulk_bytes_ = 0;
  std::vector<std::string> tables_;
  // Kept alive, so that no other schema gets the same address.
  std::vector<Ref<const ChunkSchema>> schemas_;
  std::vector<Ref<const Layout>> layouts_;
  std::uint16_t last_table_ = 0;
  std::uint32_t last_layout_ = 0;
  std::uint32_t next_chunk_ = 1;
  std::unordered_map<const Chunk*, Known> chunks_;
  Known* last_ = nullptr;  // of chunks_
  Mark mark_ = {};
  std::vector<Change> changes_;  // since the mark
};

}  // namespace reverie
