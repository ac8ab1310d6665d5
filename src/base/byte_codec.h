// A message as bytes. One list of fields writes, reads and checks it.
//
//     void List(auto& fields, auto& hello) {
//         fields(hello.protocol, hello.key, hello.asks);
//         fields.Text(hello.name, kMostName);
//         fields.Check(hello.protocol > 0, "has an impossible protocol");
//     }
//
// Numbers are little-endian. A bool is a byte, 0 or 1; an enum has its underlying type. A string or
// a list is a number of type Length, and its bytes or items. Bytes are hostile: a reader checks
// each length against the remaining bytes before it allocates.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft {

// A value whose bytes in memory are its bytes in messages.
template <typename T>
concept PlainBytes = std::endian::native == std::endian::little &&
                     (std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>);

// Reads values from the front of bytes. After the first value that does not fit, all values are
// zero or empty, so that a decoder need check only the end.
class ByteReader {
  public:
    explicit ByteReader(std::span<const std::byte> bytes) : left_(bytes) {}
    explicit ByteReader(std::string_view text) : left_(std::as_bytes(std::span(text))) {}

    bool ok() const { return wrong_ == nullptr; }
    bool done() const { return ok() && left_.empty(); }
    // The first error, for a message whose subject are the bytes: "is cut short". Null: none.
    const char* wrong() const { return wrong_; }
    size_t left() const { return left_.size(); }
    std::string_view rest() const {
        return {reinterpret_cast<const char*>(left_.data()), left_.size()};
    }
    void Fail(const char* wrong) {
        if (wrong_ == nullptr) wrong_ = wrong;
    }
    std::span<const std::byte> Raw(uint64_t count) {
        if (count > left_.size()) Fail("is cut short");
        if (!ok()) return {};
        const auto raw = left_.first(count);
        left_ = left_.subspan(count);
        return raw;
    }
    std::string_view RawText(uint64_t count) {
        const auto raw = Raw(count);
        return {reinterpret_cast<const char*>(raw.data()), raw.size()};
    }
    template <PlainBytes T>
    T Take() {
        T value{};
        const auto raw = Raw(sizeof value);
        if (!raw.empty()) std::memcpy(&value, raw.data(), sizeof value);
        return value;
    }
    template <PlainBytes T>
    std::vector<T> TakeList(uint64_t count) {
        if (count > left_.size() / sizeof(T)) Fail("is cut short");
        const auto raw = Raw(ok() ? count * sizeof(T) : 0);
        std::vector<T> list(raw.size() / sizeof(T));
        if (!raw.empty()) std::memcpy(list.data(), raw.data(), raw.size());
        return list;
    }

  private:
    std::span<const std::byte> left_;
    const char* wrong_ = nullptr;
};

template <typename Length = uint32_t>
class ByteFieldWriter {
  public:
    static constexpr bool kReads = false;

    template <PlainBytes... Values>
    void operator()(const Values&... values) {
        (Raw(std::as_bytes(std::span(&values, 1))), ...);
    }
    void Raw(std::span<const std::byte> bytes) {
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    }
    template <typename Size = Length>
    void Text(std::string_view text, size_t = 0) {
        (*this)(static_cast<Size>(text.size()));
        Raw(std::as_bytes(std::span(text)));
    }
    // Writes at most `kept` bytes.
    template <typename Size = Length>
    void Cut(std::string_view text, size_t kept, size_t = 0) {
        Text<Size>(text.substr(0, kept));
    }
    template <typename T, typename Each>
    void List(const std::vector<T>& list, size_t, const Each& each) {
        CutList(list, list.size(), each);
    }
    template <PlainBytes T>
    void List(const std::vector<T>& list, size_t) {
        CutList(list, list.size());
    }
    // Writes at most `most` items.
    template <typename T, typename Each>
    void CutList(const std::vector<T>& list, size_t most, const Each& each) {
        const auto items = std::span(list).first(std::min(list.size(), most));
        (*this)(static_cast<Length>(items.size()));
        for (const T& item : items) each(*this, item);
    }
    template <PlainBytes T>
    void CutList(const std::vector<T>& list, size_t most) {
        CutList(list, most, [](auto& fields, auto& item) { fields(item); });
    }
    void Check(bool, const char*) {}

    std::span<const std::byte> bytes() const { return bytes_; }
    std::vector<std::byte> Take() { return std::move(bytes_); }
    std::string TakeText() const {
        return std::string(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
    }

  private:
    std::vector<std::byte> bytes_;
};

template <typename Length = uint32_t>
class ByteFieldReader : public ByteReader {
  public:
    static constexpr bool kReads = true;
    using ByteReader::ByteReader;

    template <PlainBytes... Values>
    void operator()(Values&... values) {
        (Value(values), ...);
    }
    template <typename Size = Length>
    void Text(std::string& text, size_t most) {
        const size_t count = Take<Size>();
        if (count > most) Fail("has a string that is too long");
        text = RawText(count);
    }
    // Reads at most `most` bytes, and keeps the first `kept` of them.
    template <typename Size = Length>
    void Cut(std::string& text, size_t kept, size_t most = 0) {
        Text<Size>(text, std::max(kept, most));
        text.resize(std::min(text.size(), kept));
    }
    // The number of items that follow, of at least `least_bytes` each.
    size_t Count(size_t least_bytes, size_t most) {
        const size_t count = Take<Length>();
        Check(count <= most && count <= left() / least_bytes, "has an impossible count");
        return ok() ? count : 0;
    }
    // each: lists the fields of an item.
    template <typename T, typename Each>
    void List(std::vector<T>& list, size_t most, const Each& each) {
        ByteFieldWriter<Length> least;
        const T blank{};
        each(least, blank);
        list.assign(Count(least.bytes().size(), most), blank);
        for (T& item : list) each(*this, item);
    }
    template <PlainBytes T>
    void List(std::vector<T>& list, size_t most) {
        list = TakeList<T>(Count(sizeof(T), most));
    }
    void CutList(auto& list, size_t most, const auto&... each) { List(list, most, each...); }
    void Check(bool holds, const char* wrong) {
        if (!holds) Fail(wrong);
    }

  private:
    template <typename T>
    void Value(T& value) {
        if constexpr (std::is_same_v<T, bool>) {
            const auto byte = Take<uint8_t>();
            Check(byte <= 1, "has a flag that is neither on nor off");
            value = byte == 1;
        } else {
            value = Take<T>();
        }
    }
};

}  // namespace weft
