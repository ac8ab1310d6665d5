// A text that remembers where its bytes came from: from the template (and what it is trusted
// with), or from the words of a conversation. What is made of texts by cutting and joining keeps
// the origin of every byte, so that a marker of a turn is only ever believed where the template
// itself wrote it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/text_range.h"

namespace weft::chat {

class Text {
  public:
    Text() = default;
    explicit Text(std::string bytes, bool given = false);

    std::string_view view() const { return bytes_; }
    const std::string& bytes() const { return bytes_; }
    size_t size() const { return bytes_.size(); }
    bool empty() const { return bytes_.empty(); }

    // The bytes that came from the conversation.
    const std::vector<TextRange>& given() const { return given_; }
    bool GivenAt(size_t at) const;

    void Append(const Text& other);
    void Append(std::string_view bytes, bool given);
    // Bytes [begin, end). Precondition: begin <= end <= size().
    Text Cut(size_t begin, size_t end) const;
    // Appends bytes [begin, end) of `other`.
    void AppendCut(const Text& other, size_t begin, size_t end);

  private:
    void AddGiven(size_t begin, size_t end);

    std::string bytes_;
    std::vector<TextRange> given_;
};

}  // namespace weft::chat
