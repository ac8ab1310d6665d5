// Text with the source of each byte: the template (source 0, trusted) or the conversation
// (kOtherWords, or kMessageWords + i for message i). Substrings and joins keep the sources. So a
// marker of a turn counts only if the template wrote it, and the bytes of each message can be found
// in a rendered text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/text_range.h"

namespace weft::chat {

inline constexpr uint32_t kOtherWords = 1;  // from tools and variables
inline constexpr uint32_t kMessageWords = 2;

class Text {
  public:
    Text() = default;
    explicit Text(std::string bytes, uint32_t source = 0);

    std::string_view view() const { return bytes_; }
    const std::string& bytes() const { return bytes_; }
    size_t size() const { return bytes_.size(); }
    // The underlying string. The caller charges its growth to the Meter; see TextBuilder.
    std::string& room() { return bytes_; }
    bool empty() const { return bytes_.empty(); }

    // Byte ranges from the conversation, with their sources; adjacent ranges may touch.
    const std::vector<TextRange>& given() const { return given_; }
    uint32_t SourceAt(size_t at) const;

    void Append(const Text& other);
    void Append(std::string_view bytes, uint32_t source);
    // The bytes [begin, end). Precondition: begin <= end <= size().
    Text Cut(size_t begin, size_t end) const;
    // Appends bytes [begin, end) of `other`.
    void AppendCut(const Text& other, size_t begin, size_t end);

  private:
    void AddGiven(const TextRange& range);

    std::string bytes_;
    std::vector<TextRange> given_;
};

}  // namespace weft::chat
