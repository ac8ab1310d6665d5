#include "engine/batch/prefix_cache.h"

#include <algorithm>
#include <map>

#include "base/check.h"

namespace weft::engine {
namespace {

// Lexicographic order of token blocks.
struct BlockOrder {
    using is_transparent = void;
    bool operator()(std::span<const int32_t> a, std::span<const int32_t> b) const {
        return std::ranges::lexicographical_compare(a, b);
    }
};

bool BeginsWith(std::span<const int32_t> text, std::span<const int32_t> beginning) {
    return text.size() >= beginning.size() &&
           std::ranges::equal(text.first(beginning.size()), beginning);
}

int64_t CommonTokens(std::span<const int32_t> a, std::span<const int32_t> b) {
    return std::ranges::mismatch(a, b).in1 - a.begin();
}

}  // namespace

struct PrefixCache::Node {
    using Children = std::map<std::vector<int32_t>, std::unique_ptr<Node>, BlockOrder>;
    Node* parent = nullptr;
    int32_t page = -1, slot = -1;
    int64_t used = 0;
    Children children;
    Children::iterator self;     // in the parent's children
    Roots::iterator self_space;  // of a root's space
};

PrefixCache::PrefixCache(PagePool& pool, int64_t page_tokens, PagePool* slots)
    : pool_(pool), page_tokens_(page_tokens), slots_(slots) {}

PrefixCache::~PrefixCache() {
    Clear();
}

std::span<const int32_t> PrefixCache::Block(std::span<const int32_t> tokens, int64_t index) const {
    return tokens.subspan(static_cast<size_t>(index * page_tokens_),
                          static_cast<size_t>(page_tokens_));
}

PrefixCache::Node* PrefixCache::Find(Node* parent, std::span<const int32_t> block) {
    const auto it = parent->children.find(block);
    return it == parent->children.end() ? nullptr : it->second.get();
}

PrefixCache::Node* PrefixCache::Root(const PrefixSpace& space) {
    auto it = roots_.find(space);
    if (it == roots_.end()) {
        const OwnSpace own{std::string(space.tenant), space.adapter};
        it = roots_.emplace(own, std::make_unique<Node>()).first;
        it->second->self_space = it;
    }
    return it->second.get();
}

// The node of the first `count` pages; null: not all of them are known.
PrefixCache::Node* PrefixCache::Walk(const PrefixSpace& space, std::span<const int32_t> tokens,
                                     int64_t count) {
    const auto root = roots_.find(space);
    Node* node = root == roots_.end() ? nullptr : root->second.get();
    for (int64_t i = 0; i < count && node != nullptr; ++i) node = Find(node, Block(tokens, i));
    return node;
}

void PrefixCache::Touch(Node* node) {
    const bool leaf = node->children.empty();
    if (leaf) leaves_.erase({node->used, node});
    node->used = ++clock_;
    if (leaf) leaves_.insert({node->used, node});
}

void PrefixCache::Extend(const PrefixSpace& space, std::span<const int32_t> tokens, int64_t had,
                         int64_t most, std::vector<int32_t>& pages) {
    const int64_t last = std::min(most, static_cast<int64_t>(tokens.size())) / page_tokens_;
    Node* node = had < last ? Walk(space, tokens, had) : nullptr;
    for (int64_t i = had; i < last && node != nullptr; ++i) {
        node = Find(node, Block(tokens, i));
        if (node == nullptr) return;
        pool_.Hold(node->page);
        pages.push_back(node->page);
        Touch(node);
    }
}

PrefixCache::Part PrefixCache::FindPart(const PrefixSpace& space, std::span<const int32_t> tokens,
                                        int64_t had, int64_t most) {
    const int64_t begin = had * page_tokens_;
    const int64_t end = std::min({most, static_cast<int64_t>(tokens.size()), begin + page_tokens_});
    if (begin >= end) return {};
    Node* parent = Walk(space, tokens, had);
    if (parent == nullptr) return {};
    const auto rest = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    Part best;
    Node* found = nullptr;
    const auto look = [&](Node::Children::iterator it) {
        const int64_t common = CommonTokens(it->first, rest);
        if (common <= best.tokens) return;
        found = it->second.get();
        best = {found->page, common};
    };
    const auto after = parent->children.lower_bound(rest);
    if (after != parent->children.end()) look(after);
    if (after != parent->children.begin()) look(std::prev(after));
    if (found != nullptr) Touch(found);
    return best;
}

// Adds a child to `parent`; no child of `parent` begins with the block. If a child is a prefix of
// the block, the new child replaces it, because its page holds the same tokens.
PrefixCache::Node* PrefixCache::Make(Node* parent, std::span<const int32_t> block, int32_t page) {
    const auto after = parent->children.lower_bound(block);
    if (after != parent->children.begin() && BeginsWith(block, std::prev(after)->first)) {
        Remove(std::prev(after)->second.get());
    }
    const bool was_leaf = parent->parent != nullptr && parent->children.empty();
    if (was_leaf) leaves_.erase({parent->used, parent});
    const auto [it, added] =
        parent->children.emplace(std::vector(block.begin(), block.end()), std::make_unique<Node>());
    WEFT_CHECK(added);
    Node* node = it->second.get();
    node->parent = parent;
    node->page = page;
    node->self = it;
    node->used = ++clock_;
    leaves_.insert({node->used, node});
    pool_.SetCached(page, true);
    ++pages_;
    return node;
}

void PrefixCache::Insert(const PrefixSpace& space, std::span<const int32_t> tokens,
                         std::span<int32_t> pages) {
    if (pages.empty()) return;
    Node* node = Root(space);
    for (size_t i = 0; i < pages.size(); ++i) {
        const auto block = Block(tokens, static_cast<int64_t>(i));
        Node* next = Find(node, block);
        if (next == nullptr) {
            next = Make(node, block, pages[i]);
        } else if (next->page != pages[i]) {
            pool_.Hold(next->page);
            pool_.Release(pages[i]);
            pages[i] = next->page;
        }
        node = next;
    }
}

void PrefixCache::InsertPart(const PrefixSpace& space, std::span<const int32_t> tokens,
                             int32_t page) {
    const auto size = static_cast<int64_t>(tokens.size());
    const int64_t whole = size / page_tokens_;
    const auto rest = tokens.subspan(static_cast<size_t>(whole * page_tokens_));
    if (rest.empty()) return;
    Node* parent = whole == 0 ? Root(space) : Walk(space, tokens, whole);
    if (parent == nullptr) return;
    const auto after = parent->children.lower_bound(rest);
    if (after != parent->children.end() && BeginsWith(after->first, rest)) return;
    Make(parent, rest, page);
}

void PrefixCache::Remove(Node* leaf) {
    WEFT_CHECK(leaf->children.empty());
    if (leaf->slot >= 0) DropState(leaf);
    leaves_.erase({leaf->used, leaf});
    pool_.SetCached(leaf->page, false);
    --pages_;
    Node* parent = leaf->parent;
    parent->children.erase(leaf->self);
    const bool is_leaf = parent->parent != nullptr && parent->children.empty();
    if (is_leaf) leaves_.insert({parent->used, parent});
}

// Giving up the last page of a space removes the space.
void PrefixCache::GiveUp(Node* leaf) {
    Node* parent = leaf->parent;
    Remove(leaf);
    if (parent->parent == nullptr && parent->children.empty()) roots_.erase(parent->self_space);
}

// ---- Recurrent state ----------------------------------------------------------------------------

int32_t PrefixCache::ExtendToState(const PrefixSpace& space, std::span<const int32_t> tokens,
                                   int64_t had, int64_t most, std::vector<int32_t>& pages) {
    const int64_t last = std::min(most, static_cast<int64_t>(tokens.size())) / page_tokens_;
    std::vector<Node*> way;
    size_t known = 0;  // known nodes on the path
    Node* node = had < last ? Walk(space, tokens, had) : nullptr;
    for (int64_t i = had; i < last && node != nullptr; ++i) {
        node = Find(node, Block(tokens, i));
        if (node == nullptr) break;
        way.push_back(node);
        if (node->slot >= 0) known = way.size();
    }
    if (known == 0) return -1;
    way.resize(known);
    for (Node* each : way) {
        pool_.Hold(each->page);
        pages.push_back(each->page);
        Touch(each);
    }
    slots_->Hold(way.back()->slot);
    return way.back()->slot;
}

int64_t PrefixCache::KnownPages(const PrefixSpace& space, std::span<const int32_t> tokens,
                                int64_t most) {
    const int64_t last = std::min(most, static_cast<int64_t>(tokens.size())) / page_tokens_;
    Node* node = Walk(space, tokens, 0);
    int64_t known = 0;
    while (known < last && node != nullptr) {
        node = Find(node, Block(tokens, known));
        if (node != nullptr) ++known;
    }
    return known;
}

void PrefixCache::InsertState(const PrefixSpace& space, std::span<const int32_t> tokens,
                              int32_t slot) {
    Node* node = Walk(space, tokens, static_cast<int64_t>(tokens.size()) / page_tokens_);
    if (node == nullptr || node->parent == nullptr || node->slot >= 0) return;
    node->slot = slot;
    slots_->SetCached(slot, true);
    states_.push_back(node);
    Touch(node);
}

void PrefixCache::DropState(Node* node) {
    slots_->SetCached(node->slot, false);
    node->slot = -1;
    std::erase(states_, node);
}

int32_t PrefixCache::StateAfter(const PrefixSpace& space, std::span<const int32_t> tokens) {
    const Node* node = Walk(space, tokens, static_cast<int64_t>(tokens.size()) / page_tokens_);
    return node == nullptr ? -1 : node->slot;
}

void PrefixCache::RemoveState(const PrefixSpace& space, std::span<const int32_t> tokens) {
    Node* node = Walk(space, tokens, static_cast<int64_t>(tokens.size()) / page_tokens_);
    const bool idle = node != nullptr && node->slot >= 0 && slots_->holders(node->slot) == 0;
    if (idle) DropState(node);
}

bool PrefixCache::EvictState() {
    Node* oldest = nullptr;
    for (Node* node : states_) {
        if (slots_->holders(node->slot) > 0) continue;
        if (oldest == nullptr || node->used < oldest->used) oldest = node;
    }
    if (oldest != nullptr) DropState(oldest);
    return oldest != nullptr;
}

void PrefixCache::Evict(int64_t wanted) {
    auto it = leaves_.begin();
    while (pool_.free() < wanted && pool_.idle() > 0 && it != leaves_.end()) {
        Node* leaf = it->second;
        if (pool_.holders(leaf->page) > 0) {
            ++it;
            continue;
        }
        GiveUp(leaf);
        it = leaves_.begin();
    }
}

void PrefixCache::Clear() {
    // Leaf by leaf: recursion over a tree as deep as a long context could overflow the stack.
    while (!leaves_.empty()) GiveUp(leaves_.begin()->second);
    WEFT_CHECK(pages_ == 0 && roots_.empty());
}

}  // namespace weft::engine
