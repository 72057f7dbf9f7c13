// PackedWriter: writes drawn samples as messages for a Reverie client (packed_format.h).
//
// Small data is copied into the message; large rows and columns are referenced, with a share in
// their chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/codec/column_decoder.h"
#include "reverie/grpc/grpc_message.h"
#include "reverie/native_wire/packed_format.h"
#include "reverie/native_wire/payload_builder.h"
#include "reverie/os/shared_arena.h"
#include "reverie/record/chunk.h"
#include "reverie/service/sample_batch.h"

namespace reverie {

// What a message's reader reads in memory of this process that it maps.
struct MappedChunks {
  // A smaller piece costs less to copy.
  static constexpr std::size_t kPieceBytesMin = std::size_t{2} << 10;

  const SharedArena* arena = nullptr;
  std::size_t size_bytes_max = 0;  // of the chunks; beyond, rows are copied
  std::size_t size_bytes = 0;
  // To be kept for as long as the reader reads there. In this order: the rows go first.
  std::vector<std::pair<Ref<const Chunk>, RawRows>> chunks = {};
};

// Not thread-safe.
class PackedWriter {
 public:
  // A message is closed once it is larger.
  static constexpr std::size_t kMessageBytes = std::size_t{2} << 20;
  static constexpr std::size_t kItemsMax = 4096;

  // A SampleStreamResponse with the items of the batch from `*next` on, as many as fit one message;
  // advances `*next` past them. Requires *next < batch.size(), and pinned chunks. An error means
  // that an item cannot be sent at all.
  // `version`: the highest that the reader reads.
  Result<GrpcPayload> write(const SampleBatch& batch, std::size_t* next,
                            std::uint64_t version = packed::kVersion);
  // The same without a message around the packed bytes. With `mapped`, for a reader that maps its
  // arena: chunks that lie there are added to it.
  Result<PayloadBuilder> write_bare(const SampleBatch& batch, std::size_t* next,
                                    MappedChunks* mapped = nullptr);

 private:
  // A schema of the message: some columns of a stored schema, in ascending order.
  struct Part {
    const ChunkSchema* schema;
    std::vector<std::uint16_t> columns;
    std::uint32_t rows_chunk;  // index in rows_ of the latest of this schema; kNone: none yet
  };
  // What is known about items with this layout and these schemas.
  struct KnownLayout {
    const Layout* layout;
    std::vector<const ChunkSchema*> schemas;   // of each piece
    std::vector<std::uint32_t> parts;          // likewise
    std::vector<std::uint16_t> chunk_columns;  // of each column, within its part
  };
  // Rows of one part that are gathered into one chunk of the message: as many as its reader takes.
  struct Rows {
    struct Segment {
      const Chunk* chunk;
      std::uint32_t offset;
      std::uint32_t length;
      bool is_raw;
    };
    std::uint32_t part;
    std::uint32_t row_count = 0;
    std::vector<Segment> segments;
  };
  // A chunk that is sent as it is kept.
  struct Encoded {
    std::uint32_t part;
    const Chunk* chunk;  // null: `own`
    std::uint32_t rows;
    std::vector<std::string> own;  // columns encoded for this message
  };
  // A chunk that its reader maps.
  struct MappedChunk {
    std::uint32_t part;
    const Chunk* chunk;
    ArenaRange range;
    bool is_raw;
  };
  // Rows of a chunk that its writer may encode meanwhile. Members in order of release: rows first.
  using KeptRows = std::pair<Ref<const Chunk>, RawRows>;
  // What a piece refers to until the chunks are numbered: rows first, then encoded chunks, then
  // mapped ones.
  enum class Kind : std::uint8_t { kRows, kEncoded, kMapped };
  struct Place {
    Kind kind;
    std::uint32_t index;
    std::uint32_t offset;
    std::uint32_t length;
  };

  Result<PayloadBuilder> try_write(const SampleBatch& batch, std::size_t* next);
  void clear();
  std::uint32_t layout_of(const TrajectoryView& trajectory);
  std::uint32_t part_of(const ChunkSchema& schema, std::vector<std::uint16_t> columns);
  Status place(const Piece& piece, std::uint32_t part);
  Rows& rows_for(const Piece& piece, std::uint32_t part);
  Status encode(const Piece& piece, std::uint32_t part);
  bool is_mapped_whole(const ChunkSchema& schema, std::span<const std::uint16_t> columns) const;
  bool map(const Piece& piece, std::uint32_t part, RawRows& raw);
  void put_tables(const SampleBatch& batch, std::size_t begin, std::size_t end, std::string& out);
  Status put_rows(const Rows& rows, PayloadBuilder& message);
  void put_mapped(std::string& out) const;
  Status put_decoded(const Rows::Segment& segment, std::size_t column, std::string& out);

  MappedChunks* mapped_ = nullptr;  // null: the reader maps nothing
  std::uint64_t version_ = packed::kVersion;
  bool may_decode_ = true;  // false once a column of this message turned out to be damaged
  std::size_t size_bytes_ = 0;
  std::vector<Part> parts_;
  std::vector<KnownLayout> layouts_;
  std::vector<std::uint32_t> layout_of_item_;
  std::vector<Place> places_;
  std::vector<Rows> rows_;
  std::vector<Encoded> encoded_;
  std::unordered_map<std::uint64_t, std::uint32_t> encoded_by_chunk_;
  std::vector<MappedChunk> mapped_chunks_;
  std::unordered_map<std::uint64_t, std::uint32_t> mapped_by_chunk_;
  std::vector<std::span<const std::byte>> storage_;
  std::vector<KeptRows> raw_;
  ColumnDecoder decoder_;
};

}  // namespace reverie
