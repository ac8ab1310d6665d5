#include "grammar/mask_cache.h"

#include <bit>

namespace weft::grammar {

TokenSet::TokenSet(std::vector<uint32_t> words) {
    size_t count = 0;
    for (const uint32_t word : words) count += static_cast<size_t>(std::popcount(word));
    if (count > words.size()) {
        words_ = std::move(words);
        return;
    }
    ids_.reserve(count);
    for (size_t word = 0; word < words.size(); ++word) {
        for (uint32_t rest = words[word]; rest != 0; rest &= rest - 1) {
            ids_.push_back(static_cast<int32_t>(word * 32) + std::countr_zero(rest));
        }
    }
}

void TokenSet::AddTo(std::span<uint32_t> bits) const {
    for (size_t word = 0; word < words_.size(); ++word) bits[word] |= words_[word];
    for (const int32_t id : ids_) bits[static_cast<size_t>(id) / 32] |= 1U << (id % 32);
}

size_t MaskCache::Hash::operator()(const Key& key) const {
    uint64_t hash = key.size();
    for (const uint32_t part : key) hash = (hash ^ part) * 0x9E3779B97F4A7C15 + (hash >> 29);
    return static_cast<size_t>(hash ^ (hash >> 32));
}

size_t MaskCache::BytesOf(const Key& key, const PlaceMask& mask) {
    constexpr size_t kOverhead = 300;  // of the map, the list and the allocations
    return kOverhead + 2 * key.size() * sizeof(uint32_t) + mask.tokens.size_bytes() +
           mask.exits.size() * sizeof(uint32_t);
}

std::shared_ptr<const PlaceMask> MaskCache::Find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    used_.splice(used_.begin(), used_, found->second.used);
    return found->second.mask;
}

void MaskCache::Keep(const Key& key, std::shared_ptr<const PlaceMask> mask) {
    const std::lock_guard lock(mutex_);
    const auto [entry, added] = entries_.try_emplace(key);
    if (!added) return;  // another thread added the same mask first
    bytes_ += BytesOf(key, *mask);
    used_.push_front(key);
    entry->second = {std::move(mask), used_.begin()};
    while (bytes_ > kMostBytes && used_.size() > 1) {
        const auto last = entries_.find(used_.back());
        bytes_ -= BytesOf(last->first, *last->second.mask);
        entries_.erase(last);
        used_.pop_back();
    }
}

std::unique_ptr<Stacks> MaskCache::Borrow() {
    {
        const std::lock_guard lock(mutex_);
        if (!idle_.empty()) {
            std::unique_ptr<Stacks> stacks = std::move(idle_.back());
            idle_.pop_back();
            return stacks;
        }
    }
    return std::make_unique<Stacks>(*grammar_);
}

void MaskCache::GiveBack(std::unique_ptr<Stacks> stacks) {
    constexpr size_t kMostIdle = 4;
    const std::lock_guard lock(mutex_);
    if (idle_.size() < kMostIdle) idle_.push_back(std::move(stacks));
}

size_t MaskCache::size_bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
}

}  // namespace weft::grammar
