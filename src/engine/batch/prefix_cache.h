// PrefixCache: KV pages of what was computed before, found again by their tokens.
//
// A radix tree whose edges are pages of tokens: a node stands for the text from the beginning to
// the end of its page, and holds the page. KV rows depend on the tokens before them and on nothing
// else, to the bit (rows do not depend on the other rows of a step), so that a page may serve any
// sequence that begins with the same tokens, uses the same LoRA adapter (0: none) and belongs to
// the same tenant: each pair of these has a tree of its own (PrefixSpace). A tenant learns nothing
// of the texts of others, as a prompt of one never meets a page of another; only room and eviction
// are common to all. Whole pages are shared. Of a page that agrees with a text for a while only, or
// is not full, the beginning can be copied; so pages that are not full are leaves, and nobody's
// text but that of the one who may go on writing behind it. Children of a node stand in the order
// of their tokens, none the beginning of another: the one that agrees longest with a text is beside
// the place where that text would stand. The cache never owns a page alone against a sequence that
// needs one: what only it holds is given up when asked, least recently used first, leaves before
// what they build on. Sequences hold all pages from the beginning on, so that whatever is idle can
// be given up. Of a model with recurrent layers a text is known only where its state is, too: a
// node may hold a slot of that (PagePool counts slots as it does pages), which is the state behind
// the node's text. Source: RadixAttention (Zheng et al. 2023, "SGLang: Efficient Execution of
// Structured Language Model Programs"). Thread: one caller.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/batch/pages.h"

namespace weft::engine {

// Whose pages may serve each other.
struct PrefixSpace {
    std::string_view tenant;
    int32_t adapter = 0;
    auto operator<=>(const PrefixSpace&) const = default;
};

class PrefixCache {
  public:
    // `pool` and `slots`, of recurrent state, outlive the cache. page_tokens: tokens of a page.
    PrefixCache(PagePool& pool, int64_t page_tokens, PagePool* slots = nullptr);
    ~PrefixCache();

    // Adds to `pages` what is known of `tokens` behind their first `had` pages, in whole pages and
    // as far as `most` tokens in all; each is held for the caller.
    void Extend(const PrefixSpace& space, std::span<const int32_t> tokens, int64_t had,
                int64_t most, std::vector<int32_t>& pages);
    // The page that agrees longest with what follows the first `had` pages of `tokens`, as far as
    // `most` tokens in all. Not held.
    struct Part {
        int32_t page = -1;
        int64_t tokens = 0;  // that agree; 0: there is none
    };
    Part FindPart(const PrefixSpace& space, std::span<const int32_t> tokens, int64_t had,
                  int64_t most);
    // The first `pages` hold whole pages of `tokens`: they become known. Where the same text is
    // known already, the sequence gets the known page in place of its own, which has the same bits.
    void Insert(const PrefixSpace& space, std::span<const int32_t> tokens,
                std::span<int32_t> pages);
    // `page` holds what is left of `tokens` behind the whole pages, which are known. Its holder may
    // go on writing behind that.
    void InsertPart(const PrefixSpace& space, std::span<const int32_t> tokens, int32_t page);
    // As Extend, but no farther than to the last node with a slot, which is returned, held for the
    // caller; -1: there is none behind the first `had` pages.
    int32_t ExtendToState(const PrefixSpace& space, std::span<const int32_t> tokens, int64_t had,
                          int64_t most, std::vector<int32_t>& pages);
    // How many whole pages of `tokens` are known, as far as `most` tokens, with a slot or without.
    int64_t KnownPages(const PrefixSpace& space, std::span<const int32_t> tokens, int64_t most);
    // `slot` holds the state behind `tokens`, which are whole pages. Left as it is where these
    // aren't known, or have a slot already.
    void InsertState(const PrefixSpace& space, std::span<const int32_t> tokens, int32_t slot);
    // Gives up the slot behind `tokens`, if there is one that nobody holds.
    void RemoveState(const PrefixSpace& space, std::span<const int32_t> tokens);
    // Gives up the slot that was least recently used of those that nobody holds. False: there is
    // none.
    bool EvictState();
    // Nodes with a slot.
    int64_t states() const { return static_cast<int64_t>(states_.size()); }
    // Gives up idle pages until `wanted` pages of the pool are free, or none is idle.
    void Evict(int64_t wanted);
    // Forgets everything: the pages' bytes are gone.
    void Clear();

    int64_t pages() const { return pages_; }
    // That have pages: no more than there are pages.
    size_t spaces() const { return roots_.size(); }

  private:
    struct Node;
    struct OwnSpace {
        std::string tenant;
        int32_t adapter = 0;
    };
    struct SpaceOrder {
        using is_transparent = void;
        static PrefixSpace View(const PrefixSpace& space) { return space; }
        static PrefixSpace View(const OwnSpace& space) { return {space.tenant, space.adapter}; }
        template <typename A, typename B>
        bool operator()(const A& a, const B& b) const {
            return View(a) < View(b);
        }
    };
    using Roots = std::map<OwnSpace, std::unique_ptr<Node>, SpaceOrder>;
    using Leaf = std::pair<int64_t, Node*>;  // last use first
    static Node* Find(Node* parent, std::span<const int32_t> block);
    Node* Root(const PrefixSpace& space);
    Node* Walk(const PrefixSpace& space, std::span<const int32_t> tokens, int64_t count);
    void GiveUp(Node* leaf);
    Node* Make(Node* parent, std::span<const int32_t> block, int32_t page);
    void Touch(Node* node);
    void DropState(Node* node);
    void Remove(Node* leaf);
    std::span<const int32_t> Block(std::span<const int32_t> tokens, int64_t index) const;

    PagePool& pool_;
    int64_t page_tokens_;
    int64_t pages_ = 0;
    int64_t clock_ = 0;
    Roots roots_;
    std::set<Leaf> leaves_;
    PagePool* slots_;
    std::vector<Node*> states_;  // with a slot: a few
};

}  // namespace weft::engine
