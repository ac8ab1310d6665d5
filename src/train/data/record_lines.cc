#include "train/data/record_lines.h"

#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/utf8.h"
#include "tensor/half.h"

namespace weft::train {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kPieceBytes = 1 << 20;

bool IsPlain(char c) {
    return static_cast<unsigned char>(c) >= 32 && c != '"' && c != '\\';
}

void AppendQuoted(std::string_view text, std::string& out) {
    out += '"';
    for (size_t at = 0; at < text.size();) {
        size_t end = at;
        while (end < text.size() && IsPlain(text[end])) ++end;
        out.append(text, at, end - at);
        if (end == text.size()) break;
        constexpr std::string_view kSpecial = "\"\\\n\r\t", kLetters = "\"\\nrt";
        const size_t known = kSpecial.find(text[end]);
        if (known == kSpecial.npos) {
            fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<int>(text[end]));
        } else {
            (out += '\\') += kLetters[known];
        }
        at = end + 1;
    }
    out += '"';
}

// A signed integer of any size; empty if its value needs more than 64 bits.
std::optional<int64_t> SignedOf(ColumnBytes bytes, bool big_endian) {
    const size_t size = bytes.size();
    const auto byte = [&](size_t i) {  // from the lowest
        return static_cast<uint8_t>(bytes[big_endian ? size - 1 - i : i]);
    };
    if (size == 0) ColumnFail("a number has no bytes");
    uint64_t raw = 0;
    for (size_t i = 0; i < std::min<size_t>(size, 8); ++i) raw |= uint64_t{byte(i)} << (8 * i);
    const int rest = size < 8 ? static_cast<int>(64 - 8 * size) : 0;
    const int64_t value = static_cast<int64_t>(raw << rest) >> rest;
    for (size_t i = 8; i < size; ++i) {
        if (byte(i) != (value < 0 ? 0xff : 0)) return std::nullopt;
    }
    return value;
}

double FloatOf(ColumnBytes bytes) {
    if (bytes.size() == 2) return double{F16ToF32(NumberAt<uint16_t>(bytes, 0))};
    if (bytes.size() == 4) return double{NumberAt<float>(bytes, 0)};
    return NumberAt<double>(bytes, 0);
}

// INT96: nanoseconds of a day, and the number of the day (Julian).
std::optional<int64_t> NanosOfInt96(ColumnBytes bytes) {
    constexpr int64_t kDayOf1970 = 2'440'588, kNanosOfDay = 86'400'000'000'000;
    const int64_t day = int64_t{NumberAt<int32_t>(bytes, 8)} - kDayOf1970;
    const auto nanos = NumberAt<int64_t>(bytes, 0);
    if (std::abs(day) > 100'000 || nanos < 0 || nanos > kNanosOfDay) return std::nullopt;
    return day * kNanosOfDay + nanos;
}

}  // namespace

void ColumnFail(std::string what, ErrorCode code) {
    throw ColumnFault{code, std::move(what)};
}

std::string RecordLines::KeyOf(std::string_view name) {
    if (name.size() > kMostColumnName) ColumnFail("a column has a long name");
    if (!IsUtf8(name)) ColumnFail("the name of a column is not UTF-8");
    std::string key;
    AppendQuoted(name, key);
    return key + ":";
}

// (A comma follows each value; End and EndRecord replace the last one.)
void RecordLines::Start() {
    if (++values_ > kMostValues) {
        ColumnFail("a record has too many values", ErrorCode::kUnsupported);
    }
    if (lines_.size() - begin_ > kMostLineBytes) {
        ColumnFail(fmt::format("a record has more than {} bytes", kMostLineBytes),
                   ErrorCode::kUnsupported);
    }
    if (key_ != nullptr) lines_ += *key_;
    key_ = nullptr;
}

void RecordLines::Null() {
    if (key_ == nullptr) {
        Start();
        lines_ += "null,";
    }
    key_ = nullptr;
}

void RecordLines::Begin(char bracket) {
    Start();
    lines_ += bracket;
}

void RecordLines::End(char bracket) {
    if (lines_.back() == ',') lines_.pop_back();
    (lines_ += bracket) += ',';
}

void RecordLines::Text(std::string_view text, std::string_view column) {
    if (text.size() > kMostLineBytes) {
        ColumnFail(fmt::format("a string of column '{}' is too long", column),
                   ErrorCode::kUnsupported);
    }
    if (!IsUtf8(text)) {
        ColumnFail(
            fmt::format("the string of column '{}' in row {} is not UTF-8", column, records_ + 1));
    }
    AppendQuoted(text, lines_);
}

