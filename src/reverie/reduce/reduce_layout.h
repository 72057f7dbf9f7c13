// ReduceLayout: places the arrays of an all-reduce in one buffer, and assigns its parts to trees.
//
//     arrays   [ weight float32 ]..[ bias float16, as float32 ]..[ steps int64 ]   from 64 on 64
//     parts    [    0    ][    1    ][    2    ][    3    ][    4    ]    part i along tree i mod P
//
// It depends only on what is reduced and on the number of members, so that all members form the
// same parts. A part is at most 1 MiB: while one is combined, others are in transit. Each tree has
// as many parts as another, unless parts would be smaller than 16 KiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/reduce/reduction.h"
#include "reverie/tensor/dtype.h"
#include "reverie/tensor/shape.h"

namespace reverie {

// One array to reduce. Its elements are row-major and must outlive the call.
struct ReduceLeaf {
  std::string name;  // for messages; may be empty
  DType dtype = DType::kFloat32;
  Shape shape;
  std::span<const std::byte> bytes;
};

class ReduceLayout {
 public:
  static constexpr std::size_t kPartBytesMin = std::size_t{16} << 10;
  static constexpr std::size_t kPartBytesMax = std::size_t{1} << 20;

  struct Piece {
    std::string name;
    DType dtype;
    Shape shape;
    std::size_t count;   // elements
    std::size_t offset;  // in the buffer, of elements of combining_dtype(dtype)
  };

  // INVALID_ARGUMENT, naming the array, if `op` does not support its elements, or its size does not
  // match its shape.
  static Result<ReduceLayout> make(ReduceOp op, std::span<const ReduceLeaf> leaves,
                                   std::size_t member_count);

  ReduceOp op() const { return op_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  std::size_t size_bytes() const { return size_bytes_; }
  std::size_t part_count() const { return part_count_; }
  std::span<std::byte> part(std::size_t index, std::span<std::byte> buffer) const;

  // Fills `buffer`, of size_bytes(), with the arrays; the gaps with zeros.
  void load(std::span<const ReduceLeaf> leaves, std::span<std::byte> buffer) const;
  // The same for one piece: the array times `factor`.
  void load_scaled(std::size_t piece, std::span<const std::byte> from, std::uint64_t factor,
                   std::span<std::byte> buffer) const;
  // Elements of the piece's own dtype, from the reduced buffer.
  void unload(std::size_t piece, std::span<const std::byte> buffer, std::byte* to) const;
  // Combines the part's bytes with those that another member sent.
  void combine_part(std::size_t index, std::span<std::byte> buffer,
                    std::span<const std::byte> from) const;
  void finish_part(std::size_t index, std::span<std::byte> buffer, double divisor) const;
  // The same for the bytes from `begin` to `end` of the buffer, at multiples of 64, or its end;
  // `into` and `from` are where those of `begin` lie.
  std::pair<std::size_t, std::size_t> part_range(std::size_t index) const;
  void combine_range(std::size_t begin, std::size_t end, std::byte* into,
                     const std::byte* from) const;
  void finish_range(std::size_t begin, std::size_t end, std::byte* into, double divisor) const;

  // The operation, then one line per array: equal for members that reduce the same.
  const std::string& signature() const { return signature_; }
  std::uint64_t signature_hash() const { return signature_hash_; }

 private:
  ReduceLayout() = default;
  template <typename Visit>
  void visit_range(std::size_t begin, std::size_t end, Visit visit) const;

  ReduceOp op_ = ReduceOp::kSum;
  std::vector<Piece> pieces_;
  std::size_t size_bytes_ = 0;
  std::size_t part_bytes_ = 0;
  std::size_t part_count_ = 0;
  std::string signature_;
  std::uint64_t signature_hash_ = 0;
};

// The first difference between the signatures of two members, as text; "" if they are equal.
std::string signature_difference(std::string_view mine, std::string_view theirs,
                                 std::string_view their_name);
std::uint64_t text_hash(std::string_view text);

}  // namespace reverie
