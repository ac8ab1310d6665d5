// Fields of protocol buffers: a field is its number and wire type, then the value.
// (https://protobuf.dev/programming-guides/encoding)
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace weft::train::protobuf {

static_assert(std::endian::native == std::endian::little);

template <typename T>
void AddRaw(std::string& out, T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out.append(bytes, sizeof value);
}
inline void AddVarint(std::string& out, uint64_t value) {
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
    out += static_cast<char>(value);
}
inline void AddKey(std::string& out, uint32_t field, uint32_t wire_type) {
    AddVarint(out, field << 3 | wire_type);
}
inline void AddInt(std::string& out, uint32_t field, int64_t value) {
    AddKey(out, field, 0);
    AddVarint(out, static_cast<uint64_t>(value));
}
inline void AddDouble(std::string& out, uint32_t field, double value) {
    AddKey(out, field, 1);
    AddRaw(out, value);
}
inline void AddFloat(std::string& out, uint32_t field, float value) {
    AddKey(out, field, 5);
    AddRaw(out, value);
}
// A string, bytes or a message.
inline void AddBytes(std::string& out, uint32_t field, std::string_view bytes) {
    AddKey(out, field, 2);
    AddVarint(out, bytes.size());
    out += bytes;
}

}  // namespace weft::train::protobuf
