// SentencePiece BPE ("SPM"): the text is one word, spaces are U+2581. Of all adjacent pairs that
// join into a token, the pair with the highest score merges first, the leftmost on a tie. Remaining
// text without a token becomes byte tokens <0xXX>, or the unknown token if there are none.
//
// As in SentencePiece, ordinary text never becomes control, unknown, unused or byte tokens. A heap
// gives O(n log n); texts longer than the longest token are not looked up.
#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>

#include "base/utf8.h"
#include "tokenizer/model.h"
#include "tokenizer/special.h"

namespace weft::tokenizer {
namespace {

std::string MarkSpmSpaces(std::string_view text, bool prefix) {
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

// Merges one word. Stateless between words.
class SpmMerger {
  public:
    explicit SpmMerger(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
        for (int32_t id = 0; id < vocabulary.size(); ++id) {
            longest_ = std::max(longest_, vocabulary.Text(id).size());
        }
    }

    // Calls `append` for each remaining symbol from left to right, with its token (or -1) and text.
    template <typename Append>
    void Merge(std::string_view text, Append append) const {
        std::vector<Symbol> symbols = Symbols(text);
        if (symbols.empty()) return;
        Splits splits;
        Heap heap;
        for (int32_t i = 0; symbols[Index(i)].next >= 0; ++i) {
            Offer(text, symbols, i, heap, splits);
        }
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
            if (left.prev >= 0) Offer(text, symbols, left.prev, heap, splits);
            Offer(text, symbols, best.left, heap, splits);
        }
        for (int32_t at = 0; at >= 0; at = symbols[Index(at)].next) {
            Leave(text.substr(symbols[Index(at)].begin, symbols[Index(at)].size), splits, append);
        }
    }

  private:
    struct Symbol {
        size_t begin;
        size_t size;  // bytes; 0: merged into the symbol before it
        int32_t prev;
        int32_t next;
    };
    struct Candidate {
        float score;
        int32_t left, right;
        size_t size;                                    // of the joined text
        bool operator<(const Candidate& other) const {  // the best candidate is at the heap's top
            return score != other.score ? score < other.score : left > other.left;
        }
    };
    using Heap = std::priority_queue<Candidate>;
    // Unused tokens reached by merges, with the size of their left part. A symbol that is one of
    // them at the end is split again.
    using Splits = std::unordered_map<std::string_view, size_t>;

    static size_t Index(int32_t at) { return static_cast<size_t>(at); }

    static std::vector<Symbol> Symbols(std::string_view text) {
        std::vector<Symbol> symbols;
        symbols.reserve(text.size());
        for (size_t at = 0; at < text.size();) {
            const size_t length = std::max<size_t>(CodePointLength(text, at), 1);
            const auto index = static_cast<int32_t>(symbols.size());
            symbols.push_back({at, length, index - 1, index + 1});
            at += length;
        }
        if (!symbols.empty()) symbols.back().next = -1;
        return symbols;
    }

    // The token of `text` that ordinary text may become, or an unused token, or -1.
    int32_t FindMergeable(std::string_view text) const {
        if (text.size() > longest_) return -1;
        const int32_t id = vocabulary_.Find(text);
        const TokenType type = vocabulary_.Type(id);
        return IsPlain(type) || (id >= 0 && type == TokenType::kUnused) ? id : -1;
    }

    void Offer(std::string_view text, const std::vector<Symbol>& symbols, int32_t left, Heap& heap,
               Splits& splits) const {
        const Symbol& first = symbols[Index(left)];
        if (first.next < 0) return;
        const size_t size = first.size + symbols[Index(first.next)].size;
        const std::string_view joined = text.substr(first.begin, size);
        const int32_t id = FindMergeable(joined);
        if (id < 0) return;
        heap.push({vocabulary_.data().scores[Index(id)], left, first.next, size});
        if (vocabulary_.Type(id) == TokenType::kUnused) splits.insert_or_assign(joined, first.size);
    }

    template <typename Append>
    void Leave(std::string_view symbol, const Splits& splits, Append& append) const {
        std::vector<std::string_view> open = {symbol};
        while (!open.empty()) {
            const std::string_view part = open.back();
            open.pop_back();
            const int32_t id = vocabulary_.FindPlain(part);
            const auto split = id >= 0 ? splits.end() : splits.find(part);
            if (split == splits.end()) {
                append(id, part);
            } else {
                open.push_back(part.substr(split->second));
                open.push_back(part.substr(0, split->second));
            }
        }
    }

    const Vocabulary& vocabulary_;
    size_t longest_ = 0;  // bytes of the longest token
};

class SpmModel : public TokenModel {
  public:
    explicit SpmModel(const Vocabulary& vocabulary)
        : vocabulary_(vocabulary), merger_(vocabulary) {}

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
                         "tokenizer: only {} of 256 byte tokens and no unknown token; text outside "
                         "the vocabulary could not be encoded",
                         found);
    }

