// Unigram: finds the best split of a word with the Viterbi algorithm over a trie of tokens. Time:
// the word's bytes times the length of the longest matching token.
#include <algorithm>
#include <limits>

#include "base/utf8.h"
#include "tokenizer/model.h"

namespace weft::tokenizer {
namespace {

constexpr float kUnknownPenalty = 10;
constexpr size_t kMostBytes = size_t{1} << 26;  // the largest vocabularies have a few million
// Limit per token, which bounds the work per position of a text.
constexpr size_t kMostPieceBytes = 1024;

// Trie of tokens by bytes; children in a hash table with open addressing, at most half full.
class Trie {
  public:
    // `bytes`: total size of the texts to be added.
    explicit Trie(size_t bytes) {
        size_t slots = 16;
        while (slots < 2 * bytes) slots *= 2;
        slots_.resize(slots);
        values_.push_back(-1);
    }

    void Add(std::string_view text, int32_t id) {
        uint32_t node = 0;
        for (const char c : text) {
            Slot& slot = slots_[Position(node, c)];
            if (slot.child == 0) {
                slot = {Key(node, c), static_cast<uint32_t>(values_.size())};
                values_.push_back(-1);
            }
            node = slot.child;
        }
        values_[node] = id;
    }

    // Moves `node` along `c`; false: no token continues with `c`.
    bool Step(uint32_t& node, char c) const {
        const Slot& slot = slots_[Position(node, c)];
        node = slot.child;
        return node != 0;
    }
    int32_t Value(uint32_t node) const { return values_[node]; }

  private:
    struct Slot {
        uint64_t key = 0;
        uint32_t child = 0;  // 0: free slot, since the root is never a child
    };
    static uint64_t Key(uint32_t node, char c) {
        return uint64_t{node} << 8 | static_cast<uint8_t>(c);
    }
    size_t Position(uint32_t node, char c) const {
        const uint64_t key = Key(node, c);
        const size_t mask = slots_.size() - 1;
        uint64_t mixed = key * 0x9E3779B97F4A7C15u;
        mixed ^= mixed >> 29;
        size_t at = static_cast<size_t>(mixed * 0xBF58476D1CE4E5B9u >> 32) & mask;
        while (slots_[at].child != 0 && slots_[at].key != key) at = (at + 1) & mask;
        return at;
    }

    std::vector<Slot> slots_;
    std::vector<int32_t> values_;  // token that ends at a node, or -1
};

class UnigramModel : public WordModel {
  public:
    UnigramModel(const Vocabulary& vocabulary, const std::vector<double>& scores,
                 UnigramOptions options, size_t bytes)
        : vocabulary_(vocabulary),
          scores_(scores),
          options_(options),
          trie_(bytes),
          byte_ids_(FindByteTokens(vocabulary)) {
        for (int32_t id = 0; id < vocabulary.size(); ++id) {
            if (vocabulary.Type(id) == TokenType::kNormal) {
                best_score_ = std::max(best_score_, Score(id));
            }
            if (vocabulary.FindPlain(vocabulary.Text(id)) == id) {
                trie_.Add(vocabulary.Text(id), id);
            }
        }
    }

    void Encode(const WordList& list, std::vector<int32_t>& ids) const override {
        std::vector<Node> nodes;
        bool after_unknown = false;
        for (const WordList::Word word : list.words) {
            const std::string_view text = list.Text(word);
            FindBest(text, nodes);
            // SentencePiece joins unknown stretches across words too.
            if (!options_.sentencepiece) after_unknown = false;
            Append(text, nodes, after_unknown, ids);
        }
    }

    std::string Bytes(std::string_view text) const override { return UnmarkSpaces(text); }

  private:
    // Best path to a position: its last token.
    struct Node {
        double score = 0;
        size_t begin = kNone;  // start of the token
        int32_t id = -1;
    };
    static constexpr size_t kNone = ~size_t{0};

    double Score(int32_t id) const { return scores_[static_cast<size_t>(id)]; }

    void Offer(std::vector<Node>& nodes, size_t begin, size_t end, int32_t id, double score) const {
        double sum = score + nodes[begin].score;
        // SentencePiece computes sums in float.
        if (options_.sentencepiece) sum = static_cast<double>(static_cast<float>(sum));
        Node& node = nodes[end];
        if (node.begin == kNone || sum > node.score) node = {sum, begin, id};
    }

