// Errors as values.
//
// A Status is either ok or a code with a message; a Result<T> is a T or such a Status. The codes
// are gRPC's, with its numbers, so that every protocol can pass them on. A message names the value,
// the bound and what to do: its reader has no source at hand.
//
//     if (length <= 0) {
//       return invalid_argument("chunk_length is {}; it must be at least 1", length);
//     }
//
// No exception leaves the library; the Python bindings turn a Status into one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "reverie/base/check.h"
#include "reverie/base/format.h"

namespace reverie {

enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// The name in capitals, as gRPC spells it: "INVALID_ARGUMENT".
std::string_view status_code_name(StatusCode code);

// One pointer wide; the ok status owns nothing. Copies share their text.
class [[nodiscard]] Status {
 public:
  Status() = default;
  // Requires code != kOk.
  Status(StatusCode code, std::string message);

  bool ok() const { return rep_ == nullptr; }
  StatusCode code() const { return rep_ ? rep_->code : StatusCode::kOk; }
  // Empty for the ok status.
  const std::string& message() const;
  // "OK", or "INVALID_ARGUMENT: chunk_length is 0; it must be at least 1".
  std::string to_string() const;

  // The same code with `context` and ": " before the message; ok stays ok.
  Status with_context(std::string_view context) const;

  friend bool operator==(const Status& a, const Status& b) {
    return a.code() == b.code() && a.message() == b.message();
  }

 private:
  struct Rep {
    StatusCode code;
    std::string message;
  };
  std::shared_ptr<const Rep> rep_;
};

// One function for each code: not_found("table '{}' does not exist; the tables are: {}", name,
// list).
#define REVERIE_STATUS_MAKER(maker, status_code)                                      \
  template <typename... Args>                                                         \
  [[gnu::cold]] Status maker(fmt::format_string<Args...> pattern, Args&&... args) {   \
    return Status(status_code, format_text(pattern, fmt::make_format_args(args...))); \
  }
REVERIE_STATUS_MAKER(cancelled, StatusCode::kCancelled)
REVERIE_STATUS_MAKER(invalid_argument, StatusCode::kInvalidArgument)
REVERIE_STATUS_MAKER(deadline_exceeded, StatusCode::kDeadlineExceeded)
REVERIE_STATUS_MAKER(not_found, StatusCode::kNotFound)
REVERIE_STATUS_MAKER(already_exists, StatusCode::kAlreadyExists)
REVERIE_STATUS_MAKER(resource_exhausted, StatusCode::kResourceExhausted)
REVERIE_STATUS_MAKER(failed_precondition, StatusCode::kFailedPrecondition)
REVERIE_STATUS_MAKER(out_of_range, StatusCode::kOutOfRange)
REVERIE_STATUS_MAKER(unimplemented, StatusCode::kUnimplemented)
REVERIE_STATUS_MAKER(internal_error, StatusCode::kInternal)
REVERIE_STATUS_MAKER(unavailable, StatusCode::kUnavailable)
REVERIE_STATUS_MAKER(data_loss, StatusCode::kDataLoss)
#undef REVERIE_STATUS_MAKER

// A T, or the Status that says why there is no T.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  // Requires !status.ok().
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    REVERIE_CHECK(!status_.ok());
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // Require ok().
  T& value() & {
    REVERIE_CHECK(ok());
    return *value_;
  }
  const T& value() const& {
    REVERIE_CHECK(ok());
    return *value_;
  }
  T&& value() && {
    REVERIE_CHECK(ok());
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

// Leaves the function with the error, if there is one.
#define REVERIE_RETURN_IF_ERROR(expression)                                    \
  do {                                                                         \
    if (::reverie::Status reverie_error = (expression); !reverie_error.ok()) { \
      return reverie_error;                                                    \
    }                                                                          \
  } while (false)

#define REVERIE_CONCAT_INNER(a, b) a##b
#define REVERIE_CONCAT(a, b) REVERIE_CONCAT_INNER(a, b)

// REVERIE_ASSIGN_OR_RETURN(auto buffer, allocator.allocate(size));
#define REVERIE_ASSIGN_OR_RETURN(declaration, expression) \
  REVERIE_ASSIGN_OR_RETURN_IMPL(REVERIE_CONCAT(result_, __LINE__), declaration, expression)
#define REVERIE_ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                          \
  if (!result.ok()) return result.status();                            \
  declaration = std::move(result).value()

}  // namespace reverie
