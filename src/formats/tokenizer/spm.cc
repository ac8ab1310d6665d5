// SentencePiece BPE ("SPM"): the text is one word, spaces are U+2581, and of all neighbours that
// join into a token the pair with the best score joins first, the leftmost on a tie. What is left
// without a token becomes byte tokens <0xXX>, or the unknown token where there are none.
//
// As in SentencePiece, control, unknown, unused and byte tokens never come out of ordinary text.
// A heap keeps it at O(n log n); no token is looked up that is longer than the longest one.
#include <algorithm>
#include <array>
#include <queue>

#include "formats/tokenizer/model.h"
#include "formats/utf8.h"

namespace weft::formats {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

std::string MarkSpaces(std::string_view text, bool prefix) {
    std::string marked;
    marked.reserve(text.size() + text.size() / 4 + kSpaceMark.size());
    if (prefix) marked += kSpaceMark;
    for (const char c : text) {
        if (c == ' ') {
            marked += kSpaceMark;
        } else {
            marked += c;
        }
    }
    return marked;
}

class SpmModel : public TokenModel {
  public:
    static Result<std::unique_ptr<const TokenModel>> Make(const Vocabulary& vocabulary) {
        std::unique_ptr<SpmModel> model(new SpmModel(vocabulary));
        WEFT_TRY(model->FindBytes());
        return std::unique_ptr<const TokenModel>(std::move(model));
    }

    void Encode(std::string_view text, std::vector<int32_t>& ids) const override {
        Merge(MarkSpaces(text, vocabulary_.data().add_space_prefix), ids);
    }

    std::string Bytes(std::string_view text) const override {
        std::string bytes;
        for (size_t at = 0; at < text.size();) {
            const bool space = text.compare(at, kSpaceMark.size(), kSpaceMark) == 0;
            bytes += space ? ' ' : text[at];
            at += space ? kSpaceMark.size() : 1;
        }
        return bytes;
    }

  private:
    struct Symbol {
        size_t begin;
        size_t size;  // bytes; 0: joined into the symbol before it
        int32_t prev;
        int32_t next;
    };
    struct Candidate {
        float score;
        int32_t left, right;
        size_t size;                                    // of the joined text
        bool operator<(const Candidate& other) const {  // the heap's top is the best
            return score != other.score ? score < other.score : left > other.left;
        }
    };
    using Heap = std::priority_queue<Candidate>;

    explicit SpmModel(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
        for (int32_t id = 0; id < vocabulary.size(); ++id) {
            longest_ = std::max(longest_, vocabulary.Text(id).size());
        }
    }

    Status FindBytes() {
        byte_ids_.fill(vocabulary_.data().unk);
        size_t found = 0;
        for (int32_t id = 0; id < vocabulary_.size(); ++id) {
            if (vocabulary_.Type(id) != TokenType::kByte) continue;
            const int byte = ByteOfHexToken(vocabulary_.Text(id));
            if (byte < 0) {
                return MakeError(ErrorCode::kCorrupt,
                                 "tokenizer: token {} '{}' is of type byte, but its text is not "
                                 "<0x00> to <0xFF>",
                                 id, vocabulary_.Text(id).substr(0, 80));
            }
            byte_ids_[static_cast<size_t>(byte)] = id;
            ++found;
        }
        if (found == 256 || vocabulary_.data().unk >= 0) return {};
        return MakeError(ErrorCode::kCorrupt,
                         "tokenizer: {} of 256 byte tokens and no unknown token: text that the "
                         "vocabulary lacks could not be encoded",
                         found);
    }

    // The token of `text` that ordinary text may become, or -1.
    int32_t FindPlain(std::string_view text) const {
        if (text.size() > longest_) return -1;
        const int32_t id = vocabulary_.Find(text);
        return id >= 0 && IsPlain(vocabulary_.Type(id)) ? id : -1;
    }

    void Merge(std::string_view text, std::vector<int32_t>& ids) const {
        std::vector<Symbol> symbols;
        symbols.reserve(text.size());
        for (size_t at = 0; at < text.size();) {
            const size_t length = std::max<size_t>(CodePointLength(text, at), 1);
            const auto index = static_cast<int32_t>(symbols.size());
            symbols.push_back({at, length, index - 1, index + 1});
            at += length;
        }
        if (symbols.empty()) return;
        symbols.back().next = -1;

        Heap heap;
        for (int32_t i = 0; symbols[Index(i)].next >= 0; ++i) Offer(text, symbols, i, heap);
        while (!heap.empty()) {
            const Candidate best = heap.top();
            heap.pop();
            Symbol& left = symbols[Index(best.left)];
            Symbol& right = symbols[Index(best.right)];
            if (left.size == 0 || right.size == 0 || left.size + right.size != best.size) continue;
            left.size += right.size;
            right.size = 0;
            left.next = right.next;
            if (left.next >= 0) symbols[Index(left.next)].prev = best.left;
            if (left.prev >= 0) Offer(text, symbols, left.prev, heap);
            Offer(text, symbols, best.left, heap);
        }
        for (int32_t at = 0; at >= 0; at = symbols[Index(at)].next) {
            Append(text.substr(symbols[Index(at)].begin, symbols[Index(at)].size), ids);
        }
    }

    static size_t Index(int32_t at) { return static_cast<size_t>(at); }

    void Offer(std::string_view text, const std::vector<Symbol>& symbols, int32_t left,
               Heap& heap) const {
        const Symbol& first = symbols[Index(left)];
        if (first.next < 0) return;
        const size_t size = first.size + symbols[Index(first.next)].size;
        const int32_t id = FindPlain(text.substr(first.begin, size));
        if (id >= 0) {
            heap.push({vocabulary_.data().scores[Index(id)], left, first.next, size});
        }
    }

    void Append(std::string_view symbol, std::vector<int32_t>& ids) const {
        const int32_t id = FindPlain(symbol);
        if (id >= 0) {
            ids.push_back(id);
            return;
        }
        for (const char c : symbol) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    }

    const Vocabulary& vocabulary_;
    size_t longest_ = 0;                   // bytes of the longest token
    std::array<int32_t, 256> byte_ids_{};  // by byte; the unknown token where there is none
};

}  // namespace

Result<std::unique_ptr<const TokenModel>> MakeSpmModel(const Vocabulary& vocabulary) {
    return SpmModel::Make(vocabulary);
}

}  // namespace weft::formats