    void FindBest(std::string_view text, std::vector<Node>& nodes) const {
        nodes.assign(text.size() + 1, Node{});
        for (size_t begin = 0; begin < text.size();) {
            const size_t point = std::max<size_t>(CodePointLength(text, begin), 1);
            bool single = false;  // a token of exactly this code point
            uint32_t node = 0;
            for (size_t end = begin; end < text.size() && trie_.Step(node, text[end]);) {
                ++end;
                const int32_t id = trie_.Value(node);
                if (id < 0) continue;
                const auto length = static_cast<double>(end - begin);
                const bool user =
                    options_.sentencepiece && vocabulary_.Type(id) == TokenType::kUserDefined;
                const double user_score = static_cast<double>(static_cast<float>(length) *
                                                              static_cast<float>(best_score_)) -
                                          0.1;
                Offer(nodes, begin, end, id, user ? user_score : Score(id));
                single |= end - begin == point;
            }
            if (!single) {
                Offer(nodes, begin, begin + point, options_.unknown, options_.unknown_score);
            }
            begin += point;
        }
    }

    void Append(std::string_view text, const std::vector<Node>& nodes, bool& after_unknown,
                std::vector<int32_t>& ids) const {
        std::vector<WordList::Word> way;
        for (size_t end = text.size(); end > 0; end = nodes[end].begin) {
            way.push_back({nodes[end].begin, end});
        }
        for (size_t i = way.size(); i-- > 0;) {
            const int32_t id = nodes[way[i].end].id;
            if (id != options_.unknown) {
                ids.push_back(id);
                after_unknown = false;
                continue;
            }
            const size_t begin = way[i].begin;
            if (options_.fuse_unknown && !options_.sentencepiece) {
                while (i > 0 && nodes[way[i - 1].end].id == id) --i;
            }
            AppendUnknown(text.substr(begin, way[i].end - begin), after_unknown, ids);
            after_unknown = true;
        }
    }

    void AppendUnknown(std::string_view text, bool after_unknown, std::vector<int32_t>& ids) const {
        const auto token = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
        if (options_.byte_fallback &&
            std::all_of(text.begin(), text.end(), [&](char c) { return token(c) >= 0; })) {
            for (const char c : text) ids.push_back(token(c));
        } else if (!(options_.sentencepiece && after_unknown)) {
            ids.push_back(options_.unknown);
        }
    }

    const Vocabulary& vocabulary_;
    std::vector<double> scores_;
    UnigramOptions options_;
    Trie trie_;
    std::vector<int32_t> byte_ids_;
    double best_score_ = std::numeric_limits<float>::min();  // SentencePiece's initial value
};

}  // namespace

Result<std::unique_ptr<const WordModel>> MakeUnigramModel(const Vocabulary& vocabulary,
                                                          const std::vector<double>& scores,
                                                          UnigramOptions options) {
    if (!vocabulary.Has(options.unknown)) {
        return MakeError(
            ErrorCode::kCorrupt,
            "tokenizer: the unknown token of a Unigram model is {}; the vocabulary has {} tokens",
            options.unknown, vocabulary.size());
    }
    WEFT_CHECK(scores.size() == vocabulary.data().tokens.size());
    size_t bytes = 1;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
        const size_t length = vocabulary.Text(id).size();
        bytes += length;
        if (!IsPlain(vocabulary.Type(id)) || length <= kMostPieceBytes) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "tokenizer: token {} of a Unigram model has {} bytes; expected at most {}",
                         id, length, kMostPieceBytes);
    }
    if (bytes > kMostBytes) {
        return MakeError(ErrorCode::kUnsupported,
                         "tokenizer: the tokens have {} bytes; the limit is {}", bytes, kMostBytes);
    }
    return std::unique_ptr<const WordModel>(
        std::make_unique<UnigramModel>(vocabulary, scores, options, bytes));
}

Result<std::unique_ptr<const WordModel>> MakeSentencePieceUnigram(const Vocabulary& vocabulary,
                                                                  bool byte_fallback) {
    const TokenizerData& data = vocabulary.data();
    float least = std::numeric_limits<float>::max();
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
        if (vocabulary.Type(id) != TokenType::kNormal) continue;
        least = std::min(least, data.scores[static_cast<size_t>(id)]);
    }
    return MakeUnigramModel(vocabulary, {data.scores.begin(), data.scores.end()},
                            {.byte_fallback = byte_fallback,
                             .sentencepiece = true,
                             .unknown = data.unk,
                             .unknown_score = least - kUnknownPenalty});
}

}  // namespace weft::tokenizer
