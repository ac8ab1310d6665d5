// The metadata of a model: an ordered list of typed key-value pairs, as a GGUF file holds them.
//
// Entries are views into bytes owned elsewhere (the mapped file, a synthetic header), which must
// outlive the Metadata. Values are copied only by getters.
//
// Getters return kNotFound for a missing key, and kCorrupt for a value of another type or out of
// range. Both messages name the file and the key. The ...Or forms return `fallback` only for a
// missing key: a present key with the wrong type is still an error.
// Thread: immutable once built; any number of readers.
// Source: the GGUF specification (ggml/docs/gguf.md), metadata value types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace weft::model_files {

// GGUF's value types, with the numbers of the file format.
enum class MetaType : uint32_t {
    kU8,
    kI8,
    kU16,
    kI16,
    kU32,
    kI32,
    kF32,
    kBool,
    kString,
    kArray,
    kU64,
    kI64,
    kF64
};
inline constexpr uint32_t kMetaTypeCount = 13;

// The type's name as GGUF tools print it: "u32", "string".
std::string_view MetaTypeName(MetaType type);
// Bytes of one value of a fixed-size type; 0 for strings and arrays.
size_t MetaTypeBytes(MetaType type);

struct MetaEntry {
    std::string_view key;
    MetaType type;
    MetaType element_type;  // of an array's elements (kArray: an array of arrays); else == type
    uint64_t count;         // elements of an array; else 1
    std::span<const std::byte> bytes;  // little-endian values, without the array's header; each
                                       // string is its u64 length and then its bytes
    std::string TypeName() const;      // "u32", "string[49152]"
};

class Metadata {
  public:
    // `where` names the file in errors. Keys must be unique (the parser checks it).
    Metadata(std::string where, std::vector<MetaEntry> entries);

    const std::vector<MetaEntry>& entries() const { return entries_; }
    const MetaEntry* Find(std::string_view key) const;
    bool Has(std::string_view key) const { return Find(key) != nullptr; }

    // Any integer type; the value must fit and not be negative.
    Result<uint64_t> U64(std::string_view key) const;
    // Any integer type; the value must be in [least, most], so that sizes computed from it can't
    // overflow.
    Result<int64_t> Int(std::string_view key, int64_t least, int64_t most) const;
    // Any number, including integers.
    Result<double> F64(std::string_view key) const;
    Result<bool> Bool(std::string_view key) const;
    Result<std::string> String(std::string_view key) const;

    Result<uint64_t> U64Or(std::string_view key, uint64_t fallback) const;
    Result<int64_t> IntOr(std::string_view key, int64_t least, int64_t most,
                          int64_t fallback) const;
    Result<double> F64Or(std::string_view key, double fallback) const;
    Result<bool> BoolOr(std::string_view key, bool fallback) const;
    Result<std::string> StringOr(std::string_view key, std::string fallback) const;

    // Arrays. The strings are views into the file. Ints accepts integer and bool elements, Floats
    // any numbers.
    Result<std::vector<std::string_view>> Strings(std::string_view key) const;
    Result<std::vector<int64_t>> Ints(std::string_view key) const;
    Result<std::vector<float>> Floats(std::string_view key) const;

    // The value as one line of text for `inspect`; long strings and arrays end in "...".
    static std::string Text(const MetaEntry& entry);

  private:
    Result<const MetaEntry*> Need(std::string_view key) const;
    Result<const MetaEntry*> NeedArray(std::string_view key) const;
    Error WrongType(const MetaEntry& entry, std::string_view expected) const;

    std::string where_;
    std::vector<MetaEntry> entries_;
    std::unordered_map<std::string_view, size_t> index_;
};

}  // namespace weft::model_files
