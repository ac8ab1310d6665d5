// Writes the records of Parquet files as JSON lines.
//
// Members that are null are omitted, because the package datasets sets each member that only other
// records have to null. A value that JSON lacks (bytes that are not UTF-8, a decimal of more than
// 18 digits) becomes {"unread": true}, so that only a record that needs it is an error.
//
// The files are hostile: a record has at most kMostValues values and kMostLineBytes bytes, and each
// string is checked to be UTF-8. Errors are thrown as ColumnFault; ReadParquet catches them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft::train {

// A fault of the file. Its reader adds the name of the file.
struct ColumnFault {
    ErrorCode code = ErrorCode::kCorrupt;
    std::string what;
};
[[noreturn]] void ColumnFail(std::string what, ErrorCode code = ErrorCode::kCorrupt);

using ColumnBytes = std::span<const std::byte>;
// The little-endian number at bytes[at].
template <typename T>
T NumberAt(ColumnBytes bytes, uint64_t at) {
    if (at > bytes.size() || bytes.size() - at < sizeof(T)) ColumnFail("it ends within a value");
    T value;
    __builtin_memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

inline constexpr int kMostColumnDepth = 32;
inline constexpr size_t kMostColumns = 4096, kMostColumnName = 4096;
inline constexpr uint64_t kMostColumnBytes = uint64_t{1} << 30;  // in memory at once
inline constexpr uint64_t kMostValues = 1 << 22, kMostLineBytes = 256 << 20;

inline constexpr int kMostDecimalScale = 38;
inline constexpr const char* kUnread = "unread";

// The type of a column without parts.
struct Scalar {
    // kBytes: a text if it is UTF-8. kClock: a time of day. kUnread: values that are not read.
    enum Kind {
        kNull,
        kBool,
        kInt,
        kFloat,
        kText,
        kBytes,
        kJson,
        kDecimal,
        kDate,
        kTime,
        kClock,
        kInt96,
        kUnread
    };
    Kind kind = kNull;
    bool is_signed = true;    // kInt
    bool big_endian = false;  // kDecimal
    bool utc = false;         // kTime
    // kDecimal: digits after the point. kTime, kClock: a second has 10^scale units, at most 9.
    int scale = 0;
};

class RecordLines {
  public:
    using Take = std::function<Status(std::string_view lines)>;
    explicit RecordLines(const Take& take) : take_(take) {}

    // The quoted name of a member, with a colon.
    static std::string KeyOf(std::string_view name);
    // The next value is the member `key`, which must live until then.
    void Key(const std::string& key) { key_ = &key; }
    void Null();
    // bytes: the value: a number of 1 to 8 bytes (kBool: 1), a text (kJson: of a JSON value, which
    // becomes a part of the record), a decimal of any size. column: its name, for errors.
    void Value(const Scalar& type, ColumnBytes bytes, std::string_view column);
    void Begin(char bracket);  // '{' or '['
    void End(char bracket);
    // Ends a record; passes whole lines on.
    Status EndRecord();
    // Passes on the last lines.
    Status Flush();

  private:
    void Start();
    // False: JSON lacks the value.
    bool Append(const Scalar& type, ColumnBytes bytes, std::string_view column);
    void Text(std::string_view text, std::string_view column);
    void Json(std::string_view text, std::string_view column);
    bool Int(const Scalar& type, std::optional<int64_t> number);
    bool Time(const Scalar& type, std::optional<int64_t> number);

    const Take& take_;
    std::string lines_;
    size_t begin_ = 0;  // of the record
    uint64_t values_ = 0, records_ = 0;
    const std::string* key_ = nullptr;
};

}  // namespace weft::train
