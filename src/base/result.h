// Result<T>: a value or an Error. The only way a fallible function of Weft reports failure.
//
// An Error has a code (which decides the exit status) and one message that states who, what,
// expected, actual and the next step. No exceptions cross a module's border.
//
//     Result<File> OpenModel(const std::string& path);
//     WEFT_ASSIGN(File file, OpenModel(path));   // returns the error to our caller
//     WEFT_TRY(file.Check());
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace weft {

enum class ErrorCode {
    kUsage,        // the user's command is wrong: exit 2
    kNotFound,     // a file, device or name does not exist
    kCorrupt,      // input breaks its format's rules
    kUnsupported,  // well-formed, but not supported by Weft
    kIo,           // the operating system reported an error
    kOutOfMemory,  // does not fit, or an allocation failed
    kTimeout,      // a deadline passed
    kPeerLost,     // another rank was lost: exit 3
    kDenied,       // wrong key, wrong version, wrong model on a peer
    kCancelled,    // the user requested a stop
};

struct Error {
    ErrorCode code;
    std::string message;
};

template <typename... Args>
Error MakeError(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
    return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

// The exit status of a process that ends with `code`: 1 failure, 2 bad usage, 3 a peer was lost,
// 130 stopped by the user (as shells report Ctrl-C).
inline int ExitStatus(ErrorCode code) {
    if (code == ErrorCode::kUsage) return 2;
    if (code == ErrorCode::kCancelled) return 130;
    return code == ErrorCode::kPeerLost ? 3 : 1;
}

template <typename T = void>
class [[nodiscard]] Result {
  public:
    Result(T value) : value_(std::move(value)) {}      // NOLINT: implicit on purpose
    Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit on purpose

    bool ok() const { return value_.has_value(); }
    explicit operator bool() const { return ok(); }
    T& value() & { return WEFT_CHECK(ok()), *value_; }
    const T& value() const& { return WEFT_CHECK(ok()), *value_; }
    T&& value() && { return WEFT_CHECK(ok()), *std::move(value_); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(*this).value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }
    const Error& error() const { return WEFT_CHECK(!ok()), error_; }

  private:
    std::optional<T> value_;
    Error error_{};
};

template <>
class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit on purpose

    bool ok() const { return !error_.has_value(); }
    explicit operator bool() const { return ok(); }
    const Error& error() const { return WEFT_CHECK(!ok()), *error_; }

  private:
    std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace weft

#define WEFT_CONCAT_(a, b) a##b
#define WEFT_CONCAT(a, b) WEFT_CONCAT_(a, b)

// If `expression` is an error, returns this error from the current function.
#define WEFT_TRY(expression)                                                          \
    do {                                                                              \
        if (auto weft_try_ = (expression); !weft_try_.ok()) return weft_try_.error(); \
    } while (0)

// Declares or assigns `target` from a Result<T>. If the Result is an error, returns this error from
// the current function.
#define WEFT_ASSIGN(target, expression) \
    WEFT_ASSIGN_(WEFT_CONCAT(weft_result_, __LINE__), target, expression)
#define WEFT_ASSIGN_(temporary, target, expression) \
    auto temporary = (expression);                  \
    if (!temporary.ok()) return temporary.error();  \
    target = std::move(temporary).value()
