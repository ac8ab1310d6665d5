#include "grammar/token_trie.h"

#include <algorithm>

namespace weft::grammar {

std::shared_ptr<const TokenTrie> TokenTrie::Make(const tokenizer::Tokenizer& tokenizer,
                                                 std::string_view markers) {
    std::shared_ptr<TokenTrie> trie(new TokenTrie);
    trie->offsets_.push_back(0);
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
        const std::string_view piece = tokenizer.Piece(id);
        if (tokenizer.IsEog(id)) {
            trie->ends_.push_back(id);
        } else if (!piece.empty() && piece.size() <= kMostTokenBytes &&
                   (!tokenizer.IsSpecial(id) || markers.find(piece) != markers.npos)) {
            trie->bytes_ += piece;
            trie->tokens_.push_back(id);
        }
        trie->offsets_.push_back(static_cast<uint32_t>(trie->bytes_.size()));
    }
    std::sort(trie->tokens_.begin(), trie->tokens_.end(), [&](int32_t a, int32_t b) {
        const int order = trie->Bytes(a).compare(trie->Bytes(b));
        return order != 0 ? order < 0 : a < b;
    });
    trie->AddNodes();
    trie->AddSubtrees();
    return trie;
}

// Tokens are sorted by bytes, so each one branches off the path of the previous one.
void TokenTrie::AddNodes() {
    nodes_.push_back({0, 0, 0, 0, 0});
    std::vector<uint32_t> path = {0};  // nodes from the root to the last token
    std::string_view before;
    const auto close = [&](size_t depth) {
        for (; path.size() > depth + 1; path.pop_back()) {
            nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
        }
    };
    for (uint32_t at = 0; at < tokens_.size(); ++at) {
        const std::string_view bytes = Bytes(tokens_[at]);
        const auto differ = std::mismatch(before.begin(), before.end(), bytes.begin(), bytes.end());
        const auto shared = static_cast<size_t>(differ.second - bytes.begin());
        if (shared < before.size()) close(shared);
        for (size_t depth = shared; depth < bytes.size(); ++depth) {
            path.push_back(static_cast<uint32_t>(nodes_.size()));
            nodes_.push_back(
                {0, at, static_cast<uint8_t>(bytes[depth]), static_cast<uint8_t>(depth + 1), 0});
        }
        before = bytes;
    }
    close(0);
    nodes_[0].end = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back({nodes_[0].end, static_cast<uint32_t>(tokens_.size()), 0, 0, 0});
    nodes_.shrink_to_fit();
}

void TokenTrie::AddSubtrees() {
    constexpr uint32_t kManyNodes = 8;
    subtrees_.resize(1);
    for (uint32_t at = 1; at < nodes_[0].end && subtrees_.size() < UINT16_MAX; ++at) {
        Node& node = nodes_[at];
        if (node.end - at <= kManyNodes) continue;
        Subtree subtree = {};
        for (uint32_t below = at + 1; below < node.end; ++below) {
            subtree.bytes.Add(nodes_[below].byte);
            const uint32_t height = nodes_[below].depth - uint32_t{node.depth};
            subtree.height = std::max(subtree.height, height);
        }
        node.below = static_cast<uint16_t>(subtrees_.size());
        subtrees_.push_back(subtree);
    }
}

bool TokenTrie::IsEnd(int32_t token) const {
    return std::binary_search(ends_.begin(), ends_.end(), token);
}

std::string_view TokenTrie::Bytes(int32_t token) const {
    if (token < 0 || token >= vocab_size()) return {};
    const auto id = static_cast<size_t>(token);
    return std::string_view(bytes_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
}

}  // namespace weft::grammar
