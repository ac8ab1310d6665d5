#include "tokenizer/stream.h"

#include "base/utf8.h"

namespace weft::tokenizer {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

// `bytes` as UTF-8, with one U+FFFD for each maximal incomplete part of a code point.
std::string Repair(std::string_view bytes) {
    std::string text;
    for (size_t at = 0; at < bytes.size();) {
        const size_t length = CodePointLength(bytes, at);
        if (length > 0) {
            text.append(bytes, at, length);
            at += length;
        } else {
            text += kReplacement;
            at += InvalidLength(bytes, at);
        }
    }
    return text;
}

}  // namespace

std::string StreamDecoder::Push(int32_t id) {
    if (skip_special_ && tokenizer_.IsSpecial(id)) return {};
    pending_ += tokenizer_.Piece(id);
    const size_t complete = pending_.size() - IncompleteTail(pending_);
    std::string text = Repair(std::string_view(pending_).substr(0, complete));
    pending_.erase(0, complete);
    return text;
}

std::string StreamDecoder::Flush() {
    std::string text = Repair(pending_);
    pending_.clear();
    return text;
}

}  // namespace weft::tokenizer
