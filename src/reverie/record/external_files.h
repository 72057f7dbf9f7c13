// ExternalFiles: how a reader finds rows that are in files outside the store.
//
//     item --> chunk --> column { "videos/7.raw", offset, size, first row }     what a writer sent
//                            |
//                     ExternalFiles::read     what this reader's own user configured
//
// A name comes from the writer of the item, which may not be trusted. So nothing is opened unless
// the reader was given an ExternalFiles, and a FileRoot opens only regular files below its folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "reverie/base/status.h"
#include "reverie/codec/external_column.h"

namespace reverie {

// Rows of an external column, and where to write them.
struct ExternalRead {
  ExternalRange range;
  const TensorSpec* spec = nullptr;  // of one row
  std::uint32_t first_row = 0;       // counted within the range
  std::uint32_t row_count = 0;
  std::span<std::byte> out;  // row_count rows, row-major

  std::size_t row_bytes() const { return out.size() / row_count; }
};

// Thread-safe.
class ExternalFiles {
 public:
  virtual ~ExternalFiles() = default;
  // Fills `out` of each, in any order, until an error. DATA_LOSS, naming file, offset and size, for
  // rows that are missing: then that item is at fault, and others can be read. Any other error says
  // nothing about the item.
  virtual Status read(std::span<const ExternalRead> reads) = 0;
};

// Raw rows, row-major, in regular files below one folder.
class FileRoot final : public ExternalFiles {
 public:
  // NOT_FOUND or INVALID_ARGUMENT if `folder` is not a folder.
  static Result<std::shared_ptr<FileRoot>> open(const std::string& folder);
  ~FileRoot() override;

  // A name is a path below the folder. DATA_LOSS if it leads out of the folder, by ".." or by a
  // link, if it is not a regular file, and if the file ends before the rows do.
  Status read(std::span<const ExternalRead> reads) override;

 private:
  FileRoot(std::string folder, int fd) : folder_(std::move(folder)), fd_(fd) {}
  Result<int> open_file(const std::string& name) const;

  const std::string folder_;
  const int fd_;
};

// Asks a function of the user's.
class ExternalFunction final : public ExternalFiles {
 public:
  explicit ExternalFunction(std::function<Status(const ExternalRead&)> read)
      : read_(std::move(read)) {}
  Status read(std::span<const ExternalRead> reads) override {
    for (const ExternalRead& one : reads) REVERIE_RETURN_IF_ERROR(read_(one));
    return {};
  }

 private:
  const std::function<Status(const ExternalRead&)> read_;
};

}  // namespace reverie
