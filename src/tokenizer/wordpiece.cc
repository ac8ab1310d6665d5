#include <algorithm>

#include "tokenizer/model.h"

namespace weft::tokenizer {
namespace {

bool BeginsPoint(char c) {
    return (static_cast<uint8_t>(c) & 0xC0) != 0x80;
}

class WordPieceModel : public WordModel {
  public:
    WordPieceModel(const Vocabulary& vocabulary, WordPieceOptions options)
        : vocabulary_(vocabulary), options_(std::move(options)) {
        for (int32_t id = 0; id < vocabulary.size(); ++id) {
            longest_ = std::max(longest_, vocabulary.Text(id).size());
        }
    }

    void Encode(const WordList& list, std::vector<int32_t>& ids) const override {
        for (const WordList::Word word : list.words) {
            const size_t before = ids.size();
            if (Divide(list.Text(word), ids)) continue;
            ids.resize(before);
            ids.push_back(vocabulary_.data().unk);
        }
    }

    // A token that does not continue a word follows a space, except for punctuation.
    std::string Bytes(std::string_view text) const override {
        const std::string &prefix = options_.prefix, &begin = options_.begin;
        if (!prefix.empty() && text.starts_with(prefix)) {
            return std::string(text.substr(prefix.size()));
        }
        if (!begin.empty() && !text.starts_with(begin)) return std::string(text);
        text.remove_prefix(begin.size());
        const bool joined = text == "." || text == "?" || text == "!" || text == ",";
        return (joined ? "" : " ") + std::string(text);
    }

  private:
    bool Divide(std::string_view word, std::vector<int32_t>& ids) const {
        if (std::count_if(word.begin(), word.end(), BeginsPoint) > options_.most_points) {
            return false;
        }
        std::string piece;
        for (size_t at = 0; at < word.size();) {
            piece = at == 0 ? options_.begin : options_.prefix;
            const size_t prefix = piece.size();
            size_t end = std::min(word.size(), at + longest_);
            piece += word.substr(at, end - at);
            int32_t id = -1;
            for (; end > at; --end) {
                if (end < word.size() && !BeginsPoint(word[end])) continue;
                piece.resize(prefix + end - at);
                id = vocabulary_.FindPlain(piece);
                if (id >= 0) break;
            }
            if (id < 0) return false;
            ids.push_back(id);
            at = end;
        }
        return true;
    }

    const Vocabulary& vocabulary_;
    WordPieceOptions options_;
    size_t longest_ = 1;
};

}  // namespace

Result<std::unique_ptr<const WordModel>> MakeWordPieceModel(const Vocabulary& vocabulary,
                                                            WordPieceOptions options) {
    if (!vocabulary.Has(vocabulary.data().unk)) {
        return MakeError(ErrorCode::kCorrupt, "model: WordPiece has no unknown token");
    }
    std::unique_ptr<const WordModel> made =
        std::make_unique<WordPieceModel>(vocabulary, std::move(options));
    return made;
}

}  // namespace weft::tokenizer
