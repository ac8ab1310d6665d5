// PrefixCache: KV pages of earlier texts, found by their tokens.
//
// Structure: a radix tree whose edges are pages of tokens. A node stands for the text from the
// first token to the end of the node's page, and holds that page. The children of a node are sorted
// by their tokens, and no child is a prefix of another. So the child with the longest match is next
// to the position at which a text would be inserted.
// Sharing: a KV row depends only on the tokens before it, bit for bit, whatever else the step
// computes. A page may thus serve every sequence with the same first tokens, LoRA adapter (0: none)
// and tenant. Each pair of adapter and tenant has its own tree (PrefixSpace), so a tenant cannot
// find out anything about other tenants' texts. All trees share the pages, and eviction looks at
// all trees. Sequences share whole pages. If a page is not full, or only its first tokens match, a
// sequence copies the matching rows. Pages that are not full are leaves; only their holder may
// append to them.
// Eviction: a sequence that needs a page gets one that only the cache holds, least recently used
// first, leaves before their parents. A sequence holds all pages of its text, so no page below an
// idle page is held, and every idle page can be evicted.
// Recurrent layers: a text can be reused only up to a position whose state is stored. A node may
// hold a slot with the state after the node's text. (A slot is device memory for the recurrent
// state of one sequence; a second PagePool counts slots like pages.)
//
// Source: RadixAttention (Zheng et al. 2023, "SGLang: Efficient Execution of Structured Language
// Model Programs"). Thread: one caller.
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

// Sequences of the same space may share pages.
struct PrefixSpace {
    std::string_view tenant;
    int32_t adapter = 0;
    auto operator<=>(const PrefixSpace&) const = default;
};

class PrefixCache {
  public:
    // `pool` and `slots` must outlive the cache. slots: null if the model has no recurrent state.
    // page_tokens: tokens per page.
    PrefixCache(PagePool& pool, int64_t page_tokens, PagePool* slots = nullptr);
    ~PrefixCache();

    // Finds the cached whole pages of `tokens` within the first `most` tokens, and appends them to
    // `pages`, without the first `had` pages, which the caller has. Holds each appended page for
    // the caller.
    void Extend(const PrefixSpace& space, std::span<const int32_t> tokens, int64_t had,
                int64_t most, std::vector<int32_t>& pages);
    // The page with the longest match for the part of `tokens` between the first `had` pages and
    // token `most`. FindPart does not hold the page for the caller.
    struct Part {
        int32_t page = -1;
        int64_t tokens = 0;  // matching tokens; 0: no page matches
    };
    Part FindPart(const PrefixSpace& space, std::span<const int32_t> tokens, int64_t had,
                  int64_t most);
    // Adds the whole pages of `tokens`: the first entries of `pages`. If the cache already has a
    // page of the same text, replaces the entry of `pages` by that page, which has the same bits.
    void Insert(const PrefixSpace& space, std::span<const int32_t> tokens,
                std::span<int32_t> pages);
    // Adds `page`, which holds the last tokens of `tokens`, after the whole pages. The cache must
    // have these whole pages already. The holder may append to `page`.
    void InsertPart(const PrefixSpace& space, std::span<const int32_t> tokens, int32_t page);
    // As Extend, but only up to the last node with a slot. Returns that slot and holds it for the
    // caller; -1: no node after the first `had` pages has a slot.
    int32_t ExtendToState(const PrefixSpace& space, std::span<const int32_t> tokens, int64_t had,
                          int64_t most, std::vector<int32_t>& pages);
    // Number of cached whole pages of `tokens` within the first `most` tokens, with or without a
    // slot.
    int64_t KnownPages(const PrefixSpace& space, std::span<const int32_t> tokens, int64_t most);
    // Adds `slot`, the state after `tokens`, which fill whole pages. Does nothing if the cache
    // lacks these pages or already has a slot for them.
    void InsertState(const PrefixSpace& space, std::span<const int32_t> tokens, int32_t slot);
    // Returns the slot with the state after `tokens`, which fill whole pages, or -1 if no slot has
    // that state.
    int32_t StateAfter(const PrefixSpace& space, std::span<const int32_t> tokens);
    // Gives up the slot after `tokens`, if there is one and no sequence holds it.
    void RemoveState(const PrefixSpace& space, std::span<const int32_t> tokens);
    // Gives up the least recently used slot that no sequence holds. Returns false if there is no
    // such slot.
    bool EvictState();
    // Number of nodes with a slot.
    int64_t states() const { return static_cast<int64_t>(states_.size()); }
    // Evicts idle pages until the pool has `wanted` free pages or no page is idle.
    void Evict(int64_t wanted);
    // Forgets all texts, because the pages' bytes are lost.
    void Clear();

    int64_t pages() const { return pages_; }
    // Number of spaces with pages: at most the number of pages.
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
    using Leaf = std::pair<int64_t, Node*>;  // least recent use first
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
    std::vector<Node*> states_;  // nodes with a slot; few
};

}  // namespace weft::engine
