// The tokens of a vocabulary by their bytes, in a tree whose branches share what tokens begin
// with: which tokens may follow is then a walk over the part of the tree that is still alive.
//
// In it are all tokens that stand for bytes of a text: not the empty ones, not control and unknown
// tokens (but those that Make is asked to take by their names), not those that end a generation
// (they are listed apart), and none above kMostTokenBytes. A token may be part of a code point.
// Several tokens may have the same bytes.
//
// Memory: some 20 bytes a token and its text. Thread: never changes once made.
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

    // Nodes are in the order of a walk that visits a node before its children and these by byte.
    struct Node {
        uint32_t end;    // the node after its subtree
        uint32_t first;  // of tokens(): where those of its subtree begin, its own first
        uint8_t byte;    // that leads here from its parent
        uint8_t depth;   // the root has 0
        uint16_t below;  // of Below(); 0: not known
    };
    // What the subtree of a node with many nodes below it is made of.
    struct Subtree {
        ByteSet bytes;  // below the node
        uint32_t height;
    };

    // markers: a control token whose name stands in it is a token of that text, too.
    static std::shared_ptr<const TokenTrie> Make(const tokenizer::Tokenizer& tokenizer,
                                                 std::string_view markers = {});

    int32_t vocab_size() const { return static_cast<int32_t>(offsets_.size()) - 1; }
    size_t mask_words() const { return (static_cast<size_t>(vocab_size()) + 31) / 32; }

    // The root is the first; its `end` is their number, and one more follows that ends the last
    // list of tokens.
    std::span<const Node> nodes() const { return nodes_; }
    std::span<const int32_t> tokens() const { return tokens_; }  // by bytes
    // Tokens that end at a node.
    std::span<const int32_t> TokensAt(uint32_t node) const {
        const uint32_t begin = nodes_[node].first;
        return std::span(tokens_).subspan(begin, nodes_[node + 1].first - begin);
    }
    // Tokens that end at a node or below it.
    std::span<const int32_t> TokensFrom(uint32_t node) const {
        const uint32_t begin = nodes_[node].first;
        return std::span(tokens_).subspan(begin, nodes_[nodes_[node].end].first - begin);
    }
    // Precondition: node.below > 0.
    const Subtree& Below(const Node& node) const { return subtrees_[node.below]; }
    std::span<const int32_t> ends() const { return ends_; }  // tokens that end a generation

    bool IsEnd(int32_t token) const;
    // Empty for tokens that are not in the tree and ids out of range.
    std::string_view Bytes(int32_t token) const;

  private:
    TokenTrie() = default;
    void AddNodes();
    void AddSubtrees();

    std::vector<Node> nodes_;
    std::vector<Subtree> subtrees_;  // [0] is none
    std::vector<int32_t> tokens_;
    std::vector<int32_t> ends_;
    std::string bytes_;              // of all tokens, by id
    std::vector<uint32_t> offsets_;  // into bytes_, by id, and one more
};

}  // namespace weft::grammar
