// Tested in tests/integration/reverb_checkpoint_test.cc.
#include "reverie/reverb_files/tf_records.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include <zlib.h>

#include "reverie/base/format.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/codec/crc32c.h"

namespace reverie::reverb_files {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
constexpr std::size_t kHeadBytes = 12;
constexpr std::size_t kTailBytes = 4;
// The maximum size of a protobuf message.
constexpr std::uint64_t kRecordBytesMax = (std::uint64_t{1} << 31) - 1;

std::uint32_t masked_crc(std::span<const std::byte> bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

bool is_head(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadBytes) return false;
  return ByteReader(bytes.subspan(8, 4)).u32() == masked_crc(bytes.first(8));
}

Bytef* zlib_bytes(const std::byte* bytes) {  // zlib does not change them
  return const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes));
}

}  // namespace

struct TfRecordReader::Inflater {
  z_stream stream{};
  std::vector<std::byte> in;
  bool is_ready = false;

  Inflater() { is_ready = inflateInit(&stream) == Z_OK; }
  ~Inflater() {
    if (is_ready) inflateEnd(&stream);
  }
};

TfRecordReader::TfRecordReader(std::unique_ptr<ReadableFile> file, std::string path)
    : file_(std::move(file)), path_(std::move(path)) {}
TfRecordReader::~TfRecordReader() = default;

Result<std::unique_ptr<TfRecordReader>> TfRecordReader::open(FileSystem& files,
                                                             const std::string& path) {
  REVERIE_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, files.open(path));
  auto reader = std::unique_ptr<TfRecordReader>(new TfRecordReader(std::move(file), path));
  REVERIE_RETURN_IF_ERROR(reader->begin());
  return reader;
}

Status TfRecordReader::begin() {
  std::vector<std::byte> head(std::min<std::uint64_t>(kHeadBytes, file_->size_bytes()));
  REVERIE_RETURN_IF_ERROR(file_->read_at(0, head));
  if (is_head(head)) return {};
  const auto byte = [&](std::size_t i) { return std::to_integer<unsigned>(head[i]); };
  const bool is_zlib =
      head.size() >= 2 && (byte(0) & 0xf) == Z_DEFLATED && (byte(0) * 256 + byte(1)) % 31 == 0;
  if (!is_zlib) return data_loss("'{}' is not a file of records", path_);
  inflater_ = std::make_unique<Inflater>();
  if (!inflater_->is_ready) return resource_exhausted("no memory to inflate '{}'", path_);
  return {};
}

std::string TfRecordReader::place() const {
  return format("record {} of '{}'", records_, path_);
}

Status TfRecordReader::damaged(const std::string& how) const {
  return data_loss("'{}' is damaged: {}, after {} good records", path_, how, records_);
}

Status TfRecordReader::fill(std::size_t count) {
  if (unread().size() >= count) return {};
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(at_));
  at_ = 0;
  while (bytes_.size() < count && !is_at_end_) {
    REVERIE_RETURN_IF_ERROR(inflater_ ? read_compressed() : read_plain());
  }
  return {};
}

Status TfRecordReader::read_plain() {
  const std::uint64_t left = file_->size_bytes() - offset_;
  const std::size_t count = std::min<std::uint64_t>(left, kBlockBytes);
  const std::size_t before = bytes_.size();
  bytes_.resize(before + count);
  REVERIE_RETURN_IF_ERROR(file_->read_at(offset_, std::span(bytes_).subspan(before)));
  offset_ += count;
  is_at_end_ = offset_ == file_->size_bytes();
  return {};
}

Status TfRecordReader::read_compressed() {
  z_stream& stream = inflater_->stream;
  if (stream.avail_in == 0) {
    const std::uint64_t left = file_->size_bytes() - offset_;
    if (left == 0) return damaged("its zlib stream ends too early");
    inflater_->in.resize(std::min<std::uint64_t>(left, kBlockBytes));
    REVERIE_RETURN_IF_ERROR(file_->read_at(offset_, inflater_->in));
    offset_ += inflater_->in.size();
    stream.next_in = zlib_bytes(inflater_->in.data());
    stream.avail_in = static_cast<uInt>(inflater_->in.size());
  }
  const std::size_t before = bytes_.size();
  bytes_.resize(before + kBlockBytes);
  stream.next_out = reinterpret_cast<Bytef*>(bytes_.data() + before);
  stream.avail_out = static_cast<uInt>(kBlockBytes);
  const int code = inflate(&stream, Z_NO_FLUSH);
  bytes_.resize(bytes_.size() - stream.avail_out);
  if (code == Z_MEM_ERROR) return resource_exhausted("no memory to inflate '{}'", path_);
  if (code == Z_STREAM_END) {
    if (stream.avail_in > 0 || offset_ < file_->size_bytes()) {
      return damaged("bytes follow its zlib stream");
    }
    is_at_end_ = true;
  } else if (code != Z_OK && code != Z_BUF_ERROR) {
    return damaged("its zlib stream is malformed");
  }
  return {};
}

