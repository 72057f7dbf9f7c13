// Files of records in TensorFlow's format, which dm-reverb's checkpoints consist of.
//
//     u64 length | u32 crc of the length | bytes | u32 crc of the bytes      record after record
//
// Numbers are little-endian, and a crc is CRC32C in TensorFlow's masked form. The whole file is one
// zlib stream, or uncompressed, which TensorFlow reads too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/os/file_system.h"

namespace reverie::reverb_files {

// Not thread-safe.
class TfRecordReader {
 public:
  static Result<std::unique_ptr<TfRecordReader>> open(FileSystem& files, const std::string& path);
  ~TfRecordReader();

  // The next record, which views memory of the reader until the next call; none at the end.
  // DATA_LOSS names the file and the record. Allocates for the bytes that are there, not for the
  // length that a record claims.
  Result<std::optional<std::span<const std::byte>>> next();
  // "record 17 of '/data/items.tfrecord'": the record that next() returned last.
  std::string place() const;

 private:
  struct Inflater;

  TfRecordReader(std::unique_ptr<ReadableFile> file, std::string path);
  Status begin();
  // Reads on until `count` bytes are unread; fewer are left only at the end of the file.
  Status fill(std::size_t count);
  Status read_plain();
  Status read_compressed();
  Status damaged(const std::string& how) const;
  std::span<const std::byte> unread() const {
    return std::span<const std::byte>(bytes_).subspan(at_);
  }

  const std::unique_ptr<ReadableFile> file_;
  const std::string path_;
  std::uint64_t offset_ = 0;            // in the file, of the next read
  std::unique_ptr<Inflater> inflater_;  // null for a file that is not compressed
  std::vector<std::byte> bytes_;
  std::size_t at_ = 0;
  bool is_at_end_ = false;
  std::uint64_t records_ = 0;
};

// Not thread-safe.
class TfRecordWriter {
 public:
  // Creates a compressed file.
  static Result<std::unique_ptr<TfRecordWriter>> create(FileSystem& files, const std::string& path);
  ~TfRecordWriter();

  Status add(std::span<const std::byte> record);
  // Afterwards the file is complete and on the disk.
  Status finish();

 private:
  struct Deflater;

  explicit TfRecordWriter(std::unique_ptr<File> file);
  Status deflate(std::span<const std::byte> bytes, bool is_last);

  const std::unique_ptr<File> file_;
  const std::unique_ptr<Deflater> deflater_;
};

}  // namespace reverie::reverb_files
