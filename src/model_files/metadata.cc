#include "model_files/metadata.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "base/printable.h"
#include "base/utf8.h"

namespace weft::model_files {
namespace {

template <typename T>
T Load(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// An integer of any width: its sign and magnitude, since u64 does not fit i64.
struct Integer {
    bool negative;
    uint64_t bits;
    bool FitsI64() const {
        return negative || bits <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    }
};

Integer Signed(int64_t value) {
    return {value < 0, static_cast<uint64_t>(value)};
}

std::optional<Integer> LoadInteger(MetaType type, const std::byte* at) {
    switch (type) {
        case MetaType::kU8: return Integer{false, Load<uint8_t>(at)};
        case MetaType::kU16: return Integer{false, Load<uint16_t>(at)};
        case MetaType::kU32: return Integer{false, Load<uint32_t>(at)};
        case MetaType::kU64: return Integer{false, Load<uint64_t>(at)};
        case MetaType::kI8: return Signed(Load<int8_t>(at));
        case MetaType::kI16: return Signed(Load<int16_t>(at));
        case MetaType::kI32: return Signed(Load<int32_t>(at));
        case MetaType::kI64: return Signed(Load<int64_t>(at));
        case MetaType::kF32:
        case MetaType::kF64:
        case MetaType::kBool:
        case MetaType::kString:
        case MetaType::kArray: return std::nullopt;
    }
    return std::nullopt;
}

std::optional<double> LoadNumber(MetaType type, const std::byte* at) {
    if (type == MetaType::kF32) return Load<float>(at);
    if (type == MetaType::kF64) return Load<double>(at);
    const std::optional<Integer> integer = LoadInteger(type, at);
    if (!integer) return std::nullopt;
    return integer->negative ? static_cast<double>(static_cast<int64_t>(integer->bits))
                             : static_cast<double>(integer->bits);
}

// Removes one string from the front of `bytes`; the parser has checked lengths.
std::string_view TakeString(std::span<const std::byte>& bytes) {
    const uint64_t length = Load<uint64_t>(bytes.data());
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
    bytes = bytes.subspan(8 + length);
    return text;
}

std::string ShortText(std::string_view text) {
    constexpr size_t kMost = 60;
    std::string_view begin = text.substr(0, kMost);
    const bool cut = text.size() > kMost;
    if (cut) begin.remove_suffix(IncompleteTail(begin));
    return fmt::format("\"{}\"{}", Printable(begin), cut ? "..." : "");
}

std::string ScalarText(MetaType type, const std::byte* at) {
    if (type == MetaType::kBool) return Load<uint8_t>(at) != 0 ? "true" : "false";
    if (const std::optional<Integer> integer = LoadInteger(type, at)) {
        return integer->negative ? fmt::format("{}", static_cast<int64_t>(integer->bits))
                                 : fmt::format("{}", integer->bits);
    }
    if (type == MetaType::kF32) return fmt::format("{}", Load<float>(at));
    return fmt::format("{}", Load<double>(at));
}

}  // namespace

std::string_view MetaTypeName(MetaType type) {
    switch (type) {
        case MetaType::kU8: return "u8";
        case MetaType::kI8: return "i8";
        case MetaType::kU16: return "u16";
        case MetaType::kI16: return "i16";
        case MetaType::kU32: return "u32";
        case MetaType::kI32: return "i32";
        case MetaType::kF32: return "f32";
        case MetaType::kBool: return "bool";
        case MetaType::kString: return "string";
        case MetaType::kArray: return "array";
        case MetaType::kU64: return "u64";
        case MetaType::kI64: return "i64";
        case MetaType::kF64: return "f64";
    }
    return "?";
}

size_t MetaTypeBytes(MetaType type) {
    switch (type) {
        case MetaType::kU8:
        case MetaType::kI8:
        case MetaType::kBool: return 1;
        case MetaType::kU16:
        case MetaType::kI16: return 2;
        case MetaType::kU32:
        case MetaType::kI32:
        case MetaType::kF32: return 4;
        case MetaType::kU64:
        case MetaType::kI64:
        case MetaType::kF64: return 8;
        case MetaType::kString:
        case MetaType::kArray: return 0;
    }
    return 0;
}

std::string MetaEntry::TypeName() const {
    if (type != MetaType::kArray) return std::string(MetaTypeName(type));
    return fmt::format("{}[{}]", MetaTypeName(element_type), count);
}

Metadata::Metadata(std::string where, std::vector<MetaEntry> entries)
    : where_(std::move(where)), entries_(std::move(entries)) {
    for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].key, i);
}

const MetaEntry* Metadata::Find(std::string_view key) const {
    const auto found = index_.find(key);
    return found == index_.end() ? nullptr : &entries_[found->second];
}

Result<const MetaEntry*> Metadata::Need(std::string_view key) const {
    const MetaEntry* entry = Find(key);
    if (entry != nullptr) return entry;
    return MakeError(ErrorCode::kNotFound,
                     "{}: metadata key '{}' is missing, and this model needs it", where_, key);
}

Result<const MetaEntry*> Metadata::NeedArray(std::string_view key) const {
    WEFT_ASSIGN(const MetaEntry* entry, Need(key));
    if (entry->type != MetaType::kArray) return WrongType(*entry, "an array");
    return entry;
}

Error Metadata::WrongType(const MetaEntry& entry, std::string_view expected) const {
    const std::string value = entry.type == MetaType::kArray ? "" : " = " + Text(entry);
    return MakeError(ErrorCode::kCorrupt, "{}: metadata key '{}': expected {}, found {}{}", where_,
                     entry.key, expected, entry.TypeName(), value);
}

