// The metadata of a model: an ordered list of typed key-value pairs, as a GGUF file holds them.
//
// Entries are views into bytes that somebody else owns (the mapped file, a synthetic header) and
// that must outlive the Metadata. Nothing is copied until a getter is asked for it.
//
// Getters. A missing key is kNotFound, a value of another type or out of range kCorrupt; both
// messages name the file and the key. The ...Or forms give `fallback` for a missing key only: a
// key that is there with the wrong type is still an error.
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

// The numbers are those of the file format.
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

// As GGUF tools print it: "u32", "string".
std::string_view MetaTypeName(MetaType type);
// Bytes of one value of a fixed-size type; 0 for strings and arrays.
size_t MetaTypeBytes(MetaType type);

struct MetaEntry {
    std::string_view key;
    MetaType type;
    MetaType element_type;             // of an array (kArray: an array of arrays); else == type
    uint64_t count;                    // elements of an array; else 1
    std::span<const std::byte> bytes;  // little-endian values, without the array's own head;
                                       // each string is its u64 length and then its bytes
    std::string TypeName() const;      // "u32", "string[49152]"
};

class Metadata {
  public:
    // `where` names the file in errors. Keys are unique: the parser has checked it.
    Metadata(std::string where, std::vector<MetaEntry> entries);

    const std::vector<MetaEntry>& entries() const { return entries_; }
    const MetaEntry* Find(std::string_view key) const;
    bool Has(std::string_view key) const { return Find(key) != nullptr; }

    // Any integer type whose value fits (a negative one does not).
    Result<uint64_t> U64(std::string_view key) const;
    // Any integer type; the value must lie in [least, most], so that sizes computed from it
    // cannot surprise anybody later.
    Result<int64_t> Int(std::string_view key, int64_t least, int64_t most) const;
    // Any number, integers too.
    Result<double> F64(std::string_view key) const;
    Result<bool> Bool(std::string_view key) const;
    Result<std::string> String(std::string_view key) const;

    Result<uint64_t> U64Or(std::string_view key, uint64_t fallback) const;
    Result<int64_t> IntOr(std::string_view key, int64_t least, int64_t most,
                          int64_t fallback) const;
    Result<double> F64Or(std::string_view key, double fallback) const;
    Result<bool> BoolOr(std::string_view key, bool fallback) const;
    Result<std::string> StringOr(std::string_view key, std::string fallback) const;

    // Arrays. The strings are views into the file. Ints takes any integer (or bool) elements,
    // Floats any number.
    Result<std::vector<std::string_view>> Strings(std::string_view key) const;
    Result<std::vector<int64_t>> Ints(std::string_view key) const;
    Result<std::vector<float>> Floats(std::string_view key) const;

    // The value as one line of text for `inspect`: long strings and arrays are cut with "...".
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
