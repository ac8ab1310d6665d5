// Byte-level BPE: words of the pre-tokenizer, bytes as first symbols, merges by rank.
//
// In the vocabulary each byte is written as one printable code point (GPT-2's table). Encoding
// does not go through that spelling: merges are pairs of ids, and words are merged with a heap, so
// that a word of n bytes takes O(n log n).
#include <algorithm>
#include <array>
#include <queue>

#include "formats/tokenizer/model.h"
#include "formats/tokenizer/split.h"
#include "formats/utf8.h"

namespace weft::formats {
namespace {

// GPT-2's spelling of a byte as a code point below U+0144: printable Latin-1 stands for itself,
// the others follow from U+0100 in order.
std::array<uint16_t, 256> ByteSpelling() {
    std::array<uint16_t, 256> spelling{};
    uint16_t next = 0x100;
    for (uint16_t byte = 0; byte < 256; ++byte) {
        const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
        spelling[byte] = itself ? byte : next++;
    }
    return spelling;
}

// Merges by pair of ids: open addressing, at most half full.
class MergeTable {
  public:
    struct Merge {
        uint32_t rank;
        int32_t id;  // of the joined token
    };

    explicit MergeTable(size_t count) {
        size_t slots = 16;
        while (slots < 2 * count) slots *= 2;
        slots_.resize(slots);
    }
    // Keeps what was added first.
    void Add(int32_t left, int32_t right, Merge merge) {
        Slot& slot = slots_[Position(Key(left, right))];
        if (slot.key == kEmpty) slot = {Key(left, right), merge};
    }
    const Merge* Find(int32_t left, int32_t right) const {
        if (left < 0 || right < 0) return nullptr;
        const Slot& slot = slots_[Position(Key(left, right))];
        return slot.key == kEmpty ? nullptr : &slot.merge;
    }

  private:
    static constexpr uint64_t kEmpty = ~uint64_t{0};
    struct Slot {
        uint64_t key = kEmpty;
        Merge merge{};
    };

    static uint64_t Key(int32_t left, int32_t right) {
        return (static_cast<uint64_t>(left) << 32) | static_cast<uint32_t>(right);
    }
    // The slot of `key`, or the empty slot where it belongs.
    size_t Position(uint64_t key) const {
        const size_t mask = slots_.size() - 1;
        uint64_t mixed = key * 0x9E3779B97F4A7C15u;
        mixed ^= mixed >> 29;
        size_t at = static_cast<size_t>(mixed * 0xBF58476D1CE4E5B9u >> 32) & mask;
        while (slots_[at].key != kEmpty && slots_[at].key != key) at = (at + 1) & mask;
        return at;
    }

    std::vector<Slot> slots_;
};

// The symbols of one word and the merges that may happen in it. Reused from word to word.
class WordMerger {
  public:
    explicit WordMerger(const MergeTable& merges) : merges_(merges) {}

    void Encode(std::string_view word, const std::array<int32_t, 256>& byte_ids,
                std::vector<int32_t>& ids) {
        symbols_.clear();
        for (size_t i = 0; i < word.size(); ++i) {
            const auto at = static_cast<int32_t>(i);
            symbols_.push_back({byte_ids[static_cast<uint8_t>(word[i])], at - 1, at + 1});
        }
        if (symbols_.empty()) return;
        symbols_.back().next = -1;
        for (int32_t left = 0; symbols_[Index(left)].next >= 0; ++left) Offer(left);
        while (!heap_.empty()) {
            const Candidate best = heap_.top();
            heap_.pop();
            Join(best);
        }
        for (int32_t at = 0; at >= 0; at = symbols_[Index(at)].next) {
            // A byte that the vocabulary has no token for leaves no trace.
            if (symbols_[Index(at)].id >= 0) ids.push_back(symbols_[Index(at)].id);
        }
    }

  private:
    struct Symbol {
        int32_t id;    // -1: a byte without a token
        int32_t prev;  // neighbours, -1 at the ends
        int32_t next;
    };
    struct Candidate {
        uint32_t rank;
        int32_t left;  // position of the left symbol
        int32_t left_id, right_id;
        int32_t joined;
        bool operator<(const Candidate& other) const {  // the heap's top is the best
            return rank != other.rank ? rank > other.rank : left > other.left;
        }
    };

    static size_t Index(int32_t at) { return static_cast<size_t>(at); }

    // Puts the merge of the symbol at `left` with its right neighbour on the heap, if there is one.
    void Offer(int32_t left) {
        const Symbol& first = symbols_[Index(left)];
        if (first.next < 0) return;
        const int32_t right_id = symbols_[Index(first.next)].id;
        const MergeTable::Merge* merge = merges_.Find(first.id, right_id);
        if (merge != nullptr) heap_.push({merge->rank, left, first.id, right_id, merge->id});
    }

    void Join(const Candidate& best) {
        Symbol& left = symbols_[Index(best.left)];
        if (left.id != best.left_id || left.next < 0) return;  // one of the two is gone
        Symbol& right = symbols_[Index(left.next)];
        if (right.id != best.right_id) return;
        left.id = best.joined;
        right.id = kGone;
        left.next = right.next;
        if (left.next >= 0) symbols_[Index(left.next)].prev = best.left;
        if (left.prev >= 0) Offer(left.prev);
        Offer(best.left);
    }