Result<uint64_t> Metadata::U64(std::string_view key) const {
    WEFT_ASSIGN(const MetaEntry* entry, Need(key));
    const std::optional<Integer> integer = LoadInteger(entry->type, entry->bytes.data());
    if (!integer || integer->negative) return WrongType(*entry, "an integer of 0 or more");
    return integer->bits;
}

Result<int64_t> Metadata::Int(std::string_view key, int64_t least, int64_t most) const {
    WEFT_ASSIGN(const MetaEntry* entry, Need(key));
    const std::optional<Integer> integer = LoadInteger(entry->type, entry->bytes.data());
    const bool fits = integer && integer->FitsI64();
    const int64_t value = fits ? static_cast<int64_t>(integer->bits) : 0;
    if (!fits || value < least || value > most) {
        return WrongType(*entry, fmt::format("an integer from {} to {}", least, most));
    }
    return value;
}

Result<double> Metadata::F64(std::string_view key) const {
    WEFT_ASSIGN(const MetaEntry* entry, Need(key));
    const std::optional<double> number = LoadNumber(entry->type, entry->bytes.data());
    if (!number) return WrongType(*entry, "a number");
    return *number;
}

Result<bool> Metadata::Bool(std::string_view key) const {
    WEFT_ASSIGN(const MetaEntry* entry, Need(key));
    if (entry->type != MetaType::kBool) return WrongType(*entry, "a bool");
    return Load<uint8_t>(entry->bytes.data()) != 0;
}

Result<std::string> Metadata::String(std::string_view key) const {
    WEFT_ASSIGN(const MetaEntry* entry, Need(key));
    if (entry->type != MetaType::kString) return WrongType(*entry, "a string");
    std::span<const std::byte> bytes = entry->bytes;
    return std::string(TakeString(bytes));
}

Result<uint64_t> Metadata::U64Or(std::string_view key, uint64_t fallback) const {
    return Has(key) ? U64(key) : fallback;
}

Result<int64_t> Metadata::IntOr(std::string_view key, int64_t least, int64_t most,
                                int64_t fallback) const {
    return Has(key) ? Int(key, least, most) : fallback;
}

Result<double> Metadata::F64Or(std::string_view key, double fallback) const {
    return Has(key) ? F64(key) : fallback;
}

Result<bool> Metadata::BoolOr(std::string_view key, bool fallback) const {
    return Has(key) ? Bool(key) : fallback;
}

Result<std::string> Metadata::StringOr(std::string_view key, std::string fallback) const {
    return Has(key) ? String(key) : fallback;
}

Result<std::vector<std::string_view>> Metadata::Strings(std::string_view key) const {
    WEFT_ASSIGN(const MetaEntry* entry, NeedArray(key));
    if (entry->element_type != MetaType::kString) return WrongType(*entry, "an array of strings");
    std::vector<std::string_view> strings;
    strings.reserve(entry->count);
    std::span<const std::byte> bytes = entry->bytes;
    for (uint64_t i = 0; i < entry->count; ++i) strings.push_back(TakeString(bytes));
    return strings;
}

Result<std::vector<int64_t>> Metadata::Ints(std::string_view key) const {
    WEFT_ASSIGN(const MetaEntry* entry, NeedArray(key));
    const bool is_bool = entry->element_type == MetaType::kBool;
    const MetaType type = is_bool ? MetaType::kU8 : entry->element_type;
    const size_t step = MetaTypeBytes(type);
    if (step == 0) return WrongType(*entry, "an array of integers");
    std::vector<int64_t> values;
    values.reserve(entry->count);
    for (uint64_t i = 0; i < entry->count; ++i) {
        const std::optional<Integer> integer = LoadInteger(type, entry->bytes.data() + i * step);
        if (!integer || !integer->FitsI64())
            return WrongType(*entry, "an array of 64-bit integers");
        values.push_back(static_cast<int64_t>(integer->bits));
    }
    return values;
}

Result<std::vector<float>> Metadata::Floats(std::string_view key) const {
    WEFT_ASSIGN(const MetaEntry* entry, NeedArray(key));
    const size_t step = MetaTypeBytes(entry->element_type);
    if (step == 0) return WrongType(*entry, "an array of numbers");
    std::vector<float> values;
    values.reserve(entry->count);
    for (uint64_t i = 0; i < entry->count; ++i) {
        const auto number = LoadNumber(entry->element_type, entry->bytes.data() + i * step);
        if (!number) return WrongType(*entry, "an array of numbers");
        values.push_back(static_cast<float>(*number));
    }
    return values;
}

std::string Metadata::Text(const MetaEntry& entry) {
    std::span<const std::byte> bytes = entry.bytes;
    if (entry.type == MetaType::kString) return ShortText(TakeString(bytes));
    if (entry.type != MetaType::kArray) return ScalarText(entry.type, bytes.data());
    if (entry.element_type == MetaType::kArray) return "[arrays]";
    constexpr uint64_t kMostElements = 8;
    std::string text = "[";
    for (uint64_t i = 0; i < std::min(entry.count, kMostElements); ++i) {
        if (i > 0) text += ", ";
        if (entry.element_type == MetaType::kString) {
            text += ShortText(TakeString(bytes));
        } else {
            text += ScalarText(entry.element_type, bytes.data());
            bytes = bytes.subspan(MetaTypeBytes(entry.element_type));
        }
    }
    return text + (entry.count > kMostElements ? ", ...]" : "]");
}

}  // namespace weft::model_files