Result<std::optional<std::span<const std::byte>>> TfRecordReader::next() {
  REVERIE_RETURN_IF_ERROR(fill(kHeadBytes));
  if (unread().empty()) return std::optional<std::span<const std::byte>>();
  if (!is_head(unread())) return damaged("the length of a record does not have its checksum");
  const std::uint64_t length = ByteReader(unread()).u64();
  if (length > kRecordBytesMax) {
    return damaged(format("a record has {} bytes; the bound is {}", length, kRecordBytesMax));
  }
  const std::size_t all = kHeadBytes + static_cast<std::size_t>(length) + kTailBytes;
  REVERIE_RETURN_IF_ERROR(fill(all));
  if (unread().size() < all) return damaged(format("it ends within a record of {} bytes", length));
  const std::span<const std::byte> record = unread().subspan(kHeadBytes, length);
  if (ByteReader(unread().subspan(kHeadBytes + length)).u32() != masked_crc(record)) {
    return damaged(format("a record of {} bytes does not have its checksum", length));
  }
  at_ += all;
  ++records_;
  return std::optional(record);
}

struct TfRecordWriter::Deflater {
  z_stream stream{};
  std::array<std::byte, std::size_t{64} << 10> out;
  bool is_ready = false;

  // Chunks are compressed already, so a higher level would not help.
  Deflater() { is_ready = deflateInit(&stream, Z_BEST_SPEED) == Z_OK; }
  ~Deflater() {
    if (is_ready) deflateEnd(&stream);
  }
};

TfRecordWriter::TfRecordWriter(std::unique_ptr<File> file)
    : file_(std::move(file)), deflater_(std::make_unique<Deflater>()) {}
TfRecordWriter::~TfRecordWriter() = default;

Result<std::unique_ptr<TfRecordWriter>> TfRecordWriter::create(FileSystem& files,
                                                               const std::string& path) {
  REVERIE_ASSIGN_OR_RETURN(std::unique_ptr<File> file, files.create(path));
  auto writer = std::unique_ptr<TfRecordWriter>(new TfRecordWriter(std::move(file)));
  if (!writer->deflater_->is_ready) return resource_exhausted("no memory to write '{}'", path);
  return writer;
}

Status TfRecordWriter::add(std::span<const std::byte> record) {
  if (record.size() > kRecordBytesMax) {
    return invalid_argument("a record has {} bytes; the bound is {}; use shorter chunks",
                            record.size(), kRecordBytesMax);
  }
  std::vector<std::byte> head;
  ByteWriter(head).u64(record.size());
  ByteWriter(head).u32(masked_crc(head));
  REVERIE_RETURN_IF_ERROR(deflate(head, false));
  REVERIE_RETURN_IF_ERROR(deflate(record, false));
  std::vector<std::byte> tail;
  ByteWriter(tail).u32(masked_crc(record));
  return deflate(tail, false);
}

Status TfRecordWriter::finish() {
  REVERIE_RETURN_IF_ERROR(deflate({}, true));
  return file_->sync();
}

Status TfRecordWriter::deflate(std::span<const std::byte> bytes, bool is_last) {
  z_stream& stream = deflater_->stream;
  stream.next_in = zlib_bytes(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  do {
    stream.next_out = reinterpret_cast<Bytef*>(deflater_->out.data());
    stream.avail_out = static_cast<uInt>(deflater_->out.size());
    (void)::deflate(&stream, is_last ? Z_FINISH : Z_NO_FLUSH);
    const std::size_t made = deflater_->out.size() - stream.avail_out;
    if (made > 0) REVERIE_RETURN_IF_ERROR(file_->append(std::span(deflater_->out).first(made)));
  } while (stream.avail_out == 0);
  return {};
}

}  // namespace reverie::reverb_files
