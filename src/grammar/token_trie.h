// A trie of the vocabulary's tokens by their bytes. A walk over the nodes that the grammar allows
// finds the tokens that may come next.
//
// The trie contains all tokens that stand for bytes of text. Excluded: empty tokens, control and
// unknown tokens (except those named in `markers`), end tokens (see ends()), and tokens longer than
// kMostTokenBytes. A token may be part of a code point. Several tokens may have equal bytes.
//
// Memory: about 20 bytes per token, plus its text. Thread: immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"
#include "tokenizer/tokenizer.h"

namespace weft::grammar {

class TokenTrie {
  public:
    static constexpr size_t kMostTokenBytes = 255;

    // Nodes are in pre-order, children sorted by byte.
    struct Node {
        uint32_t end;    // index after the subtree
        uint32_t first;  // index in tokens() of the subtree's tokens; the node's own come first
        uint8_t byte;    // edge from its parent
        uint8_t depth;   // the root has 0
        uint16_t below;  // index for Below(); 0: none
    };
    // Summary of a subtree with many nodes.
    struct Subtree {
        ByteSet bytes;  // bytes on edges below the node
        uint32_t height;
    };

    // markers: a control token whose name occurs in this text is included as ordinary text.
    static std::shared_ptr<const TokenTrie> Make(const tokenizer::Tokenizer& tokenizer,
                                                 std::string_view markers = {});

    int32_t vocab_size() const { return static_cast<int32_t>(offsets_.size()) - 1; }
    size_t mask_words() const { return (static_cast<size_t>(vocab_size()) + 31) / 32; }

    // Node 0 is the root; its `end` is the number of nodes. One extra node follows, which ends the
    // last list of tokens.
    std::span<const Node> nodes() const { return nodes_; }
    std::span<const int32_t> tokens() const { return tokens_; }  // sorted by bytes
    // Tokens that end at the node.
    std::span<const int32_t> TokensAt(uint32_t node) const {
        const uint32_t begin = nodes_[node].first;
        return std::span(tokens_).subspan(begin, nodes_[node + 1].first - begin);
    }
    // Tokens that end at the node or below it.
    std::span<const int32_t> TokensFrom(uint32_t node) const {
        const uint32_t begin = nodes_[node].first;
        return std::span(tokens_).subspan(begin, nodes_[nodes_[node].end].first - begin);
    }
    // Precondition: node.below > 0.
    const Subtree& Below(const Node& node) const { return subtrees_[node.below]; }
    std::span<const int32_t> ends() const { return ends_; }  // tokens that end a generation

    bool IsEnd(int32_t token) const;
    // Empty for tokens that are not in the trie and for ids out of range.
    std::string_view Bytes(int32_t token) const;

  private:
    TokenTrie() = default;
    void AddNodes();
    void AddSubtrees();

    std::vector<Node> nodes_;
    std::vector<Subtree> subtrees_;  // [0] is unused
    std::vector<int32_t> tokens_;
    std::vector<int32_t> ends_;
    std::string bytes_;              // concatenated bytes of all tokens, by id
    std::vector<uint32_t> offsets_;  // offsets into bytes_ by id, plus the end
};

}  // namespace weft::grammar