    void Encode(std::string_view text, bool, std::vector<int32_t>& ids) const override {
        const std::string marked = MarkSpmSpaces(text, vocabulary_.data().add_space_prefix);
        merger_.Merge(marked, [&](int32_t id, std::string_view symbol) {
            if (id >= 0) {
                ids.push_back(id);
            } else {
                for (const char c : symbol) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
            }
        });
    }

    std::string Bytes(std::string_view text) const override { return UnmarkSpaces(text); }

  private:
    const Vocabulary& vocabulary_;
    SpmMerger merger_;
    std::array<int32_t, 256> byte_ids_{};  // by byte; the unknown token for a byte without a token
};

class SpmWordModel : public WordModel {
  public:
    SpmWordModel(const Vocabulary& vocabulary, bool byte_fallback)
        : vocabulary_(vocabulary),
          merger_(vocabulary),
          byte_fallback_(byte_fallback),
          byte_ids_(FindByteTokens(vocabulary)),
          user_defined_(UserDefined(vocabulary)) {}

    void Encode(const WordList& list, std::vector<int32_t>& ids) const override {
        bool after_unknown = false;
        const auto append = [&](int32_t id, std::string_view symbol) {
            Append(id, symbol, after_unknown, ids);
        };
        for (const WordList::Word word : list.words) {
            const std::string_view text = list.Text(word);
            for (size_t at = 0; at < text.size();) {
                const SpecialScanner::Found found = user_defined_.Next(text, at);
                merger_.Merge(text.substr(at, found.at - at), append);
                if (found.id >= 0) append(found.id, {});
                at = found.at + found.size;
            }
        }
    }

    std::string Bytes(std::string_view text) const override { return UnmarkSpaces(text); }

  private:
    static std::vector<SpecialScanner::Entry> UserDefined(const Vocabulary& vocabulary) {
        std::vector<SpecialScanner::Entry> entries;
        for (int32_t id = 0; id < vocabulary.size(); ++id) {
            if (vocabulary.Type(id) != TokenType::kUserDefined) continue;
            if (!vocabulary.Text(id).empty()) entries.push_back({vocabulary.Text(id), id});
        }
        return entries;
    }

    // A symbol without a token becomes its bytes; without byte tokens, consecutive ones become one
    // unknown token.
    void Append(int32_t id, std::string_view symbol, bool& after_unknown,
                std::vector<int32_t>& ids) const {
        const auto token = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
        const bool unknown = id < 0;
        if (!unknown) {
            ids.push_back(id);
        } else if (byte_fallback_ && std::all_of(symbol.begin(), symbol.end(),
                                                 [&](char c) { return token(c) >= 0; })) {
            for (const char c : symbol) ids.push_back(token(c));
        } else if (!after_unknown) {
            ids.push_back(vocabulary_.data().unk);
        }
        after_unknown = unknown;
    }

    const Vocabulary& vocabulary_;
    SpmMerger merger_;
    bool byte_fallback_;
    std::vector<int32_t> byte_ids_;
    SpecialScanner user_defined_;
};

}  // namespace

Result<std::unique_ptr<const TokenModel>> MakeSpmModel(const Vocabulary& vocabulary) {
    auto model = std::make_unique<SpmModel>(vocabulary);
    WEFT_TRY(model->FindBytes());
    return std::unique_ptr<const TokenModel>(std::move(model));
}

Result<std::unique_ptr<const WordModel>> MakeSpmWordModel(const Vocabulary& vocabulary,
                                                          bool byte_fallback) {
    if (vocabulary.data().unk < 0) {
        return MakeError(ErrorCode::kCorrupt,
                         "tokenizer: the SentencePiece model of {} tokens has no unknown token",
                         vocabulary.size());
    }
    return std::unique_ptr<const WordModel>(
        std::make_unique<SpmWordModel>(vocabulary, byte_fallback));
}

}  // namespace weft::tokenizer
