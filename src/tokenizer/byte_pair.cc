// BPE: starts from the bytes or code points of a word and merges by rank.
//
// In a byte-level vocabulary each byte is written as one printable code point (byte_spelling.h).
// Encoding works on ids instead of this spelling: merges are pairs of ids. Words are merged with a
// heap, so a word of n bytes takes O(n log n).
#include <algorithm>
#include <array>
#include <queue>

#include "base/utf8.h"
#include "tokenizer/byte_spelling.h"
#include "tokenizer/model.h"

namespace weft::tokenizer {
namespace {

// Longer tokens are skipped when merges are derived from ids, because each token is looked up at
// all its split positions.
constexpr size_t kMostSplitBytes = 2048;

// Hash table of merges by pair of ids: open addressing, at most half full.
class MergeTable {
  public:
    struct Merge {
        uint32_t rank;
        int32_t id;  // id of the joined token
    };

    explicit MergeTable(const std::vector<PairMerge>& merges) {
        size_t slots = 16;
        while (slots < 2 * merges.size()) slots *= 2;
        slots_.resize(slots);
        for (const PairMerge& merge : merges) {
            Add(merge.left, merge.right, {merge.rank, merge.joined});
        }
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

    // The first merge added for a pair wins.
    void Add(int32_t left, int32_t right, Merge merge) {
        Slot& slot = slots_[Position(Key(left, right))];
        if (slot.key == kEmpty) slot = {Key(left, right), merge};
    }
    static uint64_t Key(int32_t left, int32_t right) {
        return (static_cast<uint64_t>(left) << 32) | static_cast<uint32_t>(right);
    }
    // The slot of `key`, or the empty slot for it.
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

// Symbols of one word and its pending merges. Reused from word to word.
class WordMerger {
  public:
    explicit WordMerger(const MergeTable& merges) : merges_(merges) {}

    // Starts a new word; call Add for its symbols, then Finish.
    void Begin() { symbols_.clear(); }
    void Add(int32_t id) {
        const auto at = static_cast<int32_t>(symbols_.size());
        symbols_.push_back({id, at - 1, at + 1});
    }
    // Merges the word and appends its token ids.
    void Finish(std::vector<int32_t>& ids) {
        if (symbols_.empty()) return;
        symbols_.back().next = -1;
        for (int32_t left = 0; symbols_[Index(left)].next >= 0; ++left) Offer(left);
        while (!heap_.empty()) {
            const Candidate best = heap_.top();
            heap_.pop();
            Join(best);
        }
        for (int32_t at = 0; at >= 0; at = symbols_[Index(at)].next) {
            // A symbol without a token is dropped.
            if (symbols_[Index(at)].id >= 0) ids.push_back(symbols_[Index(at)].id);
        }
    }

  private:
    struct Symbol {
        int32_t id;    // -1: no token
        int32_t prev;  // neighbors; -1 at the ends
        int32_t next;
    };
    struct Candidate {
        uint32_t rank;
        int32_t left;  // position of the left symbol
        int32_t left_id, right_id;
        int32_t joined;
        bool operator<(const Candidate& other) const {  // the best candidate is at the heap's top
            return rank != other.rank ? rank > other.rank : left > other.left;
        }
    };

    static size_t Index(int32_t at) { return static_cast<size_t>(at); }

    // Pushes the merge of the symbol at `left` with its right neighbor, if there is one.
    void Offer(int32_t left) {
        const Symbol& first = symbols_[Index(left)];
        if (first.next < 0) return;
        const int32_t right_id = symbols_[Index(first.next)].id;
        const MergeTable::Merge* merge = merges_.Find(first.id, right_id);
        if (merge != nullptr) heap_.push({merge->rank, left, first.id, right_id, merge->id});
    }

    void Join(const Candidate& best) {
        Symbol& left = symbols_[Index(best.left)];
        if (left.id != best.left_id || left.next < 0) return;  // a symbol was already merged
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

class BytePairModel : public WordModel {
  public:
    BytePairModel(const Vocabulary& vocabulary, const std::vector<PairMerge>& merges,
                  bool whole_words)
        : vocabulary_(vocabulary), merges_(merges), whole_words_(whole_words) {}

    Status FindBytes() {
        bool any = false;
        for (size_t byte = 0; byte < 256; ++byte) {
            byte_ids_[byte] = vocabulary_.FindPlain(SpelledByte(static_cast<uint8_t>(byte)));
            any |= byte_ids_[byte] >= 0;
        }
        if (any) return {};
        return MakeError(ErrorCode::kCorrupt,
                         "tokenizer: the vocabulary of {} tokens has no byte tokens, which "
                         "byte-level BPE requires. Was the file converted completely?",
                         vocabulary_.size());
    }

    void Encode(const WordList& list, std::vector<int32_t>& ids) const override {
        WordMerger merger(merges_);
        std::string other;
        for (const WordList::Word word : list.words) {
            std::string_view text = list.Text(word);
            if (whole_words_) {
                other.clear();
                if (!list.spelled) AppendSpelled(text, other);
                const int32_t whole = vocabulary_.FindPlain(list.spelled ? text : other);
                if (whole >= 0) {
                    ids.push_back(whole);
                    continue;
                }
            }
            if (list.spelled) {
                other.clear();
                text = AppendUnspelled(text, other) ? std::string_view(other) : text;
            }
            merger.Begin();
            for (const char c : text) merger.Add(byte_ids_[static_cast<uint8_t>(c)]);
            merger.Finish(ids);
        }
    }

    std::string Bytes(std::string_view text) const override {
        std::string bytes;
        // Text that is not a spelling represents itself.
        return AppendUnspelled(text, bytes) ? bytes : std::string(text);
    }

  private:
    const Vocabulary& vocabulary_;
    MergeTable merges_;
    bool whole_words_;
    std::array<int32_t, 256> byte_ids_{};  // token of each byte; -1: none
};

class CodePointPairModel : public WordModel {
  public:
    CodePointPairModel(const Vocabulary& vocabulary, const std::vector<PairMerge>& merges,
                       CodePointOptions options)
        : vocabulary_(vocabulary),
          merges_(merges),
          options_(options),
          byte_ids_(FindByteTokens(vocabulary)) {}

    void Encode(const WordList& list, std::vector<int32_t>& ids) const override {
        WordMerger merger(merges_);
        for (const WordList::Word word : list.words) {
            const std::string_view text = list.Text(word);
            const int32_t whole = IsWhole(text) ? vocabulary_.FindPlain(text) : -1;
            if (whole >= 0) {
                ids.push_back(whole);
                continue;
            }
            merger.Begin();
            bool unknown = false;
            for (size_t at = 0; at < text.size();) {
                const size_t length = std::max<size_t>(CodePointLength(text, at), 1);
                unknown = Add(text.substr(at, length), unknown, merger);
                at += length;
            }
            merger.Finish(ids);
        }
    }

    std::string Bytes(std::string_view text) const override { return UnmarkSpaces(text); }

  private:
    bool IsWhole(std::string_view word) const {
        return options_.whole_words ||
               (options_.whole_newlines && word.find_first_not_of('\n') == word.npos);
    }

    // Adds one code point or invalid byte; returns whether it became the unknown token.
    bool Add(std::string_view symbol, bool after_unknown, WordMerger& merger) const {
        const int32_t id = vocabulary_.FindPlain(symbol);
        if (id >= 0) {
            merger.Add(id);
            return false;
        }
        const auto token = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
        if (options_.byte_fallback &&
            std::all_of(symbol.begin(), symbol.end(), [&](char c) { return token(c) >= 0; })) {
            for (const char c : symbol) merger.Add(token(c));
            return false;
        }
        if (options_.unknown >= 0 && !(after_unknown && options_.fuse_unknown)) {
            merger.Add(options_.unknown);
        }
        return options_.unknown >= 0;
    }

    const Vocabulary& vocabulary_;
    MergeTable merges_;
    CodePointOptions options_;
    std::vector<int32_t> byte_ids_;
};

}  // namespace

Result<std::vector<PairMerge>> ReadMerges(const Vocabulary& vocabulary) {
    const auto& merges = vocabulary.data().merges;
    std::vector<PairMerge> read;
    read.reserve(merges.size());
    for (size_t rank = 0; rank < merges.size(); ++rank) {
        const std::string_view merge = merges[rank];
        const size_t space = merge.find(' ', 1);  // a token may be a single space
        const bool split = space != merge.npos && space + 1 < merge.size();
        const std::string_view left = split ? merge.substr(0, space) : merge;
        const std::string_view right = split ? merge.substr(space + 1) : "";
        const int32_t left_id = vocabulary.Find(left);
        const int32_t right_id = vocabulary.Find(right);
        const int32_t id = vocabulary.Find(std::string(left) + std::string(right));
        if (!split || left_id < 0 || right_id < 0 || id < 0) {
            return MakeError(ErrorCode::kCorrupt,
                             "tokenizer: tokenizer.ggml.merges[{}] is '{}': expected two tokens of "
                             "the vocabulary that merge into a third",
                             rank, merge.substr(0, 80));
        }
        // Merges into control or unused tokens are skipped, since text never becomes one.
        if (!IsPlain(vocabulary.Type(id))) continue;
        read.push_back({static_cast<uint32_t>(rank), left_id, right_id, id});
    }
    return read;
}

void AppendSplits(const Vocabulary& vocabulary, int32_t id, std::vector<PairMerge>& merges) {
    const std::string_view text = vocabulary.Text(id);
    if (text.empty() || text.size() > kMostSplitBytes) return;
    for (size_t at = CodePointLength(text, 0); at > 0 && at < text.size();) {
        const int32_t left = vocabulary.FindPlain(text.substr(0, at));
        const int32_t right = left < 0 ? -1 : vocabulary.FindPlain(text.substr(at));
        if (right >= 0) merges.push_back({static_cast<uint32_t>(id), left, right, id});
        at += std::max<size_t>(CodePointLength(text, at), 1);
    }
}

Result<std::unique_ptr<const WordModel>> MakeBytePairModel(const Vocabulary& vocabulary,
                                                           const std::vector<PairMerge>& merges,
                                                           bool whole_words) {
    auto model = std::make_unique<BytePairModel>(vocabulary, merges, whole_words);
    WEFT_TRY(model->FindBytes());
    return std::unique_ptr<const WordModel>(std::move(model));
}

std::unique_ptr<const WordModel> MakeCodePointPairModel(const Vocabulary& vocabulary,
                                                        const std::vector<PairMerge>& merges,
                                                        CodePointOptions options) {
    return std::make_unique<CodePointPairModel>(vocabulary, merges, options);
}

}  // namespace weft::tokenizer