    static constexpr int32_t kGone = -2;
    const MergeTable& merges_;
    std::vector<Symbol> symbols_;
    std::priority_queue<Candidate> heap_;
};

class BytePairModel : public TokenModel {
  public:
    static Result<std::unique_ptr<const TokenModel>> Make(const Vocabulary& vocabulary) {
        WEFT_ASSIGN(PreTokenizer words, PreTokenizer::Make(vocabulary.data().pre));
        std::unique_ptr<BytePairModel> model(new BytePairModel(vocabulary, std::move(words)));
        WEFT_TRY(model->FindBytes());
        WEFT_TRY(model->ReadMerges());
        return std::unique_ptr<const TokenModel>(std::move(model));
    }

    void Encode(std::string_view text, std::vector<int32_t>& ids) const override {
        WordMerger merger(merges_);
        std::string spelled;
        size_t begin = 0;
        for (const size_t end : words_.Split(text)) {
            const std::string_view word = text.substr(begin, end - begin);
            begin = end;
            const int32_t whole = whole_words_ ? FindWord(word, spelled) : -1;
            if (whole >= 0) {
                ids.push_back(whole);
            } else {
                merger.Encode(word, byte_ids_, ids);
            }
        }
    }

    std::string Bytes(std::string_view text) const override {
        std::string bytes;
        for (size_t at = 0; at < text.size();) {
            const size_t length = CodePointLength(text, at);
            const int byte = ByteAt(text, at, length);
            if (byte < 0) return std::string(text);  // not in the spelling: stands for itself
            bytes += static_cast<char>(byte);
            at += length;
        }
        return bytes;
    }

  private:
    BytePairModel(const Vocabulary& vocabulary, PreTokenizer words)
        : vocabulary_(vocabulary),
          words_(std::move(words)),
          merges_(vocabulary.data().merges.size()),
          // Llama 3 takes a word that is a token as it is, whatever the merges say.
          whole_words_(vocabulary.data().pre == "llama-bpe") {
        const auto spelling = ByteSpelling();
        byte_of_.fill(-1);
        for (size_t byte = 0; byte < 256; ++byte) {
            const uint16_t point = spelling[byte];
            byte_of_[point] = static_cast<int16_t>(byte);
            spelling_[byte] = point < 0x80 ? std::string(1, static_cast<char>(point))
                                           : std::string{static_cast<char>(0xC0 | (point >> 6)),
                                                         static_cast<char>(0x80 | (point & 0x3F))};
        }
    }

    Status FindBytes() {
        bool any = false;
        for (size_t byte = 0; byte < 256; ++byte) {
            const int32_t id = vocabulary_.Find(spelling_[byte]);
            byte_ids_[byte] = id >= 0 && IsPlain(vocabulary_.Type(id)) ? id : -1;
            any |= byte_ids_[byte] >= 0;
        }
        if (any) return {};
        return MakeError(ErrorCode::kCorrupt,
                         "tokenizer: tokenizer.ggml.tokens has no byte tokens among {} tokens; "
                         "byte-level BPE needs them. Was the file converted whole?",
                         vocabulary_.size());
    }

    Status ReadMerges() {
        const auto& merges = vocabulary_.data().merges;
        for (size_t rank = 0; rank < merges.size(); ++rank) {
            const std::string_view merge = merges[rank];
            const size_t space = merge.find(' ', 1);  // a token may be a lone space
            const bool split = space != merge.npos && space + 1 < merge.size();
            const std::string_view left = split ? merge.substr(0, space) : merge;
            const std::string_view right = split ? merge.substr(space + 1) : "";
            const int32_t left_id = vocabulary_.Find(left);
            const int32_t right_id = vocabulary_.Find(right);
            const int32_t id = vocabulary_.Find(std::string(left) + std::string(right));
            if (!split || left_id < 0 || right_id < 0 || id < 0) {
                return MakeError(ErrorCode::kCorrupt,
                                 "tokenizer: tokenizer.ggml.merges[{}] is '{}': expected two "
                                 "tokens of the vocabulary that join into a third",
                                 rank, merge.substr(0, 80));
            }
            // A merge into a control or unused token is left out: text never becomes one.
            if (!IsPlain(vocabulary_.Type(id))) continue;
            merges_.Add(left_id, right_id, {static_cast<uint32_t>(rank), id});
        }
        return {};
    }

    int32_t FindWord(std::string_view word, std::string& spelled) const {
        spelled.clear();
        for (const char c : word) spelled += spelling_[static_cast<uint8_t>(c)];
        const int32_t id = vocabulary_.Find(spelled);
        return id >= 0 && IsPlain(vocabulary_.Type(id)) ? id : -1;
    }

    // The byte that the code point of `length` bytes at text[at] spells, or -1.
    int ByteAt(std::string_view text, size_t at, size_t length) const {
        const auto lead = static_cast<uint8_t>(text[at]);
        if (length == 1) return byte_of_[lead];
        if (length != 2) return -1;
        const size_t point = (static_cast<size_t>(lead & 0x1F) << 6) | (text[at + 1] & 0x3F);
        return point < byte_of_.size() ? byte_of_[point] : -1;
    }

    const Vocabulary& vocabulary_;
    PreTokenizer words_;
    MergeTable merges_;
    bool whole_words_;
    std::array<std::string, 256> spelling_;  // of a byte, as UTF-8
    std::array<int16_t, 0x144> byte_of_{};   // by code point, -1: spells no byte
    std::array<int32_t, 256> byte_ids_{};    // the token of a byte, -1: none
};

}  // namespace

Result<std::unique_ptr<const TokenModel>> MakeBytePairModel(const Vocabulary& vocabulary) {
    return BytePairModel::Make(vocabulary);
}

}  // namespace weft::formats
