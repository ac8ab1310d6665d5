#include "tokenizer/pipeline.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/byte_spelling.h"

namespace weft::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

size_t CountReplacements(std::string_view text) {
    size_t count = 0;
    for (size_t at = text.find(kReplacement); at != text.npos; at = text.find(kReplacement, at)) {
        ++count;
        at += kReplacement.size();
    }
    return count;
}

// Replaces each `from` by `to` while the result has at most `most` bytes; the rest stays unchanged.
std::string Replaced(std::string_view text, std::string_view from, std::string_view to,
                     size_t most) {
    std::string out;
    size_t done = 0;
    for (size_t at = text.find(from); at != text.npos; at = text.find(from, done)) {
        if (out.size() + to.size() + text.size() - done > most) break;
        out += text.substr(done, at - done);
        out += to;
        done = at + from.size();
    }
    out += text.substr(done);
    return out;
}

// The bytes replaced by U+FFFD in a text, in order; -1 for a genuine U+FFFD.
class BadBytes {
  public:
    // Makes `text` valid UTF-8.
    std::string Take(std::string_view text) {
        std::string valid;
        valid.reserve(text.size() + 16);
        for (size_t at = 0; at < text.size();) {
            const size_t length = CodePointLength(text, at);
            if (length == 0) {
                bytes_.push_back(static_cast<uint8_t>(text[at]));
                valid += kReplacement;
            } else {
                if (text.substr(at, length) == kReplacement) bytes_.push_back(-1);
                valid.append(text, at, length);
            }
            at += std::max<size_t>(length, 1);
        }
        return valid;
    }

    // If a rewritten text has a different number of U+FFFD, no byte can be restored.
    void Check(std::string_view rewritten) {
        if (CountReplacements(rewritten) != bytes_.size()) bytes_.clear();
    }

    // Skips a stretch of the text that is no longer needed.
    void Skip(std::string_view text) {
        if (!bytes_.empty()) next_ += CountReplacements(text);
    }

    // Restores the bytes of the next stretch, whose text has its U+FFFD unchanged and in order.
    void Return(WordList& list) {
        if (bytes_.empty()) return;
        std::string text;
        std::vector<WordList::Word> words = list.words;
        size_t next_begin = 0, next_end = 0;
        const std::string_view from = list.text;
        for (size_t at = 0; at <= from.size();) {
            while (next_begin < words.size() && list.words[next_begin].begin == at) {
                words[next_begin++].begin = text.size();
            }
            while (next_end < words.size() && list.words[next_end].end == at) {
                words[next_end++].end = text.size();
            }
            if (at == from.size()) break;
            if (from.substr(at, kReplacement.size()) != kReplacement) {
                text += from[at++];
                continue;
            }
            const int16_t byte = next_ < bytes_.size() ? bytes_[next_] : int16_t{-1};
            ++next_;
            at += kReplacement.size();
            byte < 0 ? text += kReplacement : text += static_cast<char>(byte);
        }
        list.Rewrite(std::move(text), std::move(words));
    }

  private:
    std::vector<int16_t> bytes_;
    size_t next_ = 0;
};

class Pipeline : public TokenModel {
  public:
    explicit Pipeline(PipelineParts parts) : parts_(std::move(parts)) {
        if (parts_.normalized_tokens.empty()) return;
        tokens_ = std::make_unique<SpecialScanner>(std::move(parts_.normalized_tokens));
    }

    void Encode(std::string_view text, bool first, std::vector<int32_t>& ids) const override {
        BadBytes bad;
        std::string valid, normalized;
        if (!IsUtf8(text)) text = valid = bad.Take(text);
        if (!parts_.normalizer.empty()) {
            text = normalized = parts_.normalizer.Apply(text);
            bad.Check(text);
        }
        if (tokens_ == nullptr) {
            EncodeStretch(text, first, bad, ids);
            return;
        }
        for (size_t at = 0, from = 0; at < text.size();) {
            const SpecialScanner::Found found = tokens_->Next(text, from, at);
            if (found.at > at) {
                EncodeStretch(text.substr(at, found.at - at), first && at == 0, bad, ids);
            }
            if (found.id >= 0) ids.push_back(found.id);
            const size_t end = found.at + found.size;
            if (end > at)
                bad.Skip(text.substr(std::max(at, found.at), end - std::max(at, found.at)));
            at = std::max(at, end);
            from = found.next;
        }
    }

    std::string Bytes(std::string_view text) const override {
        if (parts_.pieces == nullptr) return parts_.model->Bytes(text);
        std::string bytes(text);
        // Limits growth, because a chain of steps could double the text each time.
        constexpr size_t kGrowth = 16, kSpare = 1024;
        const size_t most = kGrowth * text.size() + kSpare;
        for (const auto& [from, to] : parts_.pieces->replace) {
            bytes = Replaced(bytes, from, to, most);
        }
        if (!parts_.pieces->unspell) return bytes;
        std::string plain;
        return AppendUnspelled(bytes, plain) ? plain : bytes;
    }

  private:
    void EncodeStretch(std::string_view text, bool first, BadBytes& bad,
                       std::vector<int32_t>& ids) const {
        WordList list(text, first);
        parts_.words.Split(list);
        bad.Return(list);
        parts_.model->Encode(list, ids);
    }

    PipelineParts parts_;
    std::unique_ptr<const SpecialScanner> tokens_;
};

}  // namespace

std::unique_ptr<const TokenModel> MakePipeline(PipelineParts parts) {
    return std::make_unique<Pipeline>(std::move(parts));
}

}  // namespace weft::tokenizer