// (datasets' Json stores texts such as "3." unchanged, and reads them with a parser that accepts
// more than JSON.)
void RecordLines::Json(std::string_view text, std::string_view column) {
    const auto value = ParseOrderedJsonText(
        text, {.bytes = kMostLineBytes, .depth = kMostColumnDepth, .values = kMostValues});
    if (value.ok() && value->is_null()) return Null();
    Start();
    const std::string json = value.ok() ? value->dump() : "";
    // (A text such as "1.50" would lose its form as a number.)
    if (value.ok() && !(value->is_number() && json != text)) {
        lines_ += json;
    } else {
        Text(text, column);
    }
    lines_ += ',';
}

bool RecordLines::Int(const Scalar& type, std::optional<int64_t> number) {
    if (!number) return false;
    std::string digits = std::to_string(*number);
    const auto scale = static_cast<size_t>(type.scale);
    if (scale > 0) {
        const size_t sign = *number < 0 ? 1 : 0;
        if (digits.size() - sign <= scale) {
            digits.insert(sign, scale + 1 - (digits.size() - sign), '0');
        }
        digits.insert(digits.size() - scale, 1, '.');
    }
    lines_ += digits;
    return true;
}

// As Python's isoformat, in UTC.
bool RecordLines::Time(const Scalar& type, std::optional<int64_t> number) {
    if (!number) return false;
    int64_t unit = 1;
    for (int i = 0; i < type.scale; ++i) unit *= 10;
    int64_t seconds = *number / unit, part = *number % unit;
    if (part < 0) {
        part += unit;
        --seconds;
    }
    constexpr int64_t kDay = 86'400, kMostDays = 10'000'000;
    const bool clock = type.kind == Scalar::kClock;
    int64_t days = type.kind == Scalar::kDate ? *number : seconds / kDay;
    if (type.kind != Scalar::kDate && seconds % kDay < 0) --days;
    if (days > kMostDays || days < -kMostDays || (clock && days != 0)) return false;
    const std::chrono::year_month_day day{std::chrono::sys_days{std::chrono::days{days}}};
    lines_ += '"';
    auto out = std::back_inserter(lines_);
    if (!clock) {
        fmt::format_to(out, "{:04}-{:02}-{:02}", static_cast<int>(day.year()),
                       static_cast<unsigned>(day.month()), static_cast<unsigned>(day.day()));
    }
    if (type.kind != Scalar::kDate) {
        const int64_t of_day = seconds - days * kDay;
        if (!clock) lines_ += 'T';
        fmt::format_to(out, "{:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60);
        if (part > 0) fmt::format_to(out, ".{:0{}}", part, type.scale);
        if (type.utc) lines_ += "+00:00";
    }
    lines_ += '"';
    return true;
}

bool RecordLines::Append(const Scalar& type, ColumnBytes bytes, std::string_view column) {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    switch (type.kind) {
        case Scalar::kNull:
        case Scalar::kJson:
        case Scalar::kUnread: break;
        case Scalar::kBool:
            lines_ += NumberAt<uint8_t>(bytes, 0) != 0 ? "true" : "false";
            return true;
        case Scalar::kInt: {
            if (type.is_signed) return Int(type, SignedOf(bytes, false));
            uint64_t number = 0;
            std::memcpy(&number, bytes.data(), std::min<size_t>(bytes.size(), 8));
            lines_ += std::to_string(number);
            return true;
        }
        case Scalar::kFloat: lines_ += nlohmann::json(FloatOf(bytes)).dump(); return true;
        case Scalar::kBytes:
            if (!IsUtf8(text)) return false;
            [[fallthrough]];
        case Scalar::kText: Text(text, column); return true;
        case Scalar::kDecimal: return Int(type, SignedOf(bytes, type.big_endian));
        case Scalar::kDate:
        case Scalar::kTime:
        case Scalar::kClock: return Time(type, SignedOf(bytes, false));
        case Scalar::kInt96: return Time(type, NanosOfInt96(bytes));
    }
    return false;
}

void RecordLines::Value(const Scalar& type, ColumnBytes bytes, std::string_view column) {
    const bool infinite = type.kind == Scalar::kFloat && !std::isfinite(FloatOf(bytes));
    if (type.kind == Scalar::kNull || infinite) return Null();
    if (type.kind == Scalar::kJson) {
        return Json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, column);
    }
    Start();
    if (!Append(type, bytes, column)) {
        fmt::format_to(std::back_inserter(lines_), "{{\"{}\":true}}", kUnread);
    }
    lines_ += ',';
}

Status RecordLines::EndRecord() {
    lines_.back() = '\n';
    begin_ = lines_.size();
    values_ = 0;
    ++records_;
    return lines_.size() < kPieceBytes ? Status() : Flush();
}

Status RecordLines::Flush() {
    if (!lines_.empty()) WEFT_TRY(take_(lines_));
    lines_.clear();
    begin_ = 0;
    return {};
}

}  // namespace weft::train
