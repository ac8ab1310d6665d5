#include "engine/batch/prefix_cache.h"

#include <algorithm>

#include "base/check.h"

namespace weft::engine {
namespace {

// FNV-1a over the words of a block; equal hashes are compared token by token.
uint64_t HashOf(std::span<const int32_t> block) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const int32_t token : block) {
        hash = (hash ^ static_cast<uint32_t>(token)) * 0x100000001b3;
    }
    return hash;
}

}  // namespace

struct PrefixCache::Node {
    Node* parent = nullptr;
    int32_t page = -1;
    int64_t used = 0;
    std::vector<int32_t> block;
    std::unordered_multimap<uint64_t, std::unique_ptr<Node>> children;
};

PrefixCache::PrefixCache(PagePool& pool, int64_t page_tokens)
    : pool_(pool), page_tokens_(page_tokens), root_(std::make_unique<Node>()) {}

PrefixCache::~PrefixCache() {
    Clear();
}

std::span<const int32_t> PrefixCache::Block(std::span<const int32_t> tokens, int64_t index) const {
    return tokens.subspan(static_cast<size_t>(index * page_tokens_),
                          static_cast<size_t>(page_tokens_));
}

PrefixCache::Node* PrefixCache::Find(Node* parent, std::span<const int32_t> block) const {
    const auto [begin, end] = parent->children.equal_range(HashOf(block));
    for (auto it = begin; it != end; ++it) {
        if (std::ranges::equal(it->second->block, block)) return it->second.get();
    }
    return nullptr;
}

// The node of the first `count` pages; null where not all of them are known.
PrefixCache::Node* PrefixCache::Walk(std::span<const int32_t> tokens, int64_t count) {
    Node* node = root_.get();
    for (int64_t i = 0; i < count && node != nullptr; ++i) node = Find(node, Block(tokens, i));
    return node;
}

void PrefixCache::Touch(Node* node) {
    const bool leaf = node->children.empty();
    if (leaf) leaves_.erase({node->used, node});
    node->used = ++clock_;
    if (leaf) leaves_.insert({node->used, node});
}

int64_t PrefixCache::Extend(std::span<const int32_t> tokens, int64_t most,
                            std::vector<int32_t>& pages) {
    const auto had = static_cast<int64_t>(pages.size());
    const int64_t last = std::min(most, static_cast<int64_t>(tokens.size())) / page_tokens_;
    Node* node = had < last ? Walk(tokens, had) : nullptr;
    for (int64_t i = had; i < last && node != nullptr; ++i) {
        node = Find(node, Block(tokens, i));
        if (node == nullptr) break;
        pool_.Hold(node->page);
        pages.push_back(node->page);
        Touch(node);
    }
    return static_cast<int64_t>(pages.size()) - had;
}

void PrefixCache::Insert(std::span<const int32_t> tokens, std::span<int32_t> pages) {
    Node* node = root_.get();
    for (size_t i = 0; i < pages.size(); ++i) {
        const auto block = Block(tokens, static_cast<int64_t>(i));
        Node* next = Find(node, block);
        if (next == nullptr) {
            auto made = std::make_unique<Node>();
            next = made.get();
            next->parent = node;
            next->page = pages[i];
            next->block.assign(block.begin(), block.end());
            if (node != root_.get() && node->children.empty()) leaves_.erase({node->used, node});
            node->children.emplace(HashOf(block), std::move(made));
            next->used = ++clock_;
            leaves_.insert({next->used, next});
            pool_.SetCached(pages[i], true);
            ++pages_;
        } else if (next->page != pages[i]) {
            pool_.Hold(next->page);
            pool_.LetGo(pages[i]);
            pages[i] = next->page;
        }
        node = next;
    }
}

void PrefixCache::Remove(Node* leaf) {
    WEFT_CHECK(leaf->children.empty());
    leaves_.erase({leaf->used, leaf});
    pool_.SetCached(leaf->page, false);
    --pages_;
    Node* parent = leaf->parent;
    const auto [begin, end] = parent->children.equal_range(HashOf(leaf->block));
    const auto it =
        std::find_if(begin, end, [&](const auto& entry) { return entry.second.get() == leaf; });
    parent->children.erase(it);
    if (parent != root_.get() && parent->children.empty()) leaves_.insert({parent->used, parent});
}

void PrefixCache::Evict(int64_t wanted) {
    auto it = leaves_.begin();
    while (pool_.free() < wanted && pool_.idle() > 0 && it != leaves_.end()) {
        Node* leaf = it->second;
        if (pool_.holders(leaf->page) > 0) {
            ++it;
            continue;
        }
        Remove(leaf);
        it = leaves_.begin();
    }
}

void PrefixCache::Clear() {
    // Leaf by leaf: a tree as deep as a long context must not be taken apart by recursion.
    while (!leaves_.empty()) Remove(leaves_.begin()->second);
    WEFT_CHECK(pages_ == 0);
}

}  // namespace weft::engine
